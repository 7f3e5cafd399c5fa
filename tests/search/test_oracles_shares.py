"""Plans against a grid over the shares of several classes at once, heads and hidden units among them: the alternation's oracle.

The classes that matter are dealt out in every way of the grid, the others by speed. At each point a short search finds the cheapest program, and
only points whose bound is below the best so far are searched.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hapdsl.cluster import Cluster
from hapdsl.graph.training import TrainingGraph
from hapdsl.search.astar import Limits, best_first
from hapdsl.search.planner import plan
from hapdsl.search.prices import cutting_planes
from hapdsl.search.schedule import Scheduler
from hapdsl.search.shares import layout_of, proportional
from hapdsl.search.space import Space
from hapdsl.search.structure import Structure

from .small import CLUSTERS, MODELS, cluster, training

ATTENTION = """
model attend(batch = 4, seq = 4, d = 8, heads = 4, ffn = 8) {
    input x : f32[batch, seq, d]
    param wq, wk : f32[d, heads, d / heads]
    param wo : f32[heads, d / heads, d]
    q = einsum("bsd,dhe->bhse", x, wq)
    k = einsum("bsd,dhe->bhse", x, wk)
    c = attention(q, k, k)
    o = einsum("bhse,hed->bsd", c, wo)
    loss = sum(o, [0, 1, 2])
    train loss with sgd(lr = 0.1)
}
"""
FEED_FORWARD = """
model feed(batch = 12, d = 6, ffn = 12, p = 0.1) {
    input x : f32[batch, d]
    param w1 : f32[d, ffn]
    param b1 : f32[ffn]
    param w2 : f32[ffn, d]
    u = matmul(x, w1)
    a = add(u, b1)
    g = gelu(a)
    m = dropout(matmul(g, w2), p = p)
    y = add(x, m)
    loss = mean(y, [0, 1])
    train loss with adam(lr = 0.1)
}
"""
TEXTS = {**MODELS, "attention": ATTENTION, "feed-forward": FEED_FORWARD}
HEAVY = ("all_reduce of gradients",)


def deals(units: int, devices: int, steps: int) -> list[tuple[int, ...]]:
    """Ways to deal units out in about `steps` equal parts; the last device gets the rest."""
    points = sorted({round(units * k / steps) for k in range(steps + 1)})
    ways = itertools.product(points, repeat=devices - 1)
    return [(*way, units - sum(way)) for way in ways if sum(way) <= units]


def ratio(graph: TrainingGraph, made: Cluster, classes: tuple[str, ...], steps: int) -> tuple[float, int]:
    """What the plan costs over the best of the grid, and the number of points."""
    structure = Structure(graph, None, HEAVY)
    others = proportional(graph, made.speeds("f32"))
    best, points = np.inf, 0
    for way in itertools.product(*(deals(graph.classes[c].units, len(made), steps) for c in classes)):
        points += 1
        shares = {**others, **{c: np.array(s) for c, s in zip(classes, way, strict=True)}}
        space = Space(graph, layout_of(shares, len(made)), made, None, "sync", structure)
        pricing = cutting_planes(space.graph, iterations=2, cutoff=best)
        if pricing.bound < best and pricing.elimination is not None:
            scheduler = Scheduler(space.conversions)
            found = best_first(
                pricing.elimination,
                lambda a, s=space, m=scheduler: m.seconds(s.choice(a), "sync"),
                0.001,
                Limits(leaves=12),
            )
            best = min(best, found.cost)
    return plan(graph, made, baselines=False).cost_s / best, points


CASES = [
    ("attention", "pair", ("batch", "heads"), 4, {}),
    ("attention", "latency", ("batch", "heads"), 4, {"batch": 8, "heads": 8}),
    ("feed-forward", "pair", ("batch", "ffn"), 6, {}),
    ("feed-forward", "three", ("batch", "ffn"), 2, {}),
    ("bias", "network", ("batch", "out"), 2, {}),
    ("two products", "measured", ("batch", "hidden"), 6, {}),
]


@pytest.mark.parametrize(
    ("model", "machines", "classes", "steps", "settings"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES]
)
def test_a_plan_is_near_the_best_of_a_grid(
    model: str, machines: str, classes: tuple[str, ...], steps: int, settings: dict[str, int]
) -> None:
    graph, made = training(TEXTS[model], **settings), cluster(CLUSTERS[machines])
    worst, points = ratio(graph, made, classes, steps)
    assert points >= 20
    assert worst <= 1.01
