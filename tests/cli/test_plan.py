"""`hapdsl plan` and `cost`: what they write works anywhere, and what they say is what was priced."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hapdsl.search.pairs import Pairs
from tests.cli.conftest import Ran, Run
from tests.texts import PROGRAM, PROGRAMS, REPOSITORY, TINY

KEYS = {
    "model", "cluster", "devices", "instructions", "objective", "cost_s", "sync_s", "overlap_s", "bound_s", "bound_scope",
    "bound_any_shares_s", "gap", "search_s", "nodes", "classes", "memory_bytes", "baselines", "program", "left_out",
}  # fmt: skip


def test_the_object(hapdsl: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan.hap"
    found = hapdsl("plan", model, "--all-devices", "-o", out, "--json")
    assert (found.status, found.err) == (0, "")
    plan = found.object
    assert set(plan) >= KEYS
    assert plan["program"] == str(out)
    assert (plan["model"], plan["cluster"], plan["objective"]) == ("tiny", "pair", "sync")
    assert plan["devices"] == ["host.quick.0", "host.slow.0"]
    assert plan["cost_s"] == plan["sync_s"]
    assert plan["bound_s"] <= plan["cost_s"]
    assert plan["gap"] == pytest.approx((plan["cost_s"] - plan["bound_s"]) / plan["cost_s"], abs=1e-9)
    assert set(plan["baselines"]) == {"dp_even", "dp_proportional", "zero", "tensor_parallel"}
    assert all(plan["cost_s"] <= b * (1 + 1e-9) for b in plan["baselines"].values())
    assert len(plan["memory_bytes"]) == 2
    for cls in plan["classes"].values():
        assert sum(cls["shares"]) == cls["units"]


def test_the_file_stands_alone(hapdsl: Run, tmp_path: Path) -> None:
    """It is checked, costed and formatted in another folder, with what it was made from gone."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "blocks.hap").write_text(
        "def dense(x, d, n) {\n    param w : f32[d, n]\n    return matmul(x, w)\n}\n"
    )
    source = tmp_path / "model.hap"
    source.write_text('import "parts/blocks.hap"\n' + TINY.replace("u = matmul(x, w1)", "u = dense(x, d, hidden)").replace("    param w1 : f32[d, hidden]       init normal(std = 0.5)\n", ""))  # fmt: skip
    (tmp_path / "hardware.hap").write_text(TINY[TINY.index("cluster") :].replace("cluster pair", "cluster other"))
    (tmp_path / "away").mkdir()
    out = tmp_path / "away" / "plan.hap"
    found = hapdsl(
        "plan",
        source,
        "--cluster",
        f"{tmp_path}/hardware.hap:other",
        "--set",
        "batch=32",
        "--all-devices",
        "-o",
        out,
        "--json",
    )
    assert found.status == 0, found
    source.unlink()
    (tmp_path / "hardware.hap").unlink()
    assert "import" not in out.read_text()
    assert "for tiny(batch = 32) on other {" in out.read_text()
    checked = hapdsl("check", out, "--json")
    assert (checked.status, checked.codes) == (0, [])
    assert hapdsl("fmt", "--check", out).status == 0
    cost = hapdsl("cost", out, "--json")
    assert cost.status == 0
    for key in ("sync_s", "overlap_s", "memory_bytes"):
        assert cost.object[key] == pytest.approx(found.object[key], rel=1e-12)
    total = sum(s["comm_s"] + max(s["compute_s"]) for s in cost.object["stages"])
    assert total == pytest.approx(cost.object["sync_s"])


def test_devices_left_out(hapdsl: Run, model: Path, tmp_path: Path) -> None:
    """The tiny model is faster on one device; the file declares what it is planned for, and says what is missing."""
    out = tmp_path / "plan.hap"
    whole = hapdsl("plan", model, "--all-devices", "--json").object
    found = hapdsl("plan", model, "-o", out, "--json").object
    assert whole["left_out"] == "" and found["left_out"] and len(found["devices"]) < len(whole["devices"])
    assert found["cost_s"] < whole["cost_s"] and found["baselines"] == whole["baselines"]
    assert f"on {found['cluster']} {{" in out.read_text() and hapdsl("check", out).status == 0
    assert f"leaves out {found['left_out']}" in hapdsl("plan", model).err


def test_without_a_file_the_program_is_on_stdout(hapdsl: Run, model: Path, tmp_path: Path) -> None:
    spoken = hapdsl("plan", model)
    assert spoken.status == 0
    assert "a step (synchronous" in spoken.err
    assert "data parallel, even" in spoken.err
    (tmp_path / "out.hap").write_text(spoken.out)
    assert hapdsl("check", tmp_path / "out.hap").status == 0
    found = hapdsl("plan", model, "--json").object
    assert found["program"] is None
    assert found["text"] == spoken.out


def test_the_overlap_objective(hapdsl: Run, model: Path) -> None:
    found = hapdsl("plan", model, "--objective", "overlap", "--json").object
    assert found["cost_s"] == found["overlap_s"]
    assert found["bound_s"] <= found["cost_s"]


def test_unrolled(hapdsl: Run, tmp_path: Path) -> None:
    text = TINY.replace("u = matmul", "h = matmul").replace(
        "    h = relu(u)\n", "    repeat layer in 3 {\n        h = relu(h)\n    }\n"
    )
    path = tmp_path / "deep.hap"
    path.write_text(text)
    rolled, unrolled = hapdsl("plan", path), hapdsl("plan", path, "--unroll")
    assert "repeat layer in 0..3" in rolled.out.partition("program ")[2]
    assert "repeat" not in unrolled.out.partition("program ")[2]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("batch", "HAP851"),
        ("batch=", "HAP851"),
        ("=3", "HAP851"),
        ("batch=many", "HAP851"),
        ("batch=1.5", "HAP851"),
        ("batch=nan", "HAP851"),
        ("batch=99999999999999999999", "HAP851"),
        ("bias=1", "HAP851"),
        ("bach=8", "HAP206"),
        ("batch=0", "HAP205"),
        ("batch=-4", "HAP205"),
    ],
)
def test_settings_that_can_t_be(given: str, code: str, hapdsl: Run, model: Path) -> None:
    found = hapdsl("plan", model, "--set", given, "--json")
    assert (found.status, found.codes) == (2, [code])


def test_settings_twice(hapdsl: Run, model: Path) -> None:
    assert hapdsl("plan", model, "--set", "batch=8", "--set", "batch=9", "--json").codes == ["HAP851"]


def test_which_one(hapdsl: Run, tmp_path: Path) -> None:
    path = tmp_path / "two.hap"
    path.write_text(TINY + TINY.replace("model tiny", "model other").replace("cluster pair", "cluster more"))

    def planned(*which: str) -> Ran:
        return hapdsl("plan", "--all-devices", path, *which, "--json")

    assert planned().codes == ["HAP241"]
    assert planned("--model", "tiney").codes == ["HAP242"]
    assert planned("--model", "tiny").codes == ["HAP421"]
    clusters = {"nome": "HAP422", f"{path}:nome": "HAP422", "no/such.hap": "HAP120", "std/mlp.hap": "HAP423"}
    for cluster, code in clusters.items():
        assert planned("--model", "tiny", "--cluster", cluster).codes == [code]
    assert planned("--model", "tiny", "--cluster", "more").object["cluster"] == "more"


def test_the_default_cluster(hapdsl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's only one, else the settings folder's, else a guess that says so and can be written down."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    path = tmp_path / "m.hap"
    path.write_text(TINY.partition("cluster")[0])
    out = tmp_path / "plan.hap"
    guessed = hapdsl("plan", "--all-devices", path, "--set", "batch=8", "-o", out, "--json").object
    assert guessed["guessed"] is True
    cost = hapdsl("cost", out, "--json")
    assert cost.status == 0
    assert cost.object["sync_s"] == pytest.approx(guessed["sync_s"], rel=1e-4)
    assert "guessed" in hapdsl("plan", "--all-devices", path).err
    (tmp_path / "settings" / "hapdsl").mkdir(parents=True)
    (tmp_path / "settings" / "hapdsl" / "cluster.hap").write_text(TINY[TINY.index("cluster") :].replace("pair", "mine"))
    saved = hapdsl("plan", "--all-devices", path, "--json").object
    assert (saved["cluster"], saved["guessed"]) == ("mine", False)


def test_what_can_t_be_written_is_said_first(hapdsl: Run, model: Path, tmp_path: Path) -> None:
    for out in (tmp_path, tmp_path / "none" / "plan.hap"):
        found = hapdsl("plan", model, "-o", out, "--json")
        assert (found.status, found.codes) == (2, ["HAP852"])
    assert sorted(os.listdir(tmp_path)) == ["model.hap"]


def test_a_plan_that_fits_nowhere_is_answered_no(hapdsl: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.hap"
    path.write_text(TINY.replace("1 GiB", "1 KiB"))
    out = tmp_path / "plan.hap"
    found = hapdsl("plan", path, "-o", out, "--json")
    assert (found.status, found.codes) == (1, ["HAP601"])
    assert not out.exists()


def test_a_program_that_doesn_t_fit(hapdsl: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.hap"
    path.write_text(TINY.replace("1 GiB", "1 KiB") + PROGRAM)
    found = hapdsl("cost", path, "--json")
    assert (found.status, found.object["fits"]) == (1, False)
    assert "does not fit" in hapdsl("cost", path).out


def test_cost_on_another_cluster(hapdsl: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "slow.hap").write_text(
        TINY[TINY.index("cluster") :].replace("GFLOP/s", "MFLOP/s").replace("pair", "slow")
    )
    (tmp_path / "three.hap").write_text(TINY[TINY.index("cluster") :].replace("1 * slow", "2 * slow"))
    here = hapdsl("cost", tiny, "--json").object
    there = hapdsl("cost", tiny, "--on", tmp_path / "slow.hap", "--json").object
    assert there["cluster"] == "slow"
    assert there["sync_s"] > 10 * here["sync_s"]
    other = hapdsl("cost", tiny, "--on", tmp_path / "three.hap", "--json")
    assert (other.status, other.codes) == (2, ["HAP504"])
    spoken = hapdsl("cost", tiny)
    assert spoken.status == 0
    assert "all_reduce" in spoken.out
    assert "synchronous" in spoken.out


def test_a_sketch_has_no_cost(hapdsl: Run, tmp_path: Path) -> None:
    path = tmp_path / "sketch.hap"
    path.write_text(TINY + "program s for tiny on pair {\n    pin h @ S(0)\n    ...\n}\n")
    assert hapdsl("cost", path, "--json").codes == ["HAP584"]
    path.write_text(TINY)
    assert hapdsl("cost", path, "--json").codes == ["HAP580"]


def test_ctrl_c_keeps_the_best_so_far(
    hapdsl: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = Pairs.keep
    raised: list[bool] = []

    def interrupted(self: Any, *arguments: Any) -> None:
        keep(self, *arguments)
        if not raised:
            raised.append(True)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Pairs, "keep", interrupted)
    out = tmp_path / "plan.hap"
    found = hapdsl("plan", model, "-o", out, "--json")
    assert raised
    assert found.status == 130
    assert found.object["interrupted"] is True
    assert hapdsl("check", out).status == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# `hapdsl`, which says when it has found its first program.
AT_WORK = """
import sys
from hapdsl.cli import main
from hapdsl.search.pairs import Pairs

keep = Pairs.keep

def told(self, *arguments):
    keep(self, *arguments)
    print("at work", file=sys.stderr, flush=True)

Pairs.keep = told
sys.exit(main())
"""


def test_ctrl_c_from_outside() -> None:
    """In the middle of a search of many seconds: one object, no traceback, and 130."""
    file = PROGRAMS / "models" / "decoder.hap"
    command = [sys.executable, "-c", AT_WORK, "plan", str(file), "--cluster", "std/digits.hap", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=REPOSITORY)
    assert process.stderr is not None
    try:
        assert process.stderr.readline() == b"at work\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert json.loads(out)["interrupted"] is True


SKETCH = """
program mine for tiny(batch = 8) on pair {
    shares batch = [6, 2]
    h@R = relu(u@?)
    pin w2.grad @ S(1)
    ...
}
"""


def test_a_sketch_is_completed(hapdsl: Run, tmp_path: Path) -> None:
    file, out = tmp_path / "sketch.hap", tmp_path / "whole.hap"
    file.write_text(TINY + SKETCH, encoding="utf-8")
    found = hapdsl("plan", file, "--program", "mine", "-o", out, "--json")
    assert found.status == 0
    assert found.object["settings"]["batch"] == 8
    text = out.read_text(encoding="utf-8")
    assert re.search(r"h@R *= relu\(u@R\)", text)
    assert re.search(r"^ *shares batch += \[6, 2\]$", text, re.MULTILINE)
    assert any(line.split("=")[0].strip().startswith("w2.grad@S(1)") for line in text.split("\n"))
    assert hapdsl("check", out).status == 0


def test_a_sketch_brings_its_own_settings(hapdsl: Run, tmp_path: Path) -> None:
    file = tmp_path / "sketch.hap"
    file.write_text(TINY + SKETCH, encoding="utf-8")
    assert hapdsl("plan", file, "--program", "mine", "--set", "batch=4").status == 2


def test_what_cant_stand_together_is_named(hapdsl: Run, tmp_path: Path) -> None:
    file = tmp_path / "sketch.hap"
    lines = "    h@R = relu(u@R)\n    h@S(0) = relu(u@S(0))\n    ...\n"
    file.write_text(f"{TINY}program odd for tiny on pair {{\n{lines}}}\n", encoding="utf-8")
    found = hapdsl("plan", file, "--program", "odd", "--json")
    assert (found.status, found.codes) == (1, ["HAP603"])
    (said,) = found.object["diagnostics"]
    first = file.read_text(encoding="utf-8").split("\n").index("    h@R = relu(u@R)") + 1
    assert f"lines {first}, {first + 1}" in said["message"]


VIRTUAL = """
cluster lab {
    device quick { compute = 3 GFLOP/s, memory = 1 GiB, bandwidth = 8 GB/s }
    node box = 2 * quick over { bandwidth = 1 GB/s, latency = 1 us }
    network 2 * box virtual over { bandwidth = 0.1 GB/s, latency = 10 us }
}
"""


def test_nodes_as_virtual_devices(hapdsl: Run, tmp_path: Path) -> None:
    """Planned over nodes, written over nodes and devices; a person's program over nodes is expanded, priced and tried in numbers."""
    path, out = tmp_path / "m.hap", tmp_path / "plan.hap"
    path.write_text(TINY[: TINY.index("cluster")] + VIRTUAL)
    found = hapdsl("plan", path, "--set", "batch=4096", "-o", out, "--json").object
    assert "nodes as single devices" in found["bound_scope"]
    assert 0 < found["bound_s"] <= found["cost_s"]
    assert len(found["devices"]) == 4
    assert "mesh nodes = 2, devices = 2" in out.read_text()
    cost = hapdsl("cost", out, "--json").object
    assert cost["sync_s"] == pytest.approx(found["cost_s"])
    assert hapdsl("check", out, "--numeric").status == 0
    path.write_text(path.read_text() + PROGRAM.replace("on pair", "on lab"))
    over_nodes = hapdsl("cost", path, "--json").object
    assert "equal to one device" in hapdsl("check", path, "--numeric").out
    expanded = hapdsl("expand", path, "-o", out, "--json").object
    assert (expanded["mesh"], expanded["program"]) == ({"nodes": 2, "devices": 2}, "by_batch")
    assert hapdsl("cost", out, "--json").object["sync_s"] == pytest.approx(over_nodes["sync_s"])
    assert hapdsl("expand", path).out == out.read_text()


def test_expanding_what_has_no_nodes_changes_nothing(hapdsl: Run, tiny: Path, tmp_path: Path) -> None:
    found = hapdsl("expand", tiny, "--json").object
    assert found["mesh"] == {"devices": 2}
    assert hapdsl("expand", tmp_path / "none.hap", "--json").codes == ["HAP120"]
