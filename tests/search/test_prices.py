"""Cutting planes against the dual written out over every assignment, and against the true minimax."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog

import hapdsl.search.prices as prices_module
from hapdsl.search.eliminate import TooWide, eliminate
from hapdsl.search.factors import FactorGraph
from hapdsl.search.prices import cutting_planes


def dual_over_all(graph: FactorGraph, assignments: list[tuple[int, ...]], ceilings: dict[int, float]) -> float:
    """The best bound of any prices: one linear program with a row for every assignment."""
    count = graph.components
    rows = np.array([[1.0, *-graph.component_sums(a)] for a in assignments])
    limits = [graph.plain(a) for a in assignments]
    grouped = [0.0] + [0.0 if k in ceilings else 1.0 for k in range(count)]
    bounds = [(None, None)] + [(0.0, ceilings.get(k, 1.0)) for k in range(count)]
    answer = linprog([-1.0] + [0.0] * count, rows, limits, [grouped], [1.0], bounds)
    assert answer.status == 0
    return float(answer.x[0])


@pytest.mark.parametrize("corners", [True, False], ids=["from the corners too", "from the centre"])
def test_reaches_the_dual_optimum(random_graph, brute_force, monkeypatch, corners: bool) -> None:
    if not corners:
        monkeypatch.setattr(prices_module, "CHEAP", 0.0)
    checked = more_than_centre = 0
    for seed in range(80):
        graph = random_graph(seed, variables=5, components=3)
        centre = np.full(3, 1 / 3)
        ranked = brute_force(graph, centre)
        found = cutting_planes(graph, iterations=100, tolerance=1e-10)
        if not ranked:
            assert found.reason == "infeasible" and found.bound == math.inf and found.minimisers == ()
            continue
        checked += 1
        optimum = dual_over_all(graph, [a for _, a in ranked], {})
        assert found.reason == "converged"
        assert found.bound == pytest.approx(optimum, rel=1e-7, abs=1e-7)
        assert found.bound <= found.ceiling
        assert found.prices.sum() == pytest.approx(1.0, abs=1e-12) and (found.prices >= 0).all()
        assert brute_force(graph, found.prices)[0][0] == pytest.approx(found.bound, rel=1e-12, abs=1e-12)
        assert found.elimination is not None and found.elimination.bound == found.bound
        worst_device = [graph.plain(a) + graph.component_sums(a).max() for _, a in ranked]
        assert found.bound <= min(worst_device) + 1e-9
        assert set(found.minimisers) <= {a for _, a in ranked}
        more_than_centre += found.bound > ranked[0][0] + 1e-6
    assert checked > 50 and more_than_centre > 20


def stages(seed: int, layers: int = 12, devices: int = 3) -> FactorGraph:
    """A chain whose variables choose how the work falls on the devices."""
    rng = np.random.default_rng(seed)
    graph = FactorGraph()
    for i in range(layers):
        graph.variable(f"v{i}", 4)
        graph.priced_factor((i,), rng.random((devices, 4)))
        if i:
            graph.factor((i - 1, i), 0.2 * rng.random((4, 4)))
    return graph


def test_the_bound_holds_for_a_sum_of_maxima() -> None:
    """Every op waits for its slowest device; the bound stays below that, and is better than even prices."""
    for seed in range(20):
        graph = stages(seed, layers=5)
        found = cutting_planes(graph)
        waiting = np.inf
        for index in np.ndindex(*graph.sizes):
            slowest = sum(
                t[(slice(None), index[s[0]])].max()
                for s, t in zip(graph.priced_scopes, graph.priced_tables, strict=True)
            )
            waiting = min(waiting, graph.plain(index) + slowest)
        assert eliminate(graph, np.full(3, 1 / 3)).bound <= found.bound + 1e-12
        assert found.bound <= waiting + 1e-12


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
def test_scale_does_not_matter(scale: float) -> None:
    """Microseconds or kiloseconds: the same prices, the bound in proportion."""
    for seed in range(10):
        graph, scaled = stages(seed), FactorGraph()
        for name, size in zip(graph.names, graph.sizes, strict=True):
            scaled.variable(name, size)
        for scope, table in zip(graph.scopes, graph.tables, strict=True):
            scaled.factor(scope, table * scale)
        for scope, table in zip(graph.priced_scopes, graph.priced_tables, strict=True):
            scaled.priced_factor(scope, table * scale)
        one, other = (cutting_planes(g, tolerance=1e-6, iterations=60) for g in (graph, scaled))
        assert one.reason == other.reason == "converged"
        assert other.bound == pytest.approx(one.bound * scale, rel=2e-6)


def test_more_iterations_never_hurt() -> None:
    graph = stages(3, layers=40, devices=6)
    bounds = [cutting_planes(graph, iterations=n, tolerance=0.0).bound for n in range(0, 12, 2)]
    assert bounds == sorted(bounds)
    assert bounds[-1] > bounds[0]


def test_a_price_with_a_ceiling(random_graph, brute_force) -> None:
    """Component 2 is an excess over a limit: its price is free up to a ceiling, and the bound is the dual's."""
    used = 0
    for seed in range(60):
        graph = random_graph(seed, variables=5, components=3, forbidden=0.0)
        ranked = brute_force(graph, np.zeros(3))
        limit = np.median([graph.component_sums(a)[2] for _, a in ranked])
        graph.priced_factor((0,), np.array([[0.0], [0.0], [-limit]]) * np.ones((3, graph.sizes[0])))
        found = cutting_planes(graph, groups=[[0, 1]], ceilings={2: 5.0}, iterations=100, tolerance=1e-10)
        optimum = dual_over_all(graph, [a for _, a in ranked], {2: 5.0})
        assert found.bound == pytest.approx(optimum, rel=1e-7, abs=1e-7)
        assert found.prices[:2].sum() == pytest.approx(1.0) and 0 <= found.prices[2] <= 5.0
        within = [
            graph.plain(a) + graph.component_sums(a)[:2].max() for _, a in ranked if graph.component_sums(a)[2] <= 0
        ]
        assert found.bound <= min(within, default=math.inf) + 1e-9
        used += found.prices[2] > 0
    assert used > 10


def test_two_groups_each_sum_to_one() -> None:
    graph = stages(1, devices=4)
    found = cutting_planes(graph, groups=[[0, 3], [1, 2]], iterations=60, tolerance=1e-8)
    assert found.reason == "converged"
    assert found.prices[[0, 3]].sum() == pytest.approx(1.0) and found.prices[[1, 2]].sum() == pytest.approx(1.0)
    grid = np.linspace(0, 1, 21)
    best_on_grid = max(eliminate(graph, [a, b, 1 - b, 1 - a]).bound for a in grid for b in grid)
    assert best_on_grid <= found.bound + 1e-7
    assert found.bound == pytest.approx(best_on_grid, rel=0.02)


def test_another_solver_may_take_over() -> None:
    """`solve` replaces elimination; a bound that is only nearly tight is still a bound."""
    graph = stages(4)

    def loose(prices: np.ndarray) -> tuple[float, tuple[int, ...]]:
        solved = eliminate(graph, prices)
        return solved.bound * 0.999, solved.best()

    exact, other = cutting_planes(graph), cutting_planes(graph, solve=loose)
    assert other.elimination is None and other.bound <= exact.bound + 1e-12
    assert other.bound == pytest.approx(exact.bound, rel=3e-3)


def test_starts_and_cancelling() -> None:
    graph = stages(5, layers=30, devices=5)
    far = cutting_planes(graph, iterations=60, tolerance=1e-8)
    near = cutting_planes(graph, starts=[far.prices], iterations=0, tolerance=1e-8)
    assert near.bound == pytest.approx(far.bound, rel=1e-12)
    stopped = cutting_planes(graph, cancelled=lambda: True)
    assert stopped.reason == "cancelled" and stopped.solves == 1 and stopped.bound <= far.bound


def test_same_input_same_prices() -> None:
    one, two = (cutting_planes(stages(6, layers=30)) for _ in range(2))
    assert one.minimisers == two.minimisers and one.bound == two.bound
    np.testing.assert_array_equal(one.prices, two.prices)


def test_numbers_that_the_linear_program_refuses_leave_the_bound_as_it_was() -> None:
    """Twenty orders of magnitude between two assignments: HiGHS takes no such row. What was solved until then still bounds."""
    graph = FactorGraph()
    v = graph.variable("v", 2)
    graph.priced_factor((v,), np.array([[1e-12, 0.0], [1e-12, 1e8]]))
    found = cutting_planes(graph)
    assert found.reason == "linear program" and set(found.minimisers) == {(0,), (1,)}
    assert 0 <= found.bound <= 1e-12  # the first one's slowest device
    assert found.bound == eliminate(graph, found.prices).bound


def test_wrong_use_is_refused() -> None:
    graph = stages(0)
    for groups in ([[0, 1]], [[0, 1, 2], [2]], [[0, 1, 2], []], [[0, 1, 3]]):
        with pytest.raises(ValueError, match="every one of 3 components"):
            cutting_planes(graph, groups=groups)
    with pytest.raises(ValueError, match="ceiling is a finite"):
        cutting_planes(graph, groups=[[0, 1]], ceilings={2: math.inf})
    with pytest.raises(TooWide):
        cutting_planes(graph, max_cells=3)
