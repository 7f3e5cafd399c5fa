"""Factor graphs to try things on, and the slow, obvious answer to compare with."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from hapdsl.search.eliminate import Elimination
from hapdsl.search.factors import FactorGraph
from hapdsl.search.marginals import Marginals

Ranked = list[tuple[float, tuple[int, ...]]]


def make_graph(
    seed: int, variables: int = 6, components: int = 0, forbidden: float = 0.15, ties: bool = False, largest: int = 4
) -> FactorGraph:
    """A random graph: scopes of up to three variables, some twice, some tables shared, some entries infinite."""
    rng = np.random.default_rng(seed)
    graph = FactorGraph()
    count = int(rng.integers(1, variables + 1))
    for i in range(count):
        graph.variable(f"v{i}", int(rng.integers(1, largest + 1)))

    def entries(shape: tuple[int, ...]) -> np.ndarray:
        return rng.integers(0, 4, shape).astype(float) if ties else rng.normal(1.0, 2.0, shape)

    made: dict[tuple[int, ...], np.ndarray] = {}
    for _ in range(int(rng.integers(1, 2 * count + 2))):
        scope = tuple(int(v) for v in rng.permutation(count)[: int(rng.integers(0, min(3, count) + 1))])
        shape = tuple(graph.sizes[v] for v in scope)
        if shape in made and rng.random() < 0.4:
            graph.factor(scope, made[shape])
            continue
        table = np.where(rng.random(shape) < forbidden, np.inf, entries(shape)) if scope else entries(shape)
        made[shape] = np.asarray(table)
        graph.factor(scope, table)
    for _ in range(2 * count if components else 0):
        scope = tuple(int(v) for v in rng.permutation(count)[: int(rng.integers(1, min(2, count) + 1))])
        graph.priced_factor(scope, rng.random((components, *(graph.sizes[v] for v in scope))))
    return graph


def every_assignment(graph: FactorGraph, prices: np.ndarray | None = None) -> Ranked:
    """Each allowed assignment with its cost, entry by entry, cheapest first."""
    every = itertools.product(*(range(size) for size in graph.sizes))
    return sorted((c, a) for a in every if (c := graph.cost(a, prices)) < math.inf)


@pytest.fixture(scope="session")
def random_graph() -> Callable[..., FactorGraph]:
    return make_graph


@pytest.fixture(scope="session")
def brute_force() -> Callable[..., Ranked]:
    return every_assignment


def min_marginals(solved: Elimination) -> list[np.ndarray]:
    """The min-marginals of every variable, inf throughout where nothing is allowed."""
    if not solved.feasible:
        return [np.full(size, np.inf) for size in solved.graph.sizes]
    marginals = Marginals(solved)
    return [marginals.of(v) for v in range(len(solved.graph.sizes))]
