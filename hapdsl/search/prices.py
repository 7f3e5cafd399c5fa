"""The best prices: the Lagrangian dual over a factor graph with priced components, by cutting planes (Kelley 1960).

The true cost takes, stage by stage, the slowest device; a sum over stages of a maximum is at least any weighted mean of
the devices' own sums. So every price vector that sums to one over the devices gives a graph whose minimum is a lower
bound, and the bound as a function of the prices is concave: the minimum of one linear function per assignment. Each
solve yields the function of its minimiser, a *cut*; a small linear program finds where the cuts found so far leave
most room, which is where to solve next. Two to seven solves are usual. The minimisers are plans worth pricing truly.

(Multiplicative updates are no substitute: from a corner of the simplex a price of zero stays zero.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog

from hapdsl.search.eliminate import MAX_CELLS, Elimination, eliminate
from hapdsl.search.factors import Array, Assignment, FactorGraph
from hapdsl.search.removal import order

# Minimises the graph under prices: a proven lower bound, and a (nearly) cheapest assignment, None where there is none.
Solve = Callable[[Array], tuple[float, Assignment | None]]

# Tables of the best prices are kept beside those of the prices at hand up to so many bytes; larger ones are made anew in the end.
BESIDE = 1 << 26

# A graph so small (cells, and a thousand per variable for the handling) is also solved at every corner to begin with.
CHEAP = 1e6


@dataclass(frozen=True, slots=True)
class Pricing:
    """What the cutting planes found.

    `bound` is proven: the minimum of the graph at `prices`. `ceiling` is what the best prices could still reach, as
    far as the cuts tell. `minimisers` are the distinct assignments seen, in the order they came. `solves` counts
    minimisations. `reason` is "converged", "iterations", "infeasible", "cutoff" or "cancelled"; or "linear program" where
    HiGHS gave up, which leaves the bound as it was. `elimination` is the solved graph at `prices`, for A* to go on
    with (None where another `solve` was used, or where it was cancelled and the tables are large).
    """

    prices: Array
    bound: float
    ceiling: float
    minimisers: tuple[Assignment, ...]
    solves: int
    reason: str
    elimination: Elimination | None


class _Domain:
    """Where prices live: per group a simplex, and boxes `[0, ceiling]` for components outside groups."""

    def __init__(
        self, count: int, groups: Sequence[Sequence[int]] | None, ceilings: Mapping[int, float] | None
    ) -> None:
        self.count = count
        self.boxes = dict(ceilings or {})
        if groups is None:
            rest = [k for k in range(count) if k not in self.boxes]
            groups = [rest] if rest else []
        self.groups = [list(group) for group in groups]
        named = [k for group in self.groups for k in group] + list(self.boxes)
        if sorted(named) != list(range(count)) or not all(self.groups):
            raise ValueError(f"every one of {count} components belongs to one group or has a ceiling, not {named}")
        if any(not (0 <= c < math.inf) for c in self.boxes.values()):
            raise ValueError("a price's ceiling is a finite number of zero or more")

    def centre(self) -> Array:
        prices = np.zeros(self.count)
        for group in self.groups:
            prices[group] = 1 / len(group)
        return prices

    def corners(self) -> list[Array]:
        """Per grouped component, its group's whole weight on it, the other groups at their centre."""
        result = []
        for group in self.groups:
            for k in group if len(group) > 1 else ():
                prices = self.centre()
                prices[group] = 0.0
                prices[k] = 1.0
                result.append(prices)
        return result

    def project(self, prices: Array) -> Array:
        """Take away what a linear program's tolerance leaves; the bound must be at prices that really sum to one."""
        result = np.maximum(prices, 0.0)
        for group in self.groups:
            total = result[group].sum()
            result[group] = result[group] / total if total > 0 else 1 / len(group)
        for k, ceiling in self.boxes.items():
            result[k] = min(result[k], ceiling)
        return result


@dataclass(frozen=True, slots=True)
class _Cut:
    """No prices give a bound above `constant + slopes @ prices`: this is what one assignment costs under them."""

    constant: float
    slopes: Array


def _highest(cuts: Sequence[_Cut], domain: _Domain, scale: float) -> tuple[Array, float] | None:
    """The prices where the cuts allow the highest bound, and that bound; None where HiGHS finds none.

    Solved in units of `scale` (the bound at hand) and of the boxes' ceilings, so that numbers are near one.
    """
    count = domain.count
    unit = np.array([domain.boxes.get(k, 1.0) or 1.0 for k in range(count)])
    rows = np.array([[1.0, *(-cut.slopes * unit / scale)] for cut in cuts])
    limits = np.array([cut.constant / scale for cut in cuts])
    sums = np.zeros((len(domain.groups), count + 1))
    for i, group in enumerate(domain.groups):
        sums[i, [k + 1 for k in group]] = 1.0
    bounds = [(None, None)] + [(0.0, 1.0 if domain.boxes.get(k, 1.0) else 0.0) for k in range(count)]
    answer = linprog(
        [-1.0] + [0.0] * count,
        A_ub=rows,
        b_ub=limits,
        A_eq=sums if domain.groups else None,
        b_eq=np.ones(len(domain.groups)) if domain.groups else None,
        bounds=bounds,
        method="highs",
    )
    if answer.status != 0 or answer.x is None:
        return None
    return domain.project(np.asarray(answer.x[1:]) * unit), float(answer.x[0]) * scale


def cutting_planes(
    graph: FactorGraph,
    groups: Sequence[Sequence[int]] | None = None,
    ceilings: Mapping[int, float] | None = None,
    starts: Sequence[ArrayLike] = (),
    tolerance: float = 1e-4,
    iterations: int = 8,
    max_cells: float = MAX_CELLS,
    solve: Solve | None = None,
    cancelled: Callable[[], bool] | None = None,
    cutoff: float = math.inf,
) -> Pricing:
    """Maximise, over the prices, the minimum over assignments of `plain + sum_k prices[k] * component k`.

    The prices of each of `groups` (default: one group of all) are non-negative and sum to one; a component in no group
    has a price between 0 and its entry in `ceilings` (a price per byte over a limit, say). Starts from even prices,
    from `starts`, and from each corner where the graph is small; then makes at most `iterations` cuts, and stops
    when the bound can't rise by more than `tolerance`, relatively, or has reached `cutoff`: what costs that much is of no use.

    `solve` replaces elimination (for graphs that are too wide). Raises TooWide as `eliminate` does, ValueError where
    groups, ceilings and components don't fit.
    """
    domain = _Domain(graph.components, groups, ceilings)
    kept: list[Elimination] = []
    best_solved: Elimination | None = None
    plan = graph.order
    if solve is None and plan is None:
        plan = order(graph)

    def by_elimination(prices: Array) -> tuple[float, Assignment | None]:
        nonlocal best_solved
        if best_solved is not None and best_solved.bytes > BESIDE:
            best_solved = None
        kept.clear()
        solved = eliminate(graph, prices, order=plan, max_cells=max_cells)
        kept.append(solved)
        return solved.bound, solved.best() if solved.feasible else None

    minimise = solve or by_elimination
    cuts: dict[Assignment, _Cut] = {}  # also the minimisers, in order
    best_bound, best_prices = -math.inf, domain.centre()
    solves = 0
    ceiling = math.inf

    def look(prices: Array) -> bool:
        """Solve at these prices; False where nothing is allowed."""
        nonlocal best_bound, best_prices, best_solved, solves
        solves += 1
        bound, assignment = minimise(prices)
        if bound > best_bound:
            best_bound, best_prices = bound, prices
            best_solved = kept[0] if kept else None
        if assignment is not None and assignment not in cuts:
            cuts[assignment] = _Cut(graph.plain(assignment), graph.component_sums(assignment))
        return assignment is not None

    def result(reason: str) -> Pricing:
        nonlocal best_solved
        if solve is None and best_solved is None and reason != "cancelled":
            kept.clear()
            best_solved = eliminate(graph, best_prices, order=plan, max_cells=max_cells)
        return Pricing(best_prices, best_bound, ceiling, tuple(cuts), solves, reason, best_solved)

    first = [domain.centre(), *(domain.project(graph.checked_prices(s)) for s in starts)]
    if plan is not None and solve is None and plan.total + 1000 * len(graph.sizes) <= CHEAP:
        first += domain.corners()
    for prices in first:
        if cancelled is not None and solves and cancelled():
            return result("cancelled")
        if not look(prices):
            return result("infeasible")
        if best_bound >= cutoff:
            return result("cutoff")
    for made in range(iterations + 1):
        scale = abs(best_bound) or max(
            1e-12, *(abs(cut.constant) + np.abs(cut.slopes).max(initial=0.0) for cut in cuts.values())
        )
        highest = _highest(list(cuts.values()), domain, scale)
        if highest is None:
            return result("linear program")
        target, ceiling = highest
        ceiling = max(ceiling, best_bound)
        if ceiling - best_bound <= tolerance * max(abs(ceiling), abs(best_bound)):
            return result("converged")
        if made == iterations:
            break
        if cancelled is not None and cancelled():
            return result("cancelled")
        look(target)
        if best_bound >= cutoff:
            return result("cutoff")
    return result("iterations")
