"""Bounds that hold beyond one space: for all shares, with several dtypes, with measured messages."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hapdsl.cluster.hardware import Curve
from hapdsl.search.anyshares import bound_any_shares
from hapdsl.search.astar import Limits, best_first
from hapdsl.search.messages import SHARED, Split
from hapdsl.search.prices import cutting_planes
from hapdsl.search.shares import Shares, layout_of
from hapdsl.search.space import Space

from .small import CLUSTERS, MODELS, Tried, cluster, cuts, everything, training

TWO_DTYPES = """
model mixed(rows = 8, columns = 8, d = 64, out = 64) {
    input a : f32[rows, d]
    input b : f16[columns, d]
    param v : f32[d, out]
    param w : f16[d, out]
    y = matmul(a, v)
    z = matmul(b, w)
    output y
    output z
}
"""
CROSSED = """
cluster crossed {
    device left  { compute = { f32 = 100 MFLOP/s, f16 = 10 MFLOP/s }, memory = 1 GiB, bandwidth = 100 GB/s }
    device right { compute = { f32 = 10 MFLOP/s, f16 = 100 MFLOP/s }, memory = 1 GiB, bandwidth = 100 GB/s }
    node host = 1 * left, 1 * right over { bandwidth = 10 GB/s, latency = 0 us }
}
"""


def cheapest(tried: Tried) -> float:
    """The best true cost that a short search finds: an upper bound of the least."""
    pricing = cutting_planes(tried.space.graph)
    assert pricing.elimination is not None
    return best_first(pricing.elimination, tried.seconds, 0.0, Limits(leaves=30)).cost


def grid(units: int, devices: int) -> list[list[int]]:
    every = itertools.product(range(units + 1), repeat=devices)
    return [list(s) for s in every if sum(s) == units]


def test_each_dtype_has_its_own_fast_device() -> None:
    """What is cut for the fast device of each dtype overlaps in one stage: the sum of each at its best speed is no bound."""
    graph, made = training(TWO_DTYPES, train=False), cluster(CROSSED)
    assert {"rows", "columns"} <= set(graph.classes)
    other = {c: np.array([k.units, 0]) for c, k in graph.classes.items()}
    bound = bound_any_shares(graph, layout_of(other, 2), made)
    assert bound is not None
    costs = [
        cheapest(Tried(graph, made, {**other, "rows": np.array([r, 8 - r]), "columns": np.array([c, 8 - c])}))
        for r, c in ((8, 0), (4, 4), (7, 1), (0, 8))
    ]
    flops = 2 * 8 * 64 * 64
    assert min(costs) == pytest.approx(flops / 100e6, rel=1e-3)  # side by side
    assert 0 < bound <= min(costs)
    assert 2 * flops / 110e6 > min(costs), "this is what prices per dtype would claim"


@pytest.mark.parametrize("machines", CLUSTERS)
@pytest.mark.parametrize("model", MODELS)
def test_no_cut_is_below_the_bound_for_all_cuts(model: str, machines: str) -> None:
    graph, made = training(MODELS[model]), cluster(CLUSTERS[machines])
    every = cuts(graph, made)
    bound = bound_any_shares(graph, layout_of(every["even"], len(made)), made)
    assert bound is not None and bound > 0
    rng = np.random.default_rng(1)
    tried: list[Shares] = [every["by speed"], every["zero"]]
    tried += [{c: rng.multinomial(k.units, rng.dirichlet(np.ones(len(made)))) for c, k in graph.classes.items()} for _ in range(2)]
    assert bound <= min(cheapest(Tried(graph, made, s)) for s in tried) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_a_message_costs_at_least_its_floor_and_its_bytes(seed: int) -> None:
    """Curves of any shape: also those that are steep at first, flat in between, or zero below their first point."""
    rng = np.random.default_rng(seed)
    sizes = np.cumsum(rng.integers(1, 2000, rng.integers(2, 6))).astype(float)
    times = np.cumsum(rng.exponential(rng.choice([1e-6, 1e-3], len(sizes))))
    curve = Curve(tuple(zip(sizes.tolist(), times.tolist(), strict=True)))
    made = cluster(CLUSTERS["pair"])
    measured = type(made)(made.name, made.devices, made.nodes, made.network, {"all_reduce": curve})
    least = float(rng.integers(1, 3000))
    split = Split(measured, least)
    floor, light = split.floor("all_reduce of gradients"), split.light.measured["all_reduce"]
    for size in (least, *np.geomspace(least, 1e6, 50), *(s for s in sizes if s >= least)):
        assert floor + light.seconds(size) <= curve.seconds(size) * (1 + 1e-9) + 1e-15
        half = size / 2  # two operands add up to one message
        assert 2 * light.seconds(half) <= light.seconds(size) * (1 + 1e-9) + 1e-18


def test_flags_are_worth_a_latency_each() -> None:
    """Of each assignment, the dearest of its bounds with all flags is never below that without, and more for some."""
    graph, made = training(MODELS["one product"]), cluster(CLUSTERS["latency"])
    tried = Tried(graph, made, cuts(graph, made)["even"])
    flags = set(tried.space.structure.flags.values())
    assert flags and set(tried.space.structure.flags) <= set(SHARED)
    costs = [tried.space.graph.plain(a) for a in itertools.islice(everything(tried.space.graph), 200)]
    assert max(costs) > 0
    for a in itertools.islice(everything(tried.space.graph), 200):
        choice = tried.space.choice(a)
        back = tried.space.structure.assignment(choice)
        assert tried.space.choice(back) == choice
        assert tried.space.graph.plain(back) <= tried.space.graph.plain(a)


@pytest.mark.parametrize("machines", ["pair", "three"])
@pytest.mark.parametrize("model", MODELS)
def test_a_footprint_is_never_above_the_peak(model: str, machines: str) -> None:
    graph, made = training(MODELS[model].replace("sgd(lr = 0.1)", "adam(lr = 0.1)")), cluster(CLUSTERS[machines])
    rng = np.random.default_rng(3)
    for shares in cuts(graph, made).values():
        tried = Tried(graph, made, shares)
        space = Space(graph, tried.layout, made, memory=True)
        capacity = made.memories[[g[0] for g in space.groups]]
        for a in itertools.islice(everything(space.graph, rng), 8):
            least = (space.graph.component_sums(a)[space.held.start :].reshape(-1, len(space.groups)) + 1) * capacity
            peak = tried.cost(a).memory_bytes[[g[0] for g in space.groups]]
            assert (least <= peak + 1e-6 * capacity.max() * 1e-6).all()
            assert least.max() > 0
