"""Parts of a shared message between virtual devices add up to no more than the message takes, wherever each is largest."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.program import Instruction, Value
from hapdsl.search.anyshares import bound_any_shares, bound_under
from hapdsl.search.baselines import data_parallel
from hapdsl.search.conversions import Conversions
from hapdsl.search.inside import pricer_of
from hapdsl.search.messages import SHARED
from hapdsl.search.schedule import Scheduler
from hapdsl.search.shares import layout_of, proportional
from hapdsl.search.space import Space
from hapdsl.search.structure import Structure
from hapdsl.theory.placements import P, Placement, R, S
from hapdsl.virtual import spread

from .small import cluster, everything, training

MODEL = """model net(batch = 64, d = 64, hidden = 64) {
    input x : f32[batch, d]
    param a : f32[d, hidden]
    param b : f32[hidden, d]
    loss = sum(matmul(relu(matmul(x, a)), b), [0, 1])
    train loss with sgd(lr = 0.1)
}"""
MACHINES = """cluster pair {
    device v { compute = 10 TFLOP/s, memory = 16 GiB, bandwidth = 500 GB/s }
    node host = 2 * v over { bandwidth = 50 GB/s, latency = 1 us }
    network 2 * host over { bandwidth = 4 GB/s, latency = 1 us }
}"""


@pytest.mark.parametrize("cut", [32, 48, 60])
@pytest.mark.parametrize(
    ("kind", "source", "target"), [("reduce_scatter", P, S(0)), ("all_to_all", S(0), S(1)), ("all_gather", S(0), R)]
)
def test_parts_of_a_message_are_no_more_than_the_whole(
    kind: str, source: Placement, target: Placement, cut: int
) -> None:
    """One node has most of `d`, the other most of `hidden`; `a` is cut by the one, `b` by the other. Where both are even nothing is lost but latencies."""
    graph, machines = training(MODEL), cluster(MACHINES).outer()
    structure = Structure(graph, None, tuple(SHARED))
    shares = {c: np.array([n.units // 2, n.units - n.units // 2]) for c, n in graph.classes.items()}
    for c, mine in zip(graph.tensors["a.grad"].classes, (cut, 64 - cut), strict=True):
        assert c is not None
        shares[c] = np.array([mine, 64 - mine])
    layout = layout_of(shares, len(machines))
    pricer = pricer_of(graph, layout, machines, structure.numbers)
    conversions = Conversions(structure, layout, machines, pricer)
    names = ("a.grad", "b.grad")
    parts = sum(conversions.seconds(n, source, target) for n in names)
    before, after = (tuple(Value(n, (p,)) for n in names) for p in (source, target))
    whole = float(pricer.price(Instruction(kind, before, after)).seconds.max())
    latencies = 4e-6
    assert whole - latencies <= parts <= whole


# What was measured is far from the formulas: all_reduces are slow to begin, all others are quicker than a latency of the network.
CURVES = """
    measured all_reduce_ring { 4 B = 1 s, 1 MB = 1.1 s }
    measured reduce_scatter  { 4 B = 2 us, 1 MB = 3 us }
    measured all_gather      { 4 B = 2 us, 1 KB = 2 us, 1 MB = 3 us }
    measured all_to_all      { 4 B = 1 us, 1 KB = 4 us, 1 MB = 5 us }
"""
SINGLE = MACHINES.replace("2 * v over { bandwidth = 50 GB/s, latency = 1 us }", "1 * v").replace("= 1 us", "= 50 us")
MEASURED = {"among nodes": SINGLE, "within a node": MACHINES.replace("2 * host", "1 * host virtual")}


@pytest.mark.parametrize("where", MEASURED)
@pytest.mark.parametrize(("shared", "source", "target"), [
    ("all_reduce of gradients", P, R),
    ("reduce_scatter of gradients", P, S(0)),
    ("all_gather of parameters", S(0), R),
    ("all_to_all of gradients", S(0), S(1)),
])  # fmt: skip
def test_nor_where_messages_were_measured(shared: str, source: Placement, target: Placement, where: str) -> None:
    """Nodes of one device each, and a node by itself: the curves of all devices hold. A message costs no less than what a bound counts, which is its beginning once."""
    graph, machines = training(MODEL), cluster(MEASURED[where].rstrip("}") + CURVES + "}").outer()
    structure = Structure(graph, None, tuple(SHARED))
    layout = layout_of(proportional(graph, np.ones(len(machines))), len(machines))
    pricer = pricer_of(graph, layout, machines, structure.numbers)
    conversions = Conversions(structure, layout, machines, pricer)
    names = ("a.grad", "b.grad") if "gradients" in shared else ("a", "b")
    parts = sum(conversions.seconds(n, source, target) for n in names)
    before, after = (tuple(Value(n, (p,)) for n in names) for p in (source, target))
    (kind,) = SHARED[shared][1]
    whole = float(pricer.price(Instruction(kind, before, after)).seconds.max())
    assert conversions.split.floor(shared) + parts <= whole * (1 + 1e-9)


FAST = "{ compute = 10 TFLOP/s, memory = 16 GiB, bandwidth = 500 GB/s, launch = LAUNCH }"
BY_OPERATOR = "\n".join(
    f"measured {op} on {kind} {{ 1 FLOP = 1 us, 1 GFLOP = 200 us }}"
    for op in ("matmul", "relu", "sum", "spread", "sgd")
    for kind in "vu"
)
LAUNCHES = {
    "measured": f"device v {FAST}; device u {FAST}\n{BY_OPERATOR}".replace("LAUNCH", "50 us"),
    "uneven": f"device v {FAST}; device u {FAST.replace('0 T', ' T')}".replace("LAUNCH", "1 us", 1).replace("LAUNCH", "50 us"),
}  # fmt: skip


@pytest.mark.parametrize("which", LAUNCHES)
def test_bounds_from_outside_hold_for_what_is_done_within(which: str) -> None:
    """Launches that are part of what was measured, or those of a device that has nothing to do: one sample goes to the fast device of a node."""
    graph = training(MODEL, batch=2)
    whole = cluster(f"""cluster pair {{
    {LAUNCHES[which]}
    node host = 1 * v, 1 * u over {{ bandwidth = 50 GB/s, latency = 0 us }}
    network 2 * host virtual over {{ bandwidth = 50 GB/s, latency = 0 us }}
}}""")
    machines, cost = whole.outer(), []
    layout = layout_of(proportional(graph, np.ones(2)), 2)
    space = Space(graph, layout, machines, data_parallel(graph, False))
    scheduler = Scheduler(space.conversions)
    for a in itertools.islice(everything(space.graph), 40):
        cost.append(evaluate(spread(scheduler.program(space.choice(a)), whole), whole).sync_s)
    under, every = bound_under(graph, layout, machines), bound_any_shares(graph, layout, machines)
    assert every is not None and 0 < every <= min(cost) and 0 < under <= min(cost)


def test_tensors_of_one_size_lie_by_the_batch_that_they_have() -> None:
    """Activations and gradients of parameters, 64 by 64 both: what one costs doesn't depend on which was priced before."""
    graph, machines = training(MODEL), cluster(MACHINES).outer()
    layout = layout_of(proportional(graph, np.ones(2)), 2)
    sums = [Instruction("all_reduce", (Value(n, (P,)),), (Value(n, (R,)),)) for n in ("matmul.1", "a.grad")]
    assert graph.tensors["matmul.1"].shape == graph.tensors["a.grad"].shape
    first, second = (pricer_of(graph, layout, machines) for _ in range(2))
    seconds = [float(first.price(i).seconds.max()) for i in sums]
    assert seconds[0] < seconds[1]
    assert [float(second.price(i).seconds.max()) for i in reversed(sums)] == seconds[::-1]
