"""What no search should choke on: numbers out of all bounds, graphs of odd shapes, wishes that can't be granted. Each is answered
correctly, or refused with a coded reason, in time, without a traceback or a warning on the terminal."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hapdsl.cli import main
from hapdsl.cost.evaluate import evaluate
from hapdsl.lang.diagnostics import HapError
from hapdsl.search.plan import Plan
from hapdsl.search.planner import plan
from hapdsl.workbench import Workbench
from tests.texts import object_in

from .examples import PROGRAMS
from .small import cluster, reread, training

Call = Callable[..., tuple[int, dict[str, object]]]

TINY = """
model tiny(batch = 16, d = 8, hidden = 12) {
    input x  : f32[batch, d]
    param w1 : f32[d, hidden] init normal(std = 0.5)
    param w2 : f32[hidden, d] init normal(std = 0.5)
    u = matmul(x, w1)
    h = relu(u)
    y = matmul(h, w2)
    loss = sum(y, [0, 1])
    train loss with adam(lr = 0.1)
}
"""


def machines(
    compute: str = "1 GFLOP/s", memory: str = "1 GiB", bandwidth: str = "1 GB/s", launch: str = "1 us", host: str = "2 * one",
    link: str = "bandwidth = 1 GB/s, latency = 1 us", more: str = "",
) -> str:  # fmt: skip
    device = f"device one {{ compute = {compute}, memory = {memory}, bandwidth = {bandwidth}, launch = {launch} }}"
    return f"cluster c {{\n    {device}\n    {more}\n    node host = {host} over {{ {link} }}\n}}\n"


@pytest.fixture
def call(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Call:
    """`hapdsl plan --json` on a text: its exit status, and its object. Whatever else reaches the terminal fails."""

    def run(text: str, *options: str) -> tuple[int, dict[str, object]]:
        path = tmp_path / "case.hap"
        path.write_text(text, encoding="utf-8")
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            status = main(["plan", str(path), "--json", "--time-limit", "20", *options])
        said = capfd.readouterr()
        assert not heard, [str(w.message) for w in heard]
        assert "Traceback" not in said.err and "Warning" not in said.err
        return status, object_in(said.out)

    return run


def codes(found: dict[str, object]) -> list[str]:
    diagnostics = found["diagnostics"]
    assert isinstance(diagnostics, list)
    return [d["code"] for d in diagnostics]


def planned(text: str, machine: str, train: bool = True, seconds: float = 20.0, **settings: int) -> Plan:
    """A plan through the API, proven again, priced again; a warning is an error."""
    graph, made = training(text, train, **settings), cluster(machine)
    started = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = plan(graph, made, time_limit=seconds)
    assert time.monotonic() - started < 2 * seconds + 10  # other work may hold this machine up
    again = reread(found.program, graph, len(made))
    assert again.ok and not again.sketch
    assert evaluate(again.program, made).sync_s == pytest.approx(found.cost_s, rel=1e-9)
    assert np.isfinite(found.cost_s) and 0 <= found.bound_s <= found.cost_s
    assert found.bound_any_shares_s is None or found.bound_any_shares_s <= found.cost_s * (1 + 1e-9)
    assert all(found.cost_s <= b.cost.sync_s * (1 + 1e-9) for b in found.baselines.values() if b is not None)
    return found


# -- numbers --------------------------------------------------------------------------

NO_CLUSTER = [
    (machines(compute="0 FLOP/s"), "HAP408"),
    (machines(compute="-1 FLOP/s"), "HAP408"),
    (machines(compute="1e30 FLOP/s"), "HAP408"),
    (machines(compute="1e400 FLOP/s"), "HAP111"),
    (machines(compute="1" + 400 * "0" + " FLOP/s"), "HAP111"),
    (machines(compute="inf FLOP/s"), "HAP101"),
    (machines(compute="nan FLOP/s"), "HAP101"),
    (machines(memory="1e30 B"), "HAP408"),
    (machines(bandwidth="1e30 B/s"), "HAP408"),
    (machines(launch="1e30 s"), "HAP408"),
    (machines(link="bandwidth = 1e30 B/s, latency = 1 us"), "HAP408"),
    (machines(link="bandwidth = 0 B/s, latency = 1 us"), "HAP408"),
    (machines(link="bandwidth = 1 GB/s, latency = 1e30 s"), "HAP408"),
    (machines(host="1e30 * one"), "HAP110"),
    (machines(host="1000000 * one"), "HAP412"),
    (machines(host="0 * one"), "HAP412"),
    (machines(more="measured all_reduce { 1 B = 1e30 s, 2 B = 1 s }"), "HAP408"),
]


@pytest.mark.parametrize(("text", "code"), NO_CLUSTER, ids=range(len(NO_CLUSTER)))
def test_numbers_that_no_cluster_has(call: Call, text: str, code: str) -> None:
    status, found = call(TINY + text)
    assert (status, set(codes(found))) == (2, {code})


def test_a_second_device_of_speed_zero(call: Call) -> None:
    still = "device two { compute = 0 FLOP/s, memory = 1 GiB, bandwidth = 1 GB/s }"
    status, found = call(TINY + machines(more=still, host="1 * one, 1 * two"))
    assert (status, codes(found)) == (2, ["HAP408"])


@pytest.mark.parametrize(
    ("setting", "status", "code"),
    [
        ("batch=0", 2, "HAP205"),
        ("batch=-3", 2, "HAP205"),
        ("batch=1e30", 2, "HAP851"),
        ("batch=4611686018427387904", 2, "HAP236"),
        ("batch=1000000000000000000", 2, "HAP236"),
        ("d=1000000000", 1, "HAP601"),
    ],
)
def test_sizes_that_no_model_has(call: Call, setting: str, status: int, code: str) -> None:
    found = call(TINY + machines(), "--set", setting)
    assert (found[0], codes(found[1])) == (status, [code])


@pytest.mark.parametrize(
    ("options", "code"),
    [(("--gap", "1e30"), "HAP850"), (("--gap", "nan"), "HAP850"), (("--time-limit", "-1"), "HAP850")],
)
def test_options_out_of_range(call: Call, options: tuple[str, str], code: str) -> None:
    status, found = call(TINY + machines(), *options)
    assert (status, codes(found)) == (2, [code])


def test_the_largest_and_the_smallest_numbers_a_cluster_may_have() -> None:
    largest = planned(
        TINY, machines("1e24 FLOP/s", "1e18 B", "1e21 B/s", "0 us", link="bandwidth = 1e21 B/s, latency = 0 us")
    )
    assert 0 < largest.cost_s < 1e-15
    smallest = planned(
        TINY, machines("1 FLOP/s", "1 GiB", "1 B/s", "3600 s", link="bandwidth = 1 B/s, latency = 3600 s")
    )
    assert smallest.cost_s > 3600 * 9  # nine calls that can't be left out, each launched


def test_a_device_that_is_no_use_gets_nothing() -> None:
    """1 FLOP/s beside 1e18: all is done by the fast one, as if it were alone but for the messages."""
    slow = "device two { compute = 1 FLOP/s, memory = 1 GiB, bandwidth = 1 GB/s, launch = 1 us }"
    both = planned(TINY, machines("1000 PFLOP/s", more=slow, host="1 * one, 1 * two"))
    alone = planned(TINY, machines("1000 PFLOP/s", host="1 * one"))
    assert alone.cost_s <= both.cost_s <= 2 * alone.cost_s
    by = both.program.layout.shares
    used = {
        both.program.graph.tensors[v.tensor].classes[p.dim]
        for i in both.program.instructions
        for v in i.outputs
        for p in v.placement
        if p.kind == "S"
    }
    assert used and all(by[c][(0,)][1] == 0 for c in used if c is not None)


def test_no_time_at_all(call: Call) -> None:
    status, found = call(TINY + machines(), "--time-limit", "0")
    assert status == 0 and found["cost_s"] is not None
    status, found = call(TINY + machines(), "--time-limit", "1e30")
    assert status == 0


# -- memory ---------------------------------------------------------------------------


def test_a_memory_that_nothing_fits(call: Call) -> None:
    """The answer names the device, the need, the limit, and what takes most."""
    status, found = call(TINY + machines(memory="1 KiB"))
    assert (status, codes(found)) == (1, ["HAP601"])
    with pytest.raises(HapError) as stop:
        plan(training(TINY), cluster(machines(memory="1 KiB")), time_limit=20)
    (said,) = stop.value.diagnostics
    assert "host.one.0" in said.message and "has 1.00 KiB" in said.message
    assert said.help is not None and "x@" in said.help


def test_a_memory_that_nothing_fits_and_no_time() -> None:
    """Deep, eight devices of 1 MiB: the answer comes without a program that fits, and with the code."""
    file = PROGRAMS / "models" / "gpt.hap"
    graph = Workbench(file).graph("gpt", {"layers": 6})
    made = cluster((PROGRAMS / "clusters" / "two_kinds.hap").read_text(encoding="utf-8").replace("16 GiB", "1 MiB"))
    started = time.monotonic()
    with pytest.raises(HapError) as stop:
        plan(graph, made, time_limit=1)
    assert stop.value.diagnostics[0].code == "HAP601"
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("short", [0, 1])
def test_a_memory_that_is_a_byte_too_small(short: int) -> None:
    """Two arrays of 4,000 bytes on one device: sizes that read alike are told in bytes."""
    text = "model one(n = 1000) {\n    input x : f32[n]\n    y = relu(x)\n    output y\n}\n"
    graph, made = training(text, train=False), cluster(machines(memory=f"{8000 - short} B", host="1 * one"))
    if not short:
        assert plan(graph, made).cost.memory_bytes.tolist() == [8000]
        return
    with pytest.raises(HapError) as stop:
        plan(graph, made)
    (said,) = stop.value.diagnostics
    assert said.code == "HAP601" and "needs 8,000 bytes, has 7,999 bytes" in said.message


# -- clusters and graphs of odd shapes ----------------------------------------------------


def test_one_device_alone() -> None:
    """What is sent costs nothing; the calls one after the other do: launches, and the slower of flops and bytes."""
    found = planned(TINY, machines(host="1 * one"))
    assert all(s.comm_s == 0 for s in found.cost.stages)
    seconds = 0.0
    for i in found.program.instructions:
        if i.node is not None:
            graph = found.program.graph
            moved = sum(graph.tensors[t].bytes for t in (*i.node.inputs, *i.node.outputs))
            seconds += max(float(np.max(i.node.instance.flops({}))), moved) / 1e9 + 1e-6
    assert found.cost_s == pytest.approx(seconds, rel=1e-12)
    assert found.gap == pytest.approx(0, abs=1e-9)


def test_one_call_alone() -> None:
    text = "model one(n = 8) {\n    input x : f32[n, n]\n    y = relu(x)\n    output y\n}\n"
    found = planned(text, machines(), train=False)
    assert found.cost_s == pytest.approx(1e-6 + 256e-9)  # half of x and of y at 1 GB/s
    whole = planned(text, machines(), train=False, n=1)
    assert whole.cost_s == pytest.approx(1e-6 + 8e-9)


def test_numbers_alone() -> None:
    """Nothing has a dim: no class, no shares, no baseline."""
    text = "model s(n = 1) {\n    input x : f32[]\n    param w : f32[]\n    y = mul(x, w)\n    train y with sgd(lr = 0.1)\n}\n"
    found = planned(text, machines())
    assert not any(found.baselines.values()) and not any(i.is_collective for i in found.program.instructions)


def test_no_call_at_all(call: Call) -> None:
    status, found = call("model none(n = 8) {\n    input x : f32[n]\n    output x\n}\n" + machines())
    assert (status, codes(found)) == (1, ["HAP602"])


def branches(count: int) -> str:
    """Products side by side, added up."""
    lines = [f"    param w{i} : f32[d, d]" for i in range(count)] + [
        f"    h{i} = relu(matmul(x, w{i}))" for i in range(count)
    ]
    lines += ["    s1 = add(h0, h1)", *(f"    s{i} = add(s{i - 1}, h{i})" for i in range(2, count))]
    body = "\n".join(
        [
            "    input x : f32[batch, d]",
            *lines,
            f"    loss = sum(s{count - 1}, [0, 1])",
            "    train loss with adam(lr = 0.1)",
        ]
    )
    return f"model wide(batch = 32, d = 16) {{\n{body}\n}}\n"


def dense(blocks: int) -> str:
    """Every block reads all that came before."""
    lines = [f"    param w{i} : f32[d, d]" for i in range(1, blocks + 1)] + ["    h0 = neg(x)"]
    for i in range(1, blocks + 1):
        lines += [f"    a{i}_0 = add(x, h0)", *(f"    a{i}_{j} = add(a{i}_{j - 1}, h{j})" for j in range(1, i))]
        lines.append(f"    h{i} = relu(matmul(a{i}_{i - 1}, w{i}))")
    body = "\n".join(
        [
            "    input x : f32[batch, d]",
            *lines,
            f"    loss = sum(h{blocks}, [0, 1])",
            "    train loss with sgd(lr = 0.1)",
        ]
    )
    return f"model dense(batch = 32, d = 16) {{\n{body}\n}}\n"


def test_twenty_branches() -> None:
    found = planned(branches(20), machines())
    assert found.gap <= 0.01


def test_dense_skips() -> None:
    """Too wide for tables: the mixed-integer program bounds it."""
    found = planned(dense(9), machines())
    assert found.gap <= 0.05
    assert all(found.baselines.values()), "none is left out for its width"


def test_dense_skips_in_a_memory_that_nothing_fits() -> None:
    """No tables say what memory costs; that nothing fits is found out all the same."""
    with pytest.raises(HapError) as stop:
        plan(training(dense(8)), cluster(machines(memory="2 KiB")), time_limit=2)
    assert stop.value.diagnostics[0].code == "HAP601"


# -- wishes ---------------------------------------------------------------------------

SKETCHES = [
    ("    pin w1.m @ S(0)\n    pin w1.m @ S(1)", 1, "HAP603"),
    ("    pin w1.new @ S(0)\n    pin w1.new @ S(1)\n    pin w1.new @ R", 1, "HAP603"),
    ("    pin w1.m @ P", 1, "HAP605"),
    ("    forward { u@S(1) = matmul(x@R, w1@S(1))\n    u@R = all_reduce(u@P) }", 1, "HAP603"),
    ("    forward { w1@S(0) = param() }\n    update { w1.new@S(1) = slice(w1.new@R) }", 1, "HAP603"),
    ("    forward { w1@R = param()\n    w1@S(0) = param() }", 2, "HAP552"),
    ("    pin x @ P", 1, "HAP605"),
    ("    pin loss.grad @ P", 1, "HAP605"),
    ("    pin u @ S(7)", 2, "HAP521"),
    ("    shares batch = [0, 0]", 2, "HAP505"),
    ("    shares batch = [1e30, 1]", 2, "HAP504"),
    ("    shares batch = [99999999999999999999, 1]", 2, "HAP111"),
]


@pytest.mark.parametrize(("body", "status", "code"), SKETCHES, ids=range(len(SKETCHES)))
def test_wishes_that_can_not_be_granted(call: Call, body: str, status: int, code: str) -> None:
    found = call(f"{TINY}{machines()}program p for tiny on c {{\n{body}\n    ...\n}}\n", "--program", "p")
    assert (found[0], codes(found[1])) == (status, [code])


def test_pins_for_one_tensor_in_two_placements_are_both_granted(call: Call) -> None:
    text = f"{TINY}{machines()}program p for tiny on c {{\n    pin u @ S(0)\n    pin u @ S(1)\n    ...\n}}\n"
    status, found = call(text, "--program", "p")
    assert status == 0 and "u@S(0)" in str(found["text"]) and "u@S(1)" in str(found["text"])
