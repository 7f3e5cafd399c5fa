"""Better assignments near a good one, by what their programs truly take.

The tables add up what is no sum: who waits for whom, and which conversions share a message. Where that decides, the best program isn't among the
first leaves of A*, however many are looked at; but it is often a few changes away from the best of these. So from there
variables are set to other values, with only their neighbourhood solved anew (`nearby`), and what turns out faster is gone on from.

Which values are worth a try, and in which order, the tables know: no program with a value costs less than the value's min-marginal, so one
whose marginal isn't below the best price can't be part of anything better (`hopes`). Where a bound is tight that leaves few of them.

Cost: a small elimination and a true price per try; the marginals of all variables once, about two eliminations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hapdsl.search.eliminate import Elimination
from hapdsl.search.factors import Assignment
from hapdsl.search.marginals import Marginals
from hapdsl.search.nearby import Nearby

# How far from a change other variables may follow it: nearer than for a change that somebody asks for, as there are many.
STEPS = (1, 2, 4)
PATIENCE = 100  # tries one after the other that gain nothing
LEAST = 1e-9  # of the step: what a change must gain
Hope = tuple[float, int, int]  # what assignments with it cost at least; a variable, and its value


def hopes(elimination: Elimination) -> list[Hope]:
    """The values that are allowed, those of the cheapest assignments first; of equal ones in the order of variables."""
    marginals = Marginals(elimination)
    found = []
    for variable in range(len(elimination.buckets)):
        least = marginals.of(variable)
        found += [(cost, variable, value) for value, cost in enumerate(least.tolist()) if cost < math.inf]
    return sorted(found)


def climb(
    near: Nearby,
    hopes: Sequence[Hope],
    start: Assignment,
    seconds: float,
    price: Callable[[Assignment], float],
    tries: int,
    late: Callable[[], bool] = lambda: False,
) -> tuple[Assignment, float]:
    """The best assignment found and its price, from one whose price is `seconds`, after so many tries at most."""
    best, least = start, seconds
    seen: set[Assignment] = {start}
    # `idle` hopes have been gone through since anything gained, the next one is the k-th.
    idle, k, patience = 0, 0, PATIENCE
    while idle < len(hopes):
        lowest, variable, value = hopes[k]
        k, idle = (k + 1) % len(hopes), idle + 1
        if value == best[variable] or lowest >= least * (1 - LEAST):
            continue
        if tries <= 0 or patience <= 0 or late():
            break
        tries, patience = tries - 1, patience - 1
        changed = near.changed(best, variable, value, STEPS)
        if changed is None or changed in seen:
            continue
        seen.add(changed)
        found = price(changed)
        if found < least * (1 - LEAST):
            best, least, idle, patience = changed, found, 0, PATIENCE
    return best, least
