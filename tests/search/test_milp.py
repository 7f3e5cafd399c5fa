"""The mixed-integer program against elimination, which shares no code with it beyond the graph."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hapdsl.search import milp
from hapdsl.search.eliminate import TooWide, eliminate
from hapdsl.search.factors import FactorGraph
from hapdsl.search.milp import by_milp, solve_milp
from hapdsl.search.prices import cutting_planes
from hapdsl.search.removal import order


@pytest.mark.parametrize("components", [0, 3])
def test_equals_elimination(random_graph, components: int) -> None:
    infeasible = 0
    for seed in range(60):
        graph = random_graph(seed, variables=9, components=components, ties=seed % 3 == 0)
        prices = np.random.default_rng(seed).random(components) if components else None
        solved = eliminate(graph, prices)
        found = solve_milp(graph, prices)
        if not solved.feasible:
            infeasible += 1
            assert (found.assignment, found.cost, found.reason) == (None, math.inf, "exhausted")
            continue
        assert found.reason == "gap" and found.assignment is not None
        assert found.cost == pytest.approx(solved.bound, rel=1e-7, abs=1e-7)
        assert found.cost == graph.cost(found.assignment, prices)
        assert found.bound == pytest.approx(solved.bound, rel=1e-6, abs=1e-6) and found.bound <= found.cost
    assert 3 <= infeasible <= 45


def dense(count: int, size: int, seed: int = 0, scale: float = 1.0) -> FactorGraph:
    """Every variable tied to every other."""
    rng = np.random.default_rng(seed)
    graph = FactorGraph()
    for i in range(count):
        graph.variable(f"v{i}", size)
        graph.factor((i,), scale * rng.random(size))
    for u, v in itertools.combinations(range(count), 2):
        graph.factor((u, v), np.where(rng.random((size, size)) < 0.3, scale * rng.random((size, size)), 0.0))
    return graph


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
def test_dense_graphs_at_any_scale(scale: float) -> None:
    for seed in range(4):
        graph = dense(8, 3, seed, scale)
        found = solve_milp(graph)
        assert found.cost == pytest.approx(eliminate(graph).bound, rel=1e-9)
        assert found.gap < 1e-6


def test_huge_entries_do_not_drown_small_costs() -> None:
    """Microseconds beside an entry of a kilosecond, which no good assignment takes."""
    for seed in range(6):
        graph = dense(6, 3, seed, 1e-6)
        spoilt = graph.copy()
        table = np.zeros((3, 3))
        table[graph.sizes[0] - 1, 0] = 1e3
        spoilt.factor((0, 1), table)
        found = solve_milp(spoilt)
        assert found.cost == pytest.approx(eliminate(spoilt).bound, rel=1e-9)


def test_a_graph_too_wide_to_eliminate() -> None:
    """A sparse stretch of skips: elimination refuses, the program proves an optimum that local changes confirm."""
    rng = np.random.default_rng(2)
    graph = FactorGraph()
    for i in range(24):
        graph.variable(f"v{i}", 6)
        graph.factor((i,), 3 * rng.random(6))
    for u, v in itertools.combinations(range(24), 2):
        graph.factor((u, v), 0.02 * rng.random((6, 6)))
    assert order(graph).peak > 1e10
    with pytest.raises(TooWide):
        eliminate(graph)
    found = solve_milp(graph, seconds=60)
    assert found.reason == "gap" and found.assignment is not None and found.gap < 1e-6
    for u, v in itertools.combinations(range(24), 2):
        for a, b in itertools.product(range(6), repeat=2):
            other = list(found.assignment)
            other[u], other[v] = a, b
            assert graph.cost(other) >= found.cost - 1e-9


def test_a_time_limit_leaves_a_bound() -> None:
    graph = dense(9, 5, 1)
    optimum = eliminate(graph).bound
    found = solve_milp(graph, seconds=0.0)
    assert found.reason == "seconds"
    assert found.bound <= optimum
    if found.assignment is not None:  # HiGHS may have had an idea before it looked at the clock
        assert optimum - 1e-9 <= found.cost == graph.cost(found.assignment)


def test_serves_cutting_planes(random_graph) -> None:
    compared = 0
    for seed in range(15):
        graph = random_graph(seed, variables=5, components=3, forbidden=0.05)
        exact = cutting_planes(graph, iterations=60, tolerance=1e-9)
        other = cutting_planes(graph, iterations=60, tolerance=1e-9, solve=by_milp(graph))
        assert other.bound == pytest.approx(exact.bound, rel=1e-5, abs=1e-5)
        compared += exact.reason == "converged"
    assert compared > 8


def test_what_no_table_forbids_alone_may_be_forbidden_by_all() -> None:
    """Three variables of two values, of which every two must differ: each pair can, all three can't."""
    graph = FactorGraph()
    for name in "abc":
        graph.variable(name, 2)
    for pair in itertools.combinations(range(3), 2):
        graph.factor(pair, np.where(np.eye(2) > 0, np.inf, 1.0))
    found = solve_milp(graph)
    assert (found.assignment, found.cost, found.bound, found.reason) == (None, math.inf, math.inf, "exhausted")
    assert not eliminate(graph).feasible


def test_refuses_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooWide):
        solve_milp(dense(5, 4), max_entries=10)
    graph = dense(5, 4)
    graph.priced_factor((0, 1), np.random.default_rng(0).random((2, 4, 4)))

    def refuse(*_: object) -> None:
        raise TooWide(10**9, 10**400)

    monkeypatch.setattr(milp, "solve_milp", refuse)
    bound, assignment = by_milp(graph)(np.array([0.5, 0.5]))
    assert assignment is None and 0 < bound <= eliminate(graph, [0.5, 0.5]).bound
    graph.factor((2,), np.full(4, np.inf))
    assert by_milp(graph)(np.array([0.5, 0.5])) == (math.inf, None)
    empty = FactorGraph()
    empty.factor((), 2.5)
    assert solve_milp(empty).cost == eliminate(empty).bound == 2.5
