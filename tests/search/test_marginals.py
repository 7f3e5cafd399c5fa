"""Marginals and their assignments against trying everything; changes in one place."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hapdsl.search import eliminate as elimination
from hapdsl.search.eliminate import eliminate
from hapdsl.search.factors import FactorGraph
from hapdsl.search.marginals import Marginals
from hapdsl.search.nearby import Nearby

SEEDS = range(60)


def prices_of(graph: FactorGraph, seed: int) -> np.ndarray | None:
    return np.random.default_rng(seed).dirichlet(np.ones(graph.components)) if graph.components else None


@pytest.mark.parametrize("whole_cells", [1 << 16, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_marginals_and_what_attains_them(random_graph, brute_force, monkeypatch, seed: int, whole_cells: int) -> None:
    monkeypatch.setattr(elimination, "WHOLE_CELLS", whole_cells)
    graph = random_graph(seed, components=seed % 3, ties=seed % 4 == 0)
    prices = prices_of(graph, seed)
    every = brute_force(graph, prices)
    solved = eliminate(graph, prices)
    if not every:
        with pytest.raises(ValueError, match="no assignment"):
            Marginals(solved)
        return
    order = np.random.default_rng(seed).permutation(len(graph.sizes))
    for marginals in (Marginals(solved), Marginals(eliminate(graph, prices, order=[int(v) for v in order]))):
        for v, size in enumerate(graph.sizes):
            expected = [min((c for c, a in every if a[v] == value), default=math.inf) for value in range(size)]
            np.testing.assert_allclose(marginals.of(v), expected, rtol=1e-10, atol=1e-10)
            for value in range(size):
                if math.isinf(expected[value]):
                    with pytest.raises(ValueError, match="has this value"):
                        marginals.best(v, value)
                    continue
                found = marginals.best(v, value)
                assert found[v] == value
                assert graph.cost(found, prices) == pytest.approx(expected[value], rel=1e-10, abs=1e-10)


def test_one_tensor_takes_a_way_not_the_whole_tree() -> None:
    """A long chain of equal layers: few tables come down, and an end's answer needs none of the other end's."""
    graph = FactorGraph()
    rng = np.random.default_rng(0)
    step, own = rng.random((3, 3)), rng.random(3)
    for k in range(2000):
        graph.variable(f"v{k}", 3)
        graph.factor((k,), own)
        if k:
            graph.factor((k - 1, k), step)
    marginals = Marginals(eliminate(graph))
    found = [marginals.of(v) for v in range(2000)]
    assert len(marginals._down) < 400  # of 2000 buckets
    np.testing.assert_allclose(found[900], found[1100], rtol=1e-9)
    assert marginals.best(900, int(found[900].argmax()))[900] == int(found[900].argmax())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_change_in_one_place(random_graph, brute_force, seed: int) -> None:
    """The nearest allowed assignment is allowed, has the value, and is as good as any that differs only there."""
    graph = random_graph(seed, components=seed % 3)
    prices = prices_of(graph, seed)
    every = {a: c for c, a in brute_force(graph, prices)}
    nearby = Nearby(graph, prices)
    for start in itertools.islice(every, 4):
        for v, size in enumerate(graph.sizes):
            for value in range(size):
                found = nearby.changed(start, v, value)
                if found is None:
                    assert not any(a[v] == value and _differs(a, start) <= {v} for a in every)
                    continue
                assert found[v] == value
                near = nearby.around(v, 2)
                alike = [c for a, c in every.items() if a[v] == value and _differs(a, start) <= near]
                if alike:  # found at the first try
                    assert every[found] == pytest.approx(min(alike), rel=1e-9, abs=1e-9)
                else:
                    assert found in every


def _differs(a: tuple[int, ...], b: tuple[int, ...]) -> set[int]:
    return {k for k, (x, y) in enumerate(zip(a, b, strict=True)) if x != y}


def test_a_crowded_variable_is_freed_but_not_passed_through() -> None:
    graph = FactorGraph()
    hub = graph.variable("hub", 2)
    leaves = [graph.variable(f"leaf {k}", 2) for k in range(20)]
    for leaf in leaves:
        graph.factor((hub, leaf), [[0.0, np.inf], [0.0, 1.0]])
    nearby = Nearby(graph, None)
    assert nearby.around(leaves[3], 4) == {hub, leaves[3]}
    everywhere = (1, *[1] * 20)
    assert nearby.changed(everywhere, leaves[3], 0) == (1, *[1] * 3, 0, *[1] * 16)
    assert nearby.changed((0, *[0] * 20), leaves[3], 1) == (1, *[0] * 3, 1, *[0] * 16)
    assert nearby.changed(everywhere, hub, 0) == (0, *[0] * 20)
