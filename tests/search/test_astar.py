"""The enumeration and the search over it, against sorting every assignment."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hapdsl.lang.diagnostics import HapError
from hapdsl.search.astar import Limits, best_first, relative_gap
from hapdsl.search.eliminate import eliminate
from hapdsl.search.enumeration import HEURISTICS, KBest, k_best
from hapdsl.search.factors import FactorGraph

from .conftest import min_marginals

PRICES = np.array([0.3, 0.9])


@pytest.mark.parametrize("heuristic", HEURISTICS)
@pytest.mark.parametrize("ties", [False, True])
def test_enumerates_the_sorted_list(random_graph, brute_force, heuristic: str, ties: bool) -> None:
    """Every allowed assignment once, each at its own cost, in order; with ties, in any order among equals."""
    total = 0
    for seed in range(150):
        graph = random_graph(seed, components=2, ties=ties)
        ranked = brute_force(graph, PRICES)
        found = list(k_best(eliminate(graph, PRICES), heuristic=heuristic))
        costs = [cost for cost, _ in found]
        assert costs == sorted(costs)
        np.testing.assert_allclose(costs, [cost for cost, _ in ranked], rtol=1e-10, atol=1e-10)
        assert len({a for _, a in found}) == len(found)
        for cost, assignment in found:
            assert cost == pytest.approx(graph.cost(assignment, PRICES), rel=1e-10, abs=1e-10)
        if not ties:
            assert [a for _, a in found] == [a for _, a in ranked]
        total += len(found)
    assert total > 5_000


def test_the_heuristic_is_exact_and_consistent(random_graph, brute_force) -> None:
    """f of every prefix is the cost of its cheapest completion, and never decreases on the way down."""
    prefixes = 0
    for seed in range(80):
        graph = random_graph(seed, variables=5)
        ranked = brute_force(graph)
        if not ranked:
            continue
        solved = eliminate(graph)
        tree = KBest(solved)
        levels = [bucket.variable for bucket in tree.buckets]
        stack: list[tuple[float, tuple[int, ...]]] = [(solved.bound, ())]
        while stack:
            f, prefix = stack.pop()
            prefixes += 1
            completions = [cost for cost, a in ranked if all(a[v] == x for v, x in zip(levels, prefix, strict=False))]
            assert f == pytest.approx(min(completions), rel=1e-10, abs=1e-10)
            if len(prefix) == len(levels):
                continue
            assignment = [0] * len(levels)
            for v, x in zip(levels, prefix, strict=False):
                assignment[v] = x
            found = tree.choices(len(prefix), assignment)
            assert found.extra[0] == 0.0 and list(found.extra) == sorted(found.extra)
            stack += [(f + extra, (*prefix, x)) for x, extra in zip(found.values, found.extra, strict=True)]
    assert prefixes > 2000


def test_the_messages_save_nodes(random_graph) -> None:
    """The first assignment costs one look per variable; without heuristic it costs many more."""
    saved = 0
    for seed in range(40):
        graph = random_graph(seed, variables=8, forbidden=0.0)
        solved = eliminate(graph)
        guided, blind = k_best(solved), k_best(solved, heuristic="zero")
        assert next(guided)[0] == pytest.approx(next(blind)[0], rel=1e-10, abs=1e-10)
        assert guided.nodes == len(graph.sizes) and guided.nodes <= blind.nodes
        saved += blind.nodes - guided.nodes
    assert saved > 500


def true_cost(graph: FactorGraph, seed: int):
    """Some cost that is never below the additive one; a tenth of all assignments turns out not to be allowed."""

    def evaluate(assignment: tuple[int, ...]) -> float:
        rng = np.random.default_rng([seed, *assignment])
        return graph.cost(assignment) + (math.inf if rng.random() < 0.1 else float(rng.exponential(1.0)))

    return evaluate


def test_best_first_finds_the_optimum(random_graph, brute_force) -> None:
    reasons = set()
    for seed in range(200):
        graph = random_graph(seed, ties=seed % 2 == 0)
        evaluate = true_cost(graph, seed)
        every = sorted((evaluate(a), a) for _, a in brute_force(graph))
        optimum = every[0][0] if every else math.inf
        result = best_first(eliminate(graph), evaluate, keep=4)
        reasons.add(result.reason)
        assert result.cost == optimum
        if result.assignment is None:
            assert optimum == math.inf and result.bound == math.inf and result.gap == math.inf
            continue
        assert evaluate(result.assignment) == optimum
        assert result.bound == pytest.approx(optimum, rel=1e-11, abs=1e-11) and result.bound <= optimum
        assert result.gap == 0.0 and result.pool[0][0] == optimum
        assert [c for c, _ in result.pool] == sorted(evaluate(a) for _, a in result.pool)
    assert reasons == {"gap", "exhausted"}


@pytest.mark.parametrize("gap", [0.02, 0.2, 0.6])
def test_best_first_keeps_its_promise(random_graph, brute_force, gap: float) -> None:
    """Within the gap asked for, and the bound it reports is below the optimum."""
    fewer = 0
    for seed in range(100):
        graph = random_graph(seed, forbidden=0.05)
        graph.factor((), 20.0)  # relative gaps are about positive costs
        evaluate = true_cost(graph, seed)
        every = sorted(evaluate(a) for _, a in brute_force(graph))
        if not every or every[0] == math.inf:
            continue
        result = best_first(eliminate(graph), evaluate, gap=gap)
        assert result.bound <= every[0] * (1 + 1e-12)
        assert result.cost <= every[0] / (1 - gap) * (1 + 1e-12)
        assert result.gap == pytest.approx((result.cost - result.bound) / result.cost, abs=1e-11)
        assert result.gap <= gap
        fewer += result.leaves < len(every)
    assert fewer > 60


def deep(layers: int = 30) -> FactorGraph:
    rng = np.random.default_rng(5)
    graph = FactorGraph()
    for i in range(layers):
        graph.variable(f"v{i}", 4)
        graph.factor((i,), rng.random(4))
        if i:
            graph.factor((i - 1, i), rng.random((4, 4)))
    return graph


def test_best_first_stops_when_told() -> None:
    """Each limit ends the search with what it has, and with a bound that holds."""
    graph = deep()
    solved = eliminate(graph)

    def evaluate(assignment: tuple[int, ...]) -> float:
        return graph.cost(assignment) + 3.0 + 0.1 * sum(assignment)

    calls = itertools.count()
    heard: list[tuple[float, float, int]] = []
    stopped = {
        "leaves": best_first(solved, evaluate, limits=Limits(leaves=7)),
        "nodes": best_first(solved, evaluate, limits=Limits(nodes=80)),
        "seconds": best_first(solved, evaluate, limits=Limits(seconds=0.0), incumbent=(99.0, (0,) * 30)),
        "cancelled": best_first(
            solved, evaluate, cancelled=lambda: next(calls) >= 5, progress=lambda *what: heard.append(what)
        ),
    }
    for reason, result in stopped.items():
        assert result.reason == reason
        assert solved.bound <= result.bound <= result.cost
        assert result.gap == pytest.approx((result.cost - result.bound) / result.cost)
    assert stopped["leaves"].leaves == 7 and stopped["cancelled"].leaves == 5
    assert stopped["seconds"].cost == 99.0 and stopped["seconds"].assignment == (0,) * 30
    assert heard[-1][0] == stopped["cancelled"].cost
    assert [what[0] for what in heard] == sorted((what[0] for what in heard), reverse=True)


def test_a_good_incumbent_ends_the_search_at_once() -> None:
    graph = deep()
    solved = eliminate(graph)
    result = best_first(solved, graph.cost, incumbent=(graph.cost(solved.best()), solved.best()))
    assert (result.reason, result.leaves, result.gap) == ("gap", 0, 0.0)
    assert result.pool == ((result.cost, solved.best()),)


def test_a_false_bound_is_reported() -> None:
    """A true cost below the bound means that the bound was wrong: an error, not a result."""
    graph = deep()
    with pytest.raises(HapError) as caught:
        best_first(eliminate(graph), lambda assignment: graph.cost(assignment) - 0.01)
    assert caught.value.diagnostics[0].code == "HAP690"
    with pytest.raises(HapError):
        best_first(eliminate(graph), lambda _: math.nan)


def test_deep_graphs_are_enumerated_lazily() -> None:
    """A new leaf looks at the few variables it changes, not at all of them, and agrees with an independent count."""
    graph = deep(2000)
    solved = eliminate(graph)
    leaves = k_best(solved)
    first = list(itertools.islice(leaves, 300))
    assert leaves.nodes < 2000 + 300 * 60
    costs = [cost for cost, _ in first]
    assert costs == sorted(costs) and len({a for _, a in first}) == 300
    for cost, assignment in first[::50]:
        assert cost == pytest.approx(graph.cost(assignment), rel=1e-12)
    # The second best differs from the best somewhere: the least min-marginal of any value not in the best.
    best = first[0][1]
    rest = min(
        cost
        for v, marginals in enumerate(min_marginals(solved))
        for value, cost in enumerate(marginals)
        if value != best[v]
    )
    assert costs[1] == pytest.approx(rest, rel=1e-12)


def test_same_input_same_leaves(random_graph) -> None:
    for seed in range(20):
        one, two = (list(k_best(eliminate(random_graph(seed, ties=True)))) for _ in range(2))
        assert one == two


def test_gap_of_special_costs() -> None:
    assert relative_gap(10.0, 9.0) == pytest.approx(0.1)
    assert relative_gap(1.0, 1.0 - 1e-15) == 0.0
    assert relative_gap(math.inf, 3.0) == relative_gap(math.inf, math.inf) == math.inf
    assert relative_gap(0.0, 0.0) == 0.0 and relative_gap(0.0, -1.0) == math.inf
