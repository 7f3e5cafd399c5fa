"""`hapdsl compare`: against `hapdsl cost`, against the programs' own texts, and against itself the other way round."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hapdsl.cost.comparison import differences
from hapdsl.workbench import Workbench
from tests.cli.conftest import Run
from tests.texts import PROGRAM, PROGRAMS, TINY

PLANS = PROGRAMS / "plans"
A, B, C = (PLANS / f"mlp_{name}.hap" for name in ("data_parallel", "megatron", "zero"))
LAYERS = (PLANS / "layer_data_parallel.hap", PLANS / "layer_megatron.hap")

# By hand what `by_batch` does, but for one gradient that is exchanged by itself and another that nobody exchanges.
OTHER = PROGRAM.replace("by_batch", "apart").replace(
    "w2.grad@R, w1.grad@R = all_reduce(w2.grad@P, w1.grad@P)",
    "w2.grad@R = all_reduce(w2.grad@P)\n        w1.grad@R = all_reduce(w1.grad@P)",
)

DEEP = """
def block(x, d) {
    param w : f32[d, d]
    u = matmul(x, w)
    return relu(u)
}
model deep(batch = 64, d = 16, layers = 3) {
    input row : f32[batch, d]
    x = relu(row)
    repeat layer in layers { x = block(x, d) }
    output x
}
program cut for deep on pair {
    shares batch = [40, 24]
    forward {
        row@S(0)       = input()
        layer.0.x@S(0) = relu(row@S(0))
        repeat layer in 0..3 {
            .block.w@R    = param()
            .block.u@S(0) = matmul(.x@S(0), .block.w@R)
            .next.x@S(0)  = relu(.block.u@S(0))
        }
        x@R = all_gather(x@S(0))
    }
}
program whole for deep on pair {
    forward {
        row@R       = input()
        layer.0.x@R = relu(row@R)
        repeat layer in 0..3 {
            .block.w@R = param()
            .block.u@R = matmul(.x@R, .block.w@R)
            .next.x@R  = relu(.block.u@R)
        }
    }
}
"""


def test_totals_are_those_of_cost(hapdsl: Run) -> None:
    found = hapdsl("compare", A, B, C, "--json").object
    for file, plan in zip((A, B, C), found["plans"], strict=True):
        alone = hapdsl("cost", file, "--json").object
        assert plan["file"] == str(file)
        for key in ("program", "cluster", "sync_s", "overlap_s", "memory_bytes", "fits", "stages"):
            assert plan[key] == alone[key]


def test_what_travels_is_what_the_text_says(hapdsl: Run) -> None:
    """Messages are counted in the text, their bytes from the model's shapes: w1[64, 128], w2[128, 10] and b1[128] in f32."""
    plans = hapdsl("compare", A, C, "--json").object["plans"]
    sizes = {"w1": 64 * 128 * 4, "w2": 128 * 10 * 4, "b1": 128 * 4}
    for file, plan in zip((A, C), plans, strict=True):
        seen: dict[str, list[int]] = {}
        for op, operands in re.findall(
            r"= (all_reduce|all_gather|reduce_scatter|all_to_all)\((.*)\)", file.read_text()
        ):
            moved = [sizes[name] for name in re.findall(r"(\w+)(?:\.grad|\.new)?@", operands)]
            seen.setdefault(op, []).append(sum(moved))
        listed = {v["collective"]: (v["messages"], v["bytes"]) for v in plan["communication"]}
        assert listed == {op: (len(moved), sum(moved)) for op, moved in seen.items()}
        assert sum(v["seconds"] for v in plan["communication"]) == pytest.approx(
            sum(s["comm_s"] for s in plan["stages"])
        )


def test_devices_are_busy_for_what_their_stages_take(hapdsl: Run) -> None:
    for plan in hapdsl("compare", A, C, "--json").object["plans"]:
        for d in range(4):
            assert plan["device_compute_s"][d] == pytest.approx(sum(s["compute_s"][d] for s in plan["stages"]))
            assert plan["device_comm_s"][d] == pytest.approx(sum(s["comm_s"] for s in plan["stages"]))


def test_differences_add_up_to_what_lines_cost() -> None:
    """Every line counts once, whether it differs or not: the deltas add up to the difference of all lines' seconds."""
    for first, second in ((A, B), (B, C), LAYERS):
        (p, p_cost), (q, q_cost) = (priced(f) for f in (first, second))
        found = differences(p, p_cost, q, q_cost)
        total = sum(float(s.max()) for s in q_cost.per_instruction_s) - sum(
            float(s.max()) for s in p_cost.per_instruction_s
        )
        assert sum(d.delta_s for d in found) == pytest.approx(total)
        back = differences(q, q_cost, p, p_cost)
        assert {(d.tensor, d.a, d.b, d.turns): pytest.approx(-d.delta_s) for d in found} == {
            (d.tensor, d.b, d.a, d.turns): d.delta_s for d in back
        }
        assert [abs(d.delta_s) for d in found] == sorted((abs(d.delta_s) for d in found), reverse=True)


def priced(file: Path) -> tuple[Any, Any]:
    bench = Workbench(file)
    checked, _, cost = bench.cost(bench.program())
    return checked.program, cost


def test_the_same_program_has_no_differences(hapdsl: Run) -> None:
    found = hapdsl("compare", A, A)
    assert "the same lines at the same prices" in found.out
    assert hapdsl("compare", A, A, "--json").object["differences"] == []


def test_equal_layers_are_one_difference(hapdsl: Run, tmp_path: Path) -> None:
    path = tmp_path / "deep.hap"
    path.write_text(TINY[TINY.index("cluster") :] + DEEP)
    found = hapdsl("compare", path, "--json").object["differences"]
    assert [(d["tensor"], d["turns"]) for d in found[:2]] == [("layer.*.block.u", 3), ("layer.*.x", 2)]
    assert {d["turns"] for d in found[2:]} == {1}
    u = next(d for d in found if d["tensor"] == "layer.*.block.u")
    assert (u["a"], u["b"]) == tuple(
        f"layer.*.block.u@{p} = matmul(layer.*.x@{p}, layer.*.block.w@R)" for p in ("S(0)", "R")
    )
    # Rows × 2 × 16 × 16 FLOP on the slow device.
    assert u["delta_s"] == pytest.approx(3 * 2 * (64 - 24) * 16 * 16 / 1e9)


def test_the_programs_of_one_file(hapdsl: Run, tmp_path: Path) -> None:
    """A message of two gradients against two of one each: the second costs a latency more, ring of two: 2 × 1 us."""
    path = tmp_path / "two.hap"
    path.write_text(TINY + PROGRAM + OTHER + "program sketch for tiny on pair {\n    ...\n}\n")
    found = hapdsl("compare", path, "--json").object
    assert [p["program"] for p in found["plans"]] == ["by_batch", "apart"]
    assert found["same_model"] is True
    first, second = found["plans"]
    assert second["sync_s"] - first["sync_s"] == pytest.approx(2e-6)
    assert {d["tensor"] for d in found["differences"]} == {"w1.grad", "w2.grad"}
    assert sum(d["delta_s"] for d in found["differences"]) == pytest.approx(2e-6)
    named = hapdsl("compare", f"{path}:apart", f"{path}:by_batch", "--json").object
    assert [p["program"] for p in named["plans"]] == ["apart", "by_batch"]


def test_words(hapdsl: Run) -> None:
    found = hapdsl("compare", A, C)
    assert found.status == 0
    assert f"A  {A}" in found.out and f"C  {C}" not in found.out
    assert "w2@R = all_gather(w2@S(0)" in found.out
    for word in ("synchronous", "reduce_scatter padded", "host.slow.0 and 1 more", "longest stages"):
        assert word in found.out


def test_on_another_cluster(hapdsl: Run) -> None:
    here = hapdsl("compare", A, B, "--json").object
    there = hapdsl("compare", A, B, "--on", "std/shared_memory.hap", "--json").object
    assert {p["cluster"] for p in there["plans"]} == {"shared_memory"}
    assert all(t["sync_s"] < h["sync_s"] for h, t in zip(here["plans"], there["plans"], strict=True))


def test_programs_for_other_models(hapdsl: Run) -> None:
    found = hapdsl("compare", A, LAYERS[0], "--json").object
    assert (found["same_model"], found["differences"]) == (False, [])
    assert "different models" in hapdsl("compare", A, LAYERS[0]).out


def test_what_can_t_be_compared(hapdsl: Run, tiny: Path, tmp_path: Path) -> None:
    alone = hapdsl("compare", tiny, "--json")
    assert (alone.status, alone.codes) == (2, ["HAP850"])
    assert "name two" in alone.object["diagnostics"][0]["message"]
    assert hapdsl("compare", tiny, f"{tiny}:nothing", "--json").codes == ["HAP582"]
    assert hapdsl("compare", tiny, tmp_path / "none.hap", "--json").codes == ["HAP120"]
    sketch = tmp_path / "sketch.hap"
    sketch.write_text(TINY + "program s for tiny on pair {\n    ...\n}\n")
    assert hapdsl("compare", tiny, sketch, "--json").codes == ["HAP584"]
    assert hapdsl("compare").status == 2
