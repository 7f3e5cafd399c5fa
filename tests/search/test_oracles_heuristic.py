"""Both heuristics on the spaces of real models: never above the cost to go, and consistent; h = 0 can be stopped."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hapdsl.search.astar import Limits, best_first
from hapdsl.search.eliminate import Elimination, eliminate
from hapdsl.search.enumeration import HEURISTICS, KBest, k_best

from .small import CLUSTERS, MODELS, Tried, cluster, cuts, thinned, training


def solved(model: str, machines: str, cut: str = "by speed", keep: float = 1.0) -> tuple[Tried, Elimination]:
    """A space (a random part of it where `keep` says so) under even prices, eliminated."""
    graph, made = training(MODELS[model]), cluster(CLUSTERS[machines])
    restriction = None if keep == 1.0 else thinned(graph, np.random.default_rng(0), keep)
    tried = Tried(graph, made, cuts(graph, made)[cut], restriction=restriction)
    count = tried.space.graph.components
    return tried, eliminate(tried.space.graph, np.ones(count) / count)


def steps(elimination: Elimination, values: list[int]) -> list[tuple[float, float]]:
    """Down a path: what each further value costs by the tables alone, and the heuristic of the prefix with it.

    A table counts where the last of its variables gets its value. The heuristic is the cost of the cheapest completion,
    found by pinning the prefix and eliminating what is left from scratch.
    """
    graph, order = elimination.graph, [b.variable for b in elimination.buckets[::-1]]
    depth_of = {v: d for d, v in enumerate(order)}
    weighted = [np.tensordot(elimination.prices, t, axes=1) for t in graph.priced_tables]
    spent = np.zeros(len(order))
    for scope, table in zip((*graph.scopes, *graph.priced_scopes), (*graph.tables, *weighted), strict=True):
        if scope:
            spent[max(depth_of[v] for v in scope)] += float(table[tuple(values[v] for v in scope)])
    found = []
    for depth in range(len(order)):
        pinned = graph.copy()
        for v in order[: depth + 1]:
            pinned.factor((v,), np.where(np.arange(graph.sizes[v]) == values[v], 0.0, np.inf))
        found.append(
            (float(spent[depth]), eliminate(pinned, elimination.prices).bound - float(spent[: depth + 1].sum()))
        )
    return found


@pytest.mark.parametrize("machines", ["pair", "three"])
@pytest.mark.parametrize("model", MODELS)
def test_the_computed_heuristic_is_consistent(model: str, machines: str) -> None:
    """h(n) <= cost of the step + h(next), with equality for one child; h at the end is zero. f that A* uses is that g + h."""
    _, elimination = solved(model, machines)
    tree = KBest(elimination)
    rng = np.random.default_rng(1)
    for _ in range(3):
        values = [0] * len(tree.buckets)
        f, fs = elimination.bound, []
        for depth, bucket in enumerate(tree.buckets):  # any child, not only the best
            found = tree.choices(depth, values)
            rank = int(rng.integers(len(found.values)))
            values[bucket.variable] = found.values[rank]
            f += found.extra[rank]
            fs.append(f)
            assert found.extra[0] == 0.0
        scale = elimination.bound
        h, g = elimination.bound, 0.0
        for (step, following), f in zip(steps(elimination, values), fs, strict=True):
            assert h <= step + following + 1e-12 * scale
            g, h = g + step, following
            assert g + h == pytest.approx(f, rel=1e-9)
        assert h == pytest.approx(0.0, abs=1e-12 * scale)


@pytest.mark.parametrize("heuristic", HEURISTICS)
def test_both_heuristics_prove_the_same(heuristic: str) -> None:
    """The same leaves at the same additive costs, the same best program; the bound of h = 0 comes from its own heap."""
    for model, machines in [("one product", "pair"), ("add and reduce", "latency")]:
        tried, elimination = solved(model, machines, keep=0.35)
        found = best_first(elimination, tried.seconds, gap=0.0, heuristic=heuristic)
        other = best_first(elimination, tried.seconds, gap=0.0)
        assert found.reason in ("gap", "exhausted")
        assert found.cost == pytest.approx(other.cost, rel=1e-12)
        assert found.bound == pytest.approx(other.bound, rel=1e-12)
        costs = [c for c, _ in itertools.islice(k_best(elimination, heuristic), 40)]
        np.testing.assert_allclose(costs, [c for c, _ in itertools.islice(k_best(elimination), 40)], rtol=1e-10)


def test_zero_is_admissible_and_blind() -> None:
    """Its bound while it runs is never above the optimum, and it looks at many more nodes on its way to the first leaf."""
    _, elimination = solved("one product", "pair")
    blind, guided = k_best(elimination, "zero"), k_best(elimination)
    first = next(blind)[0]
    assert first == pytest.approx(next(guided)[0], rel=1e-10) == pytest.approx(elimination.bound, rel=1e-10)
    assert guided.nodes * 3 < blind.nodes
    heard: list[float] = []
    watched = k_best(elimination, "zero", stop=lambda: heard.append(watched.bound))
    next(watched)
    assert len(heard) > 50
    assert all(a <= b + 1e-12 * first for a, b in itertools.pairwise(heard)) and max(heard) <= first * (1 + 1e-12)


@pytest.mark.parametrize(
    ("limits", "reason"), [(Limits(seconds=0.0), "seconds"), (Limits(nodes=40), "nodes"), (Limits(), "cancelled")]
)
def test_zero_can_be_stopped_before_its_first_leaf(limits: Limits, reason: str) -> None:
    """Between expansions, not between leaves: on a deep graph there would be no leaf for hours."""
    tried, elimination = solved("tied weight", "three")
    calls = itertools.count()
    cancelled = (lambda: next(calls) > 30) if reason == "cancelled" else None
    found = best_first(elimination, tried.seconds, limits=limits, cancelled=cancelled, heuristic="zero")
    assert (found.reason, found.assignment, found.leaves, found.cost) == (reason, None, 0, math.inf)
    assert found.bound <= elimination.bound
    best = elimination.best()
    known = (tried.seconds(best), best)
    found = best_first(
        elimination, tried.seconds, limits=limits, cancelled=cancelled, heuristic="zero", incumbent=known
    )
    assert (found.reason, found.cost) == (reason, known[0]) and found.bound <= found.cost
