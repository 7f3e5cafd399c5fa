"""What a run measures beside what was predicted: traces, their seconds, and clusters corrected by them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from hapdsl.cli import main
from hapdsl.cluster import build
from hapdsl.cluster.calibrate import calibrate
from hapdsl.cost import evaluate
from hapdsl.lang import nodes
from hapdsl.lang.print import to_text
from hapdsl.run.observed import calls, happened, hidden, messages, rows, seconds, trace_text
from hapdsl.run.tracing import Traces, last
from hapdsl.workbench import Workbench
from tests.texts import PROGRAM, PROGRAMS, TINY

ZERO = PROGRAMS / "plans" / "mlp_zero.hap"
TRUTH = """cluster truth {
    device fast   { compute = 9 GFLOP/s, memory = 2 GiB, bandwidth = 3 GB/s, launch = 25 us }
    device middle { compute = 3 GFLOP/s, memory = 2 GiB, bandwidth = 1 GB/s, launch = 50 us }
    device slow   { compute = 1 GFLOP/s, memory = 2 GiB, bandwidth = 900 MB/s, launch = 5 us }
    node host = 1 * fast, 1 * middle, 2 * slow over { bandwidth = 0.4 GB/s, latency = 2 ms }
}
"""


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return Workbench(ZERO)


def test_a_cluster_corrected_by_another_one_prices_like_it(bench: Workbench) -> None:
    """What `truth` would take is what was measured: of calls and messages of this program nothing is off any more, twice in a row."""
    tree = bench.program()
    program = bench.proven(tree).program
    block, cluster = bench.cluster_block("digits"), bench.cluster("digits")
    other = Workbench("truth.hap", TRUTH)
    truth = evaluate(program, other.cluster())
    measured = np.stack(truth.per_instruction_s)
    for _ in range(2):
        cost = evaluate(program, cluster)
        block, changes = calibrate(
            block, cluster, calls(program, cluster, cost, measured), messages(program, cluster, cost, measured)
        )
        text = to_text(nodes.File((block,)))
        again = Workbench("again.hap", text)
        block, cluster = again.cluster_block(), again.cluster()
        found = evaluate(program, cluster)
        compute = [k for k, i in enumerate(program.instructions) if i.node is not None]
        for k in compute:
            assert found.per_instruction_s[k] == pytest.approx(measured[k], rel=0.03), program.instructions[k]
        assert found.sync_s == pytest.approx(truth.sync_s, rel=0.1)
    assert len(changes) == len({c.what for c in changes})
    assert build(block).devices[2].flops["f32"] >= 1e9


def test_what_calls_took_is_laid_beside_whole_tiles() -> None:
    """Four channels cost a device that computes eight at a time as much as eight do, twelve as much as sixteen: tables are asked at that, and corrected
    at that. By hand: 2 x 8 x 16 x 3 x 3 x 4 x 4 x 2 images."""
    bench = Workbench(
        "m.hap",
        """model m(batch = 2) {
    input x : f32[batch, 4, 4, 4]
    param w : f32[12, 4, 3, 3]
    y = conv2d(x, w, pad = 1)
    output y
}
program p for m on one {
    forward {
        x@R = input()
        w@R = param()
        y@R = conv2d(x@R, w@R, pad = 1)
    }
}
cluster one {
    device cpu { compute = 1 GFLOP/s, memory = 1 GiB, bandwidth = 1 GB/s, tile = { conv2d = 8 } }
    node host = 2 * cpu over { bandwidth = 1 GB/s }
}
""",
    )
    program, cluster = bench.proven(bench.program()).program, bench.cluster()
    cost = evaluate(program, cluster)
    found = list(calls(program, cluster, cost, np.stack(cost.per_instruction_s)))
    assert [(c.device, c.flops) for c in found] == [(0, 2.0 * 8 * 16 * 9 * 16 * 2), (1, 2.0 * 8 * 16 * 9 * 16 * 2)]


def test_seconds_are_read_off_stamps() -> None:
    """Two ranks, one load, a message and a product, by hand: the second rank is late, and unpacks for a second."""
    bench = Workbench(
        "m.hap",
        """model m(batch = 4, d = 6) {
    input x : f32[batch, d]
    param w : f32[d, d]
    y = matmul(x, w)
    output y
}
program p for m {
    shares batch = [2, 2]
    shares d     = [3, 3]
    forward {
        x@S(0) = input()
        w@S(0) = param()
        w@R    = all_gather(w@S(0))
        y@S(0) = matmul(x@S(0), w@R)
    }
}
""",
    )
    program = bench.proven(bench.program()).program
    events = (("load", 0, 0), ("load", 1, 0), ("start", 2, 0), ("finish", 2, 0), ("compute", 3, 0))
    stamps = np.zeros((1, 5, 2, 3))
    stamps[0, :, 0, :2] = [(0, 1), (1, 2), (2, 3), (3, 12), (12, 15)]
    stamps[0, :, 1, :2] = [(0, 4), (4, 5), (5, 6), (6, 13), (13, 18)]
    stamps[0, 2, :, 2] = [10, 12]
    traces = Traces((7,), events, stamps)
    found = seconds(program, traces)
    # from 5, when the second rank has started it, to 12; the first rank unpacks from 10 to 12
    assert found.tolist() == [[1, 4], [1, 1], [9, 9], [3, 5]]
    assert [(r.kind, r.measured_s) for r in rows(program, None, found)] == [
        ("all_gather padded", 9),
        ("matmul", 5),
        ("input", 4),
        ("param", 1),
    ]
    assert [len(step) for step in happened(program, traces)] == [5]


def test_what_a_device_has_no_part_of_is_nobody_s_time() -> None:
    """It is in no trace, and corrects no table; what every device does for itself counts on each."""
    bench = Workbench("t.hap", TINY + PROGRAM.replace("[12, 4]", "[16, 0]"))
    program, cluster = bench.proven(bench.program()).program, bench.cluster()
    count = len(program.instructions)
    found = list(calls(program, cluster, evaluate(program, cluster), np.ones((count, 2))))
    by_op = {op: sorted(c.device for c in found if c.op == op) for op in {c.op for c in found}}
    assert by_op.pop("sgd") == [0, 0, 1, 1] and set(by_op) > {"matmul", "relu", "cross_entropy"}
    assert {d for devices in by_op.values() for d in devices} == {0}
    (relu,) = (k for k, i in enumerate(program.instructions) if i.op == "relu")
    stamps = np.zeros((1, 2, 2, 3))
    stamps[0, :, 0, :2] = [(0, 1), (1, 3)]
    stamps[0, :, 1, :2] = [(0, 2), (2, 2)]
    traces = Traces((7,), (("load", 0, 0), ("compute", relu, 0)), stamps)
    events = [e for e in json.loads(trace_text(program, traces))["traceEvents"] if e["ph"] == "X"]
    assert [(e["pid"], e["args"]["instruction"], e["ts"], e["dur"]) for e in events] == [
        (0, 0, 0, 1e6), (1, 0, 0, 2e6), (0, relu, 1e6, 2e6),
    ]  # fmt: skip


def test_what_is_computed_beside_a_tree_is_not_in_its_seconds() -> None:
    """Two ranks and a message of which only the finish knows, with nine seconds of computing between: it counts from its finish, and says nothing
    about its table. With nothing between it counts from its start, and does."""
    bench = Workbench(
        "m.hap",
        """model m(batch = 4, d = 6) {
    input x : f32[batch, d]
    param w : f32[d, d]
    y = matmul(x, w)
    z = relu(y)
    output y
    output z
}
program p for m {
    shares batch = [2, 2]
    shares d     = [3, 3]
    forward {
        x@S(1) = input()
        w@S(0) = param()
        y@P    = matmul(x@S(1), w@S(0))
        y@R    = all_reduce(y@P, method = tree)
        z@R    = relu(y@R)
    }
}
""",
    )
    program = bench.proven(bench.program()).program
    start, compute, finish = ("start", 3, 0), ("compute", 2, 0), ("finish", 3, 0)
    stamps = np.zeros((1, 3, 2, 3))
    stamps[0, :, 0, :2] = [(2, 3), (3, 12), (12, 15)]
    stamps[0, :, 1, :2] = [(2, 4), (4, 11), (11, 15)]
    beside = Traces((7,), (start, compute, finish), stamps)
    assert seconds(program, beside)[3].tolist() == [3, 3]
    assert hidden(program, beside) == {3}
    behind = Traces((7,), (compute, start, finish), stamps)
    assert seconds(program, behind)[3].tolist() == [11, 11]  # the second rank starts it at 4
    assert hidden(program, behind) == frozenset()
    cluster = Workbench("truth.hap", TRUTH.replace("1 * fast, 1 * middle, 2 * slow", "2 * fast")).cluster()
    sent = [
        messages(program, cluster, evaluate(program, cluster), np.ones((5, 2)), hidden(program, t))
        for t in (beside, behind)
    ]
    assert [len(list(each)) for each in sent] == [0, 1]


def test_the_last_steps_are_traced() -> None:
    assert (last(1, 10), last(1, 4), last(1, 1), last(8, 9)) == (range(6, 11), range(3, 5), range(1, 2), range(9, 10))


def test_a_run_writes_its_trace_and_a_better_cluster(
    bench: Workbench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, better = tmp_path / "trace.json", tmp_path / "better.hap"
    assert main(["run", str(ZERO), "--steps", "4", "--trace", str(trace), "--calibrate", str(better), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    program = bench.proven(bench.program()).program
    cost = bench.cost(bench.program())[2]
    by_kind = {row["kind"]: row for row in told["instructions"]}
    assert by_kind["all_gather grouped"]["count"] == 3
    predicted = sum(
        float(cost.per_instruction_s[k].max()) for k, i in enumerate(program.instructions) if i.op == "matmul"
    )
    assert by_kind["matmul"]["predicted_s"] == pytest.approx(predicted)
    assert all(row["measured_s"] > 0 for row in told["instructions"])
    events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    steps = {e["args"]["step"] for e in events}
    assert steps == {3, 4}
    ran = [i for i in program.instructions if i.op != "free"]
    for d in range(4):
        own = [e for e in events if e["pid"] == d and e["cat"] != "wait"]
        assert len(own) == len(ran) * len(steps)
        compute = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["pid"] == d and e["tid"] == 0)
        assert all(end <= start + 1e-3 for (_, end), (start, _) in pairwise(compute))
    for number in {e["args"]["instruction"] for e in events if e["cat"] == "collective"}:
        for step in steps:
            same = [
                e
                for e in events
                if e["args"]["instruction"] == number and e["args"]["step"] == step and e["cat"] == "collective"
            ]
            # Nobody has it before all have begun.
            assert max(e["ts"] for e in same) <= min(e["ts"] + e["dur"] for e in same)
    found = Workbench(better)
    assert {"all_gather_grouped", "reduce_scatter_padded"} <= set(found.cluster().measured)
    assert "matmul" in found.cluster().devices[3].curves


@pytest.mark.parametrize(
    ("option", "place", "code"),
    [("--trace", "none/t.json", "HAP852"), ("--calibrate", ".", "HAP852"), ("--calibrate", str(ZERO), "HAP852")],
)
def test_a_place_that_can_t_be_written_is_said_before_the_run(
    option: str, place: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(ZERO), option, place, "--json"]) == 2
    assert [d["code"] for d in json.loads(capsys.readouterr().out)["diagnostics"]] == [code]


def test_without_a_cluster_there_is_nothing_to_correct(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        ZERO.read_text(encoding="utf-8")
        .replace("../", "std/")
        .replace("clusters/", "")
        .replace("models/", "")
        .replace(" on digits", "")
    )
    (tmp_path / "p.hap").write_text(text, encoding="utf-8")
    assert main(["run", str(tmp_path / "p.hap"), "--calibrate", str(tmp_path / "c.hap"), "--json"]) == 2
    assert [d["code"] for d in json.loads(capsys.readouterr().out)["diagnostics"]] == ["HAP745"]
