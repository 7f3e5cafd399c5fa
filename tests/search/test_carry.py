"""Kept, made again, recomputed: every way through a small space is priced, proven and run; deep models that don't fit otherwise do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.training import TrainingGraph
from hapdsl.search.carry import AGAIN, RECOMPUTED
from hapdsl.search.eliminate import eliminate
from hapdsl.search.plan import Plan
from hapdsl.search.planner import plan
from hapdsl.search.restriction import Restriction
from hapdsl.search.schedule import Scheduler
from hapdsl.search.shares import layout_of
from hapdsl.search.space import Space
from hapdsl.search.structure import Structure
from hapdsl.theory.placements import R
from tests.programs.helpers import compare
from tests.search.planned import deep

from .small import CLUSTERS, cluster, cuts, everything, reread, thinned, training

CHAIN = """
model chain(batch = 12, d = 6, hidden = 8) {
    input x  : f32[batch, d]
    param w1 : f32[d, hidden]
    param w2 : f32[hidden, d]
    h = matmul(x, w1)
    a = gelu(h)
    y = matmul(a, w2)
    s = mul(y, y)
    loss = sum(s, [0, 1])
    train loss with sgd(lr = 0.1)
}
"""
# A rate that is computed, of which updates alone need the sum: it travels as gradients do.
RATE = CHAIN.replace(
    "    h = ", "    frozen r : f32[d]\n    rate = scale(sum(r, dims = 0), by = 0.1)\n    h = "
).replace("lr = 0.1", "lr = rate")


def carrying(graph: TrainingGraph, machines: str, cut: str, seed: int) -> tuple[Space, Scheduler]:
    made = cluster(CLUSTERS[machines])
    structure = Structure(graph, thinned(graph, np.random.default_rng(seed), 0.5), (), carry=True)
    layout = layout_of(cuts(graph, made)[cut], len(made))
    space = Space(graph, layout, made, None, "sync", structure)
    return space, Scheduler(space.conversions)


@pytest.mark.parametrize(
    ("machines", "cut", "seed", "model"),
    [
        ("pair", "even", 0, CHAIN),
        ("latency", "by speed", 1, CHAIN),
        ("three", "lopsided", 2, CHAIN),
        ("network", "zero", 3, CHAIN),
        ("pair", "even", 4, RATE),
    ],
)
def test_every_way_is_priced_proven_and_run(machines: str, cut: str, seed: int, model: str) -> None:
    graph = training(model)
    space, scheduler = carrying(graph, machines, cut, seed)
    # Neighbours leave alone what comes first, so a few of each of several walks.
    walks = (everything(space.graph, np.random.default_rng([seed, n])) for n in range(20))
    every = [a for walk in walks for a in itertools.islice(walk, 20)]

    def bound(assignment: tuple[int, ...]) -> float:
        return float(space.graph.plain(assignment) + space.graph.component_sums(assignment).max())

    for a in every:  # what nothing comes back to is kept, or made again, by other assignments of the same program
        assert bound(space.structure.assignment(space.choice(a))) <= bound(a) * (1 + 1e-9)
    found = {space.choice(a).key(): (a, space.choice(a)) for a in every if not space.structure.spare(a)}
    assert len(found) > 100
    ways: set[str] = set()
    for number, (assignment, choice) in enumerate(found.values()):
        assert bound(assignment) <= scheduler.seconds(choice, "sync") * (1 + 1e-9)
        assert space.structure.assignment(choice) == assignment
        ways |= set(choice.carry.values())
        if number % 20 == 0:
            checked = reread(scheduler.program(choice), graph, len(space.cluster))
            assert checked.ok and not checked.sketch, [d.message for d in checked.diagnostics.errors]
            compare(checked.program, graph, torch.float64, 1e-9, count=1)
    assert ways == {AGAIN, RECOMPUTED}


@pytest.mark.parametrize("name", ["h", "a", "w1"])
@pytest.mark.parametrize("carry", [False, True])
def test_what_nothing_is_left_for_is_named(name: str, carry: bool) -> None:
    """A call that might run twice, or a parameter that might be gathered twice, among them."""
    nothing = Restriction(lambda node, rule: name not in node.outputs, lambda param, placement: param != name)
    structure = Structure(training(CHAIN), nothing, (), carry=carry)
    assert structure.impossible == [name]
    assert not eliminate(structure.base).feasible


def tight(part: float, roomy: Plan, batch: int) -> Plan:
    """The same model where a device has only a part of the memory that its fastest plan takes."""
    memory = int(part * float(roomy.cost.memory_bytes.max()))
    made = cluster(f"""cluster tight {{
        device d {{ compute = 9 TFLOP/s, memory = {memory} B, bandwidth = 900 GB/s }}
        node host = 4 * d over {{ bandwidth = 100 GB/s, latency = 1 us }} }}""")
    return plan(training(deep(8), batch=batch), made, baselines=False)


def test_activations_that_do_not_fit_are_recomputed() -> None:
    """A wide batch over small layers: memory is all activations, and products cost more to repeat than what stands between them."""
    batch = 65536
    graph = training(deep(8), batch=batch)
    made = cluster("""cluster roomy {
        device d { compute = 9 TFLOP/s, memory = 16 GiB, bandwidth = 900 GB/s }
        node host = 4 * d over { bandwidth = 100 GB/s, latency = 1 us } }""")
    roomy = plan(graph, made, baselines=False)
    before = 0.0
    for part in (0.9, 0.75):
        found = tight(part, roomy, batch)
        assert found.cost.fits
        checked = reread(found.program, graph, 4)
        assert checked.ok and not checked.sketch
        again = [
            i for i in checked.program.instructions if i.node is not None and i.node.section == "forward" != i.section
        ]
        assert again, "nothing is recomputed"
        assert found.cost_s >= before
        assert roomy.bound_s <= found.cost_s <= 1.5 * roomy.cost_s
        before = found.cost_s


def test_parameters_are_gathered_for_each_pass() -> None:
    """Large layers on a small batch, where no device can hold all of them whole: FSDP, by the search itself."""
    graph = training(deep(8), batch=64, d=1024)
    whole = sum(t.bytes for t in graph.of_kind("param"))
    made = cluster(f"""cluster tight {{
        device d {{ compute = 9 GFLOP/s, memory = {int(0.9 * whole)} B, bandwidth = 900 GB/s }}
        node host = 4 * d over {{ bandwidth = 100 GB/s, latency = 1 us }} }}""")
    found = plan(graph, made, baselines=False)
    assert found.cost.fits and reread(found.program, graph, 4).ok


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_what_updates_write_beside_the_old_values_is_counted(dtype: str) -> None:
    """All that is held is held whole, and updated whole: the new values are written over the old ones, but for gradients in f16, which may turn out
    infinite. What is frozen has no new value."""
    graph = training(
        """
model kept(batch = 12, d = 6) {
    input x  : f32[batch, d]
    frozen f : f32[d, d]
    param w  : f32[d, d]
    param s  : f32[]
    y = mul(matmul(matmul(x, f), w), s)
    loss = sum(mul(y, y), [0, 1])
    train loss with sgd(lr = 0.1)
}
""".replace("f32", dtype)
    )
    made = cluster(CLUSTERS["pair"])
    whole = Restriction(
        lambda node, rule: node.section != "update" or rule.index is None, lambda name, placement: placement == R
    )
    layout = layout_of(cuts(graph, made)["even"], len(made))
    space = Space(graph, layout, made, whole, memory=True)
    bytes_, scheduler = {"f32": 4, "f16": 2}[dtype], Scheduler(space.conversions)
    old, new = (36 + 36 + 1) * bytes_, (36 + 1) * bytes_
    for a in itertools.islice(everything(space.graph, np.random.default_rng(3)), 8):
        held = (space.graph.component_sums(a)[space.held.start :].reshape(-1, len(space.groups)) + 1) * 2**30
        assert held[-1] == pytest.approx([old + new * (dtype == "f16")] * 2)
        peak = evaluate(scheduler.program(space.choice(a)), made).memory_bytes
        assert (held <= peak[[g[0] for g in space.groups]] + 1e-3).all()
