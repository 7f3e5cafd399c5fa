"""Shares against trying a grid of them, and what doesn't depend on units of measure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from hapdsl.cluster import Cluster
from hapdsl.graph.training import TrainingGraph
from hapdsl.search.anyshares import bound_any_shares
from hapdsl.search.astar import Limits, best_first
from hapdsl.search.plan import Plan
from hapdsl.search.planner import plan
from hapdsl.search.prices import cutting_planes
from hapdsl.search.sharemodel import propose
from hapdsl.search.shares import Shares, layout_of

from .small import CLUSTERS, MODELS, Tried, cluster, training

MLP = """
model mlp(batch = 24, d = 8, hidden = 12) {
    input x  : f32[batch, d]
    param w1 : f32[d, hidden]
    param w2 : f32[hidden, 1]
    u = matmul(x, w1)
    h = relu(u)
    y = matmul(h, w2)
    loss = sum(y, [0, 1])
    train loss with sgd(lr = 0.1)
}
"""


def splits(units: int, devices: int, steps: int) -> list[tuple[int, ...]]:
    """Ways to deal `units` out in about `steps` equal parts."""
    points = sorted({round(units * k / steps) for k in range(steps + 1)})
    if devices == 1:
        return [(units,)]
    return [(p, *rest) for p in points for rest in splits_of(units - p, devices - 1, points)]


def splits_of(units: int, devices: int, points: list[int]) -> list[tuple[int, ...]]:
    if devices == 1:
        return [(units,)]
    return [(p, *rest) for p in points if p <= units for rest in splits_of(units - p, devices - 1, points)]


def grid(graph: TrainingGraph, devices: int, steps: int) -> Iterator[Shares]:
    """Every combination of splits over the classes."""
    classes = [c for c in graph.classes.values() if c.units > 1]
    rest = {c.name: np.array([c.units] + [0] * (devices - 1)) for c in graph.classes.values() if c.units == 1}
    for way in itertools.product(*(splits(c.units, devices, steps) for c in classes)):
        yield {**rest, **{c.name: np.array(s) for c, s in zip(classes, way, strict=True)}}


def cheapest(graph: TrainingGraph, made: Cluster, steps: int) -> float:
    """The least seconds of any program found under any shares of the grid."""
    best = np.inf
    for shares in grid(graph, len(made), steps):
        tried = Tried(graph, made, shares)
        pricing = cutting_planes(tried.space.graph, iterations=3)
        assert pricing.elimination is not None
        if pricing.bound < best:
            best = min(best, best_first(pricing.elimination, tried.seconds, 0.001, Limits(leaves=20)).cost)
    return best


def same(a: Shares, b: Shares) -> bool:
    return all((a[c] == b[c]).all() for c in a)


def shares_of(found: Plan) -> Shares:
    return {c: s[(0,)] for c, s in found.program.layout.shares.items()}


GRIDS = [
    ("one product", "pair", {}, 4),
    ("one product", "latency", {"batch": 48}, 3),
    ("two products", "pair", {"batch": 48}, 3),
    ("add and reduce", "pair", {}, 6),
    ("tied weight", "latency", {"batch": 36}, 6),
    ("read twice by one call", "three", {"batch": 40}, 3),
]


@pytest.mark.parametrize(("model", "machines", "settings", "steps"), GRIDS, ids=[f"{g[0]}-{g[1]}" for g in GRIDS])
def test_a_plan_is_near_the_best_of_a_grid(model: str, machines: str, settings: dict[str, int], steps: int) -> None:
    graph, made = training(MODELS[model], **settings), cluster(CLUSTERS[machines])
    best = cheapest(graph, made, steps)
    found = plan(graph, made)
    assert found.cost_s <= 1.01 * best
    even = {c.name: np.array([c.units] + [0] * (len(made) - 1)) for c in graph.classes.values()}
    bound = bound_any_shares(graph, layout_of(even, len(made)), made)
    assert bound is not None and bound <= min(best, found.cost_s) * (1 + 1e-9)


@pytest.mark.parametrize("machines", CLUSTERS)
@pytest.mark.parametrize("model", MODELS)
def test_proposals_deal_out_every_unit(model: str, machines: str) -> None:
    graph, made = training(MODELS[model]), cluster(CLUSTERS[machines])
    found = plan(graph, made, baselines=False)
    for shares in [shares_of(found), *propose(found.program, made)]:
        for c in graph.classes.values():
            assert shares[c.name].sum() == c.units and (shares[c.name] >= 0).all()
            assert shares[c.name].shape == (len(made),)


def scaled(times: float) -> Cluster:
    """Two devices and their link, all faster by a factor."""
    return cluster(f"""cluster scaled {{
        device quick {{ compute = {8e6 * times:.0f} FLOP/s, memory = 1 GiB, bandwidth = {1e8 * times:.0f} B/s, launch = {10 / times!r} us }}
        device slow  {{ compute = {3e6 * times:.0f} FLOP/s, memory = 1 GiB, bandwidth = {6e7 * times:.0f} B/s, launch = {20 / times!r} us }}
        node host = 1 * quick, 1 * slow over {{ bandwidth = {2e8 * times:.0f} B/s, latency = {40 / times!r} us }} }}""")


def test_nothing_depends_on_the_unit_of_time() -> None:
    graph = training(MLP)
    slow, fast = plan(graph, scaled(1.0)), plan(graph, scaled(1e6))
    assert same(shares_of(slow), shares_of(fast))
    assert fast.cost_s == pytest.approx(slow.cost_s * 1e-6, rel=1e-9)
    assert fast.bound_s == pytest.approx(slow.bound_s * 1e-6, rel=1e-6)
    first, second = ([(i.op, i.inputs, i.outputs, i.method) for i in p.program.instructions] for p in (slow, fast))
    assert first == second


def test_extreme_magnitudes() -> None:
    """Devices of 1e14 FLOP/s behind a link of 1e3 bytes/s: nothing is sent that needn't be, and nothing overflows."""
    made = cluster("""cluster extreme {
        device quick { compute = 100 TFLOP/s, memory = 1 GiB, bandwidth = 1000 GB/s }
        device slow  { compute = 50 TFLOP/s, memory = 1 GiB, bandwidth = 500 GB/s }
        node host = 1 * quick, 1 * slow over { bandwidth = 1000 B/s, latency = 1 us } }""")
    graph = training(MLP, batch=4096, d=512, hidden=512)
    found = plan(graph, made)
    assert 0 < found.bound_s <= found.cost_s < 1
    assert not any(s.comm_s > 1e-2 for s in found.cost.stages)
    for c in graph.classes.values():
        assert shares_of(found)[c.name].sum() == c.units


def test_free_communication_reaches_the_bound_for_all_shares() -> None:
    """With a link that costs nothing all work can be dealt out by speed, which is what the bound assumes."""
    made = cluster("""cluster free {
        device quick { compute = 2 GFLOP/s, memory = 1 GiB, bandwidth = 1000 GB/s }
        device slow  { compute = 1 GFLOP/s, memory = 1 GiB, bandwidth = 1000 GB/s }
        node host = 1 * quick, 1 * slow over { bandwidth = 100000 GB/s, latency = 0 us } }""")
    graph = training(MLP, batch=240, d=24, hidden=36)
    found = plan(graph, made)
    assert found.bound_any_shares_s is not None
    assert found.cost_s <= 1.05 * found.bound_any_shares_s
