"""A factor graph as a mixed-integer program, for graphs that are too wide to eliminate.

One binary per value of a variable; per table a flow of one unit over its finite entries, whose marginals are the
variables' binaries (the local marginal polytope). A plain linearisation of the products would be much weaker: with the
flows the linear relaxation is often exact already. Densely connected skips, where every further skip multiplies the
width, solve in under a second this way; on chains of layers elimination is ten times faster and more.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import Bounds, LinearConstraint
from scipy.sparse import coo_array

from hapdsl.search.astar import SearchResult, relative_gap
from hapdsl.search.eliminate import TooWide
from hapdsl.search.factors import Array, Assignment, FactorGraph
from hapdsl.search.highs import milp

# The largest cost in the objective. HiGHS closes an absolute gap of 1e-6, which is then 1e-9 of the largest cost.
LARGEST = 1e3


@dataclass(slots=True)
class _Tables:
    """The graph under its prices, one table a scope (ascending), none within another, each with minimum zero.

    `unary` has a row of costs per variable. `base` is what was taken out: a lower bound by itself.
    """

    unary: list[Array]
    joint: dict[tuple[int, ...], Array]
    base: float


def _tables(graph: FactorGraph, prices: Array) -> _Tables:
    sums: dict[tuple[int, ...], Array] = {}
    weighted = [np.tensordot(prices, table, axes=1) for table in graph.priced_tables]
    scopes = (*graph.scopes, *graph.priced_scopes)
    for scope, table in zip(scopes, (*graph.tables, *weighted), strict=True):
        ascending = tuple(sorted(scope))
        table = table.transpose([scope.index(v) for v in ascending])
        sums[ascending] = sums[ascending] + table if ascending in sums else table
    base = float(sums.pop((), np.zeros(())))
    unary = [sums.pop((v,), np.zeros(size)) for v, size in enumerate(graph.sizes)]
    # A table within another's scope is added to it: fewer flows, and a tighter relaxation.
    readers: list[list[tuple[int, ...]]] = [[] for _ in graph.sizes]
    joint: dict[tuple[int, ...], Array] = {}
    for scope in sorted(sums, key=lambda s: (-len(s), s)):
        around = next((s for s in readers[scope[0]] if set(scope) <= set(s)), None)
        if around is None:
            joint[scope] = sums[scope]
            for v in scope:
                readers[v].append(scope)
        else:
            axes = tuple(i for i, v in enumerate(around) if v not in scope)
            joint[around] = joint[around] + np.expand_dims(sums[scope], axes)
    lowest = [float(table.min()) for table in (*unary, *joint.values())]
    base += math.fsum(lowest) if all(map(math.isfinite, lowest)) else math.inf
    if math.isfinite(base):
        unary = [table - table.min() for table in unary]
        joint = {scope: table - table.min() for scope, table in joint.items()}
    return _Tables(unary, joint, base)


@dataclass(slots=True)
class _Answer:
    assignment: Assignment | None
    bound: float
    nodes: int
    status: int


def _solve(tables: _Tables, unit: float, gap: float, seconds: float | None) -> _Answer:
    """One call of HiGHS, costs in `unit`s. Variables: all binaries, then the flows of table after table."""
    sizes = [len(row) for row in tables.unary]
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
    binaries = int(first[-1])
    own = np.concatenate(tables.unary)
    costs = [np.where(np.isfinite(own), own, 0.0) / unit]
    rows = [np.repeat(np.arange(len(sizes)), sizes)]  # each variable has exactly one value
    columns = [np.arange(binaries)]
    entries = [np.ones(binaries)]
    sides = [np.ones(len(sizes))]
    row, column = len(sizes), binaries
    for scope, table in tables.joint.items():
        at = np.nonzero(np.isfinite(table))
        flows = column + np.arange(len(at[0]))
        costs.append(table[at] / unit)
        for v, values in zip(scope, at, strict=True):
            rows += [row + values, row + np.arange(sizes[v])]
            columns += [flows, first[v] + np.arange(sizes[v])]
            entries += [np.ones(len(flows)), -np.ones(sizes[v])]
            sides.append(np.zeros(sizes[v]))
            row += sizes[v]
        column += len(flows)
    matrix = coo_array((np.concatenate(entries), (np.concatenate(rows), np.concatenate(columns))), shape=(row, column))
    side = np.concatenate(sides)
    upper = np.ones(column)
    upper[:binaries] = np.isfinite(own)
    whole = np.zeros(column, dtype=np.int64)
    whole[:binaries] = 1
    answer = milp(
        np.concatenate(costs),
        integrality=whole,
        bounds=Bounds(0.0, upper),
        constraints=LinearConstraint(matrix.tocsr(), side, side),
        options={"mip_rel_gap": gap, "time_limit": math.inf if seconds is None else max(seconds, 0.0)},
    )
    chosen = None
    if answer.x is not None:
        chosen = tuple(int(np.argmax(answer.x[a:b])) for a, b in itertools.pairwise(first))
    dual = getattr(answer, "mip_dual_bound", None)
    bound = tables.base + max(float(dual) * unit, 0.0) if dual is not None else tables.base
    return _Answer(chosen, bound, int(getattr(answer, "mip_node_count", None) or 0), int(answer.status))


def solve_milp(
    graph: FactorGraph,
    prices: ArrayLike | None = None,
    gap: float = 0.0,
    seconds: float | None = None,
    max_entries: float = 5e6,
) -> SearchResult:
    """Minimise the graph by HiGHS, to `gap` (relative) or until `seconds` have passed.

    The cost is recomputed from the assignment, entry by entry; the bound is HiGHS' own, to its tolerances (1e-9 of the
    largest cost that matters). Raises TooWide where the tables have more than `max_entries` entries together.
    `reason` is "gap", "seconds", "exhausted" (nothing is allowed) or "solver" (HiGHS gave up).
    """
    weights = graph.checked_prices(prices)
    scopes = {frozenset(scope) for scope in (*graph.scopes, *graph.priced_scopes)}
    cells = [math.prod(graph.sizes[v] for v in scope) for scope in scopes]
    if sum(cells) > max_entries:
        raise TooWide(max(cells), sum(cells))
    if not graph.sizes:
        cost = graph.cost((), weights if graph.components else None)
        return SearchResult((), cost, cost, relative_gap(cost, cost), 0, 0, "gap")
    started = time.monotonic()
    tables = _tables(graph, weights)
    if not math.isfinite(tables.base):
        return SearchResult(None, math.inf, math.inf, math.inf, 0, 0, "exhausted")
    largest = _largest(tables)
    answer = _solve(tables, largest / LARGEST, gap, seconds)
    cost = graph.cost(answer.assignment, weights) if answer.assignment is not None else math.inf
    nodes = answer.nodes
    if answer.status == 0 and math.isfinite(cost) and cost - tables.base < 1e-2 * largest:
        # Huge entries that no good assignment has made the rest small against HiGHS' tolerances. No entry above
        # this cost's excess over the base can be in a better assignment: without them, once more in finer units.
        excess = (cost - tables.base) * (1 + 1e-6)
        for table in (*tables.unary, *tables.joint.values()):
            table[table > excess] = np.inf
        left = None if seconds is None else seconds - (time.monotonic() - started)
        again = _solve(tables, _largest(tables) / LARGEST, gap, left)
        nodes += again.nodes
        if again.assignment is not None and (better := graph.cost(again.assignment, weights)) <= cost:
            answer, cost = again, better
    if answer.status == 2:
        return SearchResult(None, math.inf, math.inf, math.inf, nodes, 0, "exhausted")
    if not math.isfinite(cost):
        reason = "seconds" if answer.status == 1 else "solver"
        return SearchResult(None, math.inf, answer.bound, math.inf, nodes, 0, reason)
    reason = {0: "gap", 1: "seconds"}.get(answer.status, "solver")
    bound = min(answer.bound, cost)
    assert answer.assignment is not None
    pool = ((cost, answer.assignment),)
    return SearchResult(answer.assignment, cost, bound, relative_gap(cost, bound), nodes, 0, reason, pool)


def _largest(tables: _Tables) -> float:
    found = max(float(t[np.isfinite(t)].max(initial=0.0)) for t in (*tables.unary, *tables.joint.values()))
    return found or 1.0


def by_milp(
    graph: FactorGraph, gap: float = 0.0, seconds: float | None = None
) -> Callable[[Array], tuple[float, Assignment | None]]:
    """For `cutting_planes(..., solve=by_milp(graph))`: the bound and the best assignment under prices.

    Where HiGHS finds none in its time, or the tables have too many entries to ask it at all, there is a bound alone.
    """

    def solve(prices: Array) -> tuple[float, Assignment | None]:
        try:
            found = solve_milp(graph, prices, gap, seconds)
        except TooWide:
            return _least(graph, prices), None
        return found.bound, found.assignment

    return solve


def _least(graph: FactorGraph, prices: Array) -> float:
    """Each table's own minimum, added up: what no assignment is below."""
    tables = graph.store.tables
    least = {i: float(tables[i].min()) for i in dict.fromkeys(graph.table_ids)}
    priced = {i: float(np.tensordot(prices, tables[i], axes=1).min()) for i in dict.fromkeys(graph.priced_ids)}
    lowest = [*(least[i] for i in graph.table_ids), *(priced[i] for i in graph.priced_ids)]
    return math.fsum(lowest) if all(map(math.isfinite, lowest)) else math.inf
