"""Better assignments near a good one, by what their programs truly take.

The tables add up what is no sum: who waits for whom, and which conversions share a message. Where that decides, the best program isn't among the
first leaves of A*, however many are looked at; but it is often a few changes away from the best of these. So from there
each variable is set to each of its other values, with only its neighbourhood solved anew (`nearby`), and what turns out faster is gone on from.

Cost: a small elimination and a true price per try.
"""

from __future__ import annotations

from collections.abc import Callable

from hapdsl.search.factors import Assignment
from hapdsl.search.nearby import Nearby

LEAST = 1e-9  # of the step: what a change must gain


def climb(
    near: Nearby,
    start: Assignment,
    seconds: float,
    price: Callable[[Assignment], float],
    tries: int,
    late: Callable[[], bool] = lambda: False,
) -> tuple[Assignment, float]:
    """The best assignment found and its price, from one whose price is `seconds`, after so many tries at most."""
    best, least = start, seconds
    seen: set[Assignment] = {start}
    sizes = near.graph.sizes
    idle, v = 0, 0  # how many variables have been gone through since anything gained
    while idle < len(sizes):
        gained = False
        for value in range(sizes[v]):
            if tries <= 0 or late():
                return best, least
            if value == best[v]:
                continue
            tries -= 1
            changed = near.changed(best, v, value)
            if changed is None or changed in seen:
                continue
            seen.add(changed)
            found = price(changed)
            if found < least * (1 - LEAST):
                best, least, gained = changed, found, True
        idle = 0 if gained else idle + 1
        v = (v + 1) % len(sizes)
    return best, least
