"""A complete assignment changed in one place: the value that is asked for, and only what has to change with it.

The cheapest assignment under prices may differ from a plan in many places that cost next to nothing, and the truth
may hold more against them than the prices know. So besides it the plan itself is worth a look, with everything as it
is but for the variables around the change, which are solved exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from hapdsl.search.eliminate import TooWide, eliminate
from hapdsl.search.factors import Array, Assignment, FactorGraph

STEPS = (2, 4, 8)  # how far from the change variables are free, until an allowed assignment is found
CROWDED = 12  # a variable of more tables is freed but not passed through: its neighbours are everywhere


class Nearby:
    """Changes of assignments of one graph under given prices."""

    def __init__(self, graph: FactorGraph, prices: ArrayLike | None) -> None:
        self.graph = graph
        weights = graph.checked_prices(prices)
        tables = graph.store.tables
        priced = {i: np.tensordot(weights, tables[i], axes=1) for i in dict.fromkeys(graph.priced_ids)}
        self.factors: list[tuple[tuple[int, ...], Array]] = [
            *zip(graph.scopes, (tables[i] for i in graph.table_ids), strict=True),
            *zip(graph.priced_scopes, (priced[i] for i in graph.priced_ids), strict=True),
        ]
        self.touching: list[list[int]] = [[] for _ in graph.sizes]
        for k, (scope, _) in enumerate(self.factors):
            for v in scope:
                self.touching[v].append(k)

    def changed(
        self, assignment: Assignment, variable: int, value: int, steps: Sequence[int] = STEPS
    ) -> Assignment | None:
        """The cheapest assignment with this value that keeps all that is more than some steps away.

        None where even the widest of `steps` has none, or would need too large tables.
        """
        for far in steps:
            free = self.around(variable, far) - {variable}
            found = self.solve(assignment, {variable: value}, free)
            if found is not None:
                return found
        return None

    def around(self, variable: int, steps: int) -> set[int]:
        """The variables within so many tables of one."""
        found, edge = {variable}, {variable}
        for _ in range(steps):
            through = [v for v in edge if v == variable or len(self.touching[v]) <= CROWDED]
            edge = {u for v in through for k in self.touching[v] for u in self.factors[k][0]} - found
            found |= edge
        return found

    def solve(self, assignment: Assignment, fixed: Mapping[int, int], free: set[int]) -> Assignment | None:
        """The cheapest values of the free variables, the others being fixed, or as in the assignment."""
        open_ = sorted(free)
        number = {v: k for k, v in enumerate(open_)}
        part = FactorGraph()
        for v in open_:
            part.variable(self.graph.names[v], self.graph.sizes[v])
        touched = dict.fromkeys(k for v in (*open_, *fixed) for k in self.touching[v])
        for k in touched:
            scope, table = self.factors[k]
            at = tuple(slice(None) if v in number else fixed.get(v, assignment[v]) for v in scope)
            part.factor([number[v] for v in scope if v in number], table[at])
        try:
            solved = eliminate(part, max_cells=1e6, max_total=1e7)
        except TooWide:
            return None
        if not solved.feasible:
            return None
        found = list(assignment)
        for v, value in (*fixed.items(), *zip(open_, solved.best(), strict=True)):
            found[v] = value
        return tuple(found)
