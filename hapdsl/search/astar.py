"""A* over the complete assignments of an eliminated graph, under their true cost.

Where the additive cost is only a lower bound of the true one, `best_first` takes assignments in the order of the bound (`hapdsl.search.enumeration`),
prices every one truly, and stops when the bound meets the best.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from hapdsl.lang.diagnostics import Diagnostic, HapError
from hapdsl.search.eliminate import Elimination
from hapdsl.search.enumeration import k_best
from hapdsl.search.factors import Assignment

# Sums of the same numbers in another order differ by some 1e-15 of them; a closed gap may be off by this much.
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Limits:
    """When to give up: nodes, leaves (true evaluations), wall-clock seconds; None is without limit."""

    nodes: int | None = None
    leaves: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What `best_first` found.

    `assignment` is None and `cost` inf where no allowed assignment has been found; `bound` is proven for every
    assignment; `gap = (cost - bound) / cost`. `reason` is "gap" (as close as asked for), "exhausted" (every
    assignment was looked at), "nodes", "leaves", "seconds" or "cancelled" (milp.py, which gives the same kind of
    answer, also has "solver": HiGHS gave up). `pool` holds the cheapest leaves seen, `(true cost, assignment)`,
    best first, the incumbent among them.
    """

    assignment: Assignment | None
    cost: float
    bound: float
    gap: float
    nodes: int
    leaves: int
    reason: str
    pool: tuple[tuple[float, Assignment], ...] = ()


class FalseBound(HapError):
    """HAP690: a program costs less than its bound, so this is wrong. A fault of hapdsl's own, which nobody may take for a problem without answer."""

    def __init__(self, cost: float, bound: float) -> None:
        said = f"internal error: a plan costs {cost!r} s, below its proven bound of {bound!r} s"
        help = "the bound is false; please report it with the files at hand"
        super().__init__(Diagnostic("HAP690", said, help=help))


def relative_gap(cost: float, bound: float) -> float:
    """`(cost - bound) / cost`, 0 where they meet up to rounding, inf where there is no cost to speak of."""
    if not math.isfinite(cost):
        return math.inf
    if cost - bound <= ROUNDING * abs(cost):
        return 0.0
    return (cost - bound) / cost if cost > 0 else math.inf


def best_first(
    elimination: Elimination,
    evaluate: Callable[[Assignment], float],
    gap: float = 0.0,
    limits: Limits = Limits(),
    cancelled: Callable[[], bool] | None = None,
    incumbent: tuple[float, Assignment] | None = None,
    keep: int = 1,
    progress: Callable[[float, float, int], None] | None = None,
    heuristic: str = "elimination",
) -> SearchResult:
    """Find an assignment whose true cost is within `gap` of the least, under a bound that the elimination gives.

    `evaluate` prices an assignment truly (inf: not allowed after all) and must never go below the additive cost; where
    it does, the bound is false and HAP690 is raised, an error of hapdsl's own. `incumbent` is a known (true cost,
    assignment) to beat. The search can be stopped at any time by `limits` or `cancelled` and then says how far it
    came; `progress(best cost, bound, leaves)` hears of every improvement. `keep` is the length of `pool`.
    """
    started = time.monotonic()
    pool: list[tuple[float, int, Assignment]] = []  # heap by descending cost, then descending age
    best: Assignment | None = None
    cost = math.inf
    evaluated = 0

    def stop() -> str | None:
        if cancelled is not None and cancelled():
            return "cancelled"
        if limits.nodes is not None and leaves.nodes > limits.nodes:
            return "nodes"
        if limits.seconds is not None and time.monotonic() - started > limits.seconds:
            return "seconds"
        return None

    leaves = k_best(elimination, heuristic, stop)

    def record(found: float, assignment: Assignment) -> None:
        entry = (-found, -evaluated, assignment)
        if all(assignment != other for _, _, other in pool) and math.isfinite(found):
            (heapq.heappush if len(pool) < max(keep, 1) else heapq.heappushpop)(pool, entry)

    if incumbent is not None:
        cost, best = incumbent
        record(cost, best)
    reason: str | None
    for bound, leaf in leaves:
        closed = best is not None and relative_gap(cost, bound) <= gap
        enough = limits.leaves is not None and evaluated >= limits.leaves
        if reason := "gap" if closed else "leaves" if enough else stop():
            break
        true = evaluate(leaf)
        if not true >= bound - 1e-9 * max(abs(bound), abs(true) if math.isfinite(true) else 0.0):
            raise FalseBound(true, bound)
        evaluated += 1
        record(true, leaf)
        if true < cost:
            cost, best = true, leaf
            if progress is not None:
                progress(cost, min(bound, cost), evaluated)
    else:
        reason = leaves.stopped or "exhausted"
    bound = cost if reason == "exhausted" else min(leaves.bound, cost)
    ranked = tuple((-c, a) for c, _, a in sorted(pool, reverse=True))
    return SearchResult(best, cost, bound, relative_gap(cost, bound), leaves.nodes, evaluated, reason, ranked)
