"""Better shares for a program: the other half of the alternation (paper §3, eq. 2)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hapdsl.search.pairs import Pair, Pairs, shares_key
from hapdsl.search.sharemodel import propose
from hapdsl.search.shares import Shares, Stages, descend

MOVES = 24


def reshare(pair: Pair, under: Callable[[Shares], Pair], pairs: Pairs, fixed: Shares) -> Shares:
    """Better shares for the program of a pair: proposals of the linear program, then moves of units.

    `under` puts the program under other shares; `fixed` are given. The synchronous cost is priced over merged stages; what looks better must
    also fit, where memory isn't plenty. The overlapped cost is priced by the whole evaluator, and so is the answer in any case.
    """
    candidate = pair.candidate()
    cost = candidate.cost
    stages = Stages(candidate.program, pairs.cluster, pair.scheduler.pricer)
    costs: dict[tuple[object, ...], tuple[float, np.ndarray]] = {}

    def exactly(shares: Shares) -> tuple[float, np.ndarray]:
        found = pairs.fastest([under(shares)])
        return (np.inf if found is None else found.seconds), stages.seconds(shares)[1]

    roomy = bool((cost.memory_bytes * 2 <= cost.capacity_bytes).all())
    least = np.inf

    def merged(shares: Shares) -> tuple[float, np.ndarray]:
        nonlocal least
        seconds, busy = stages.seconds(shares)
        if seconds < least:
            if not roomy and not pairs.fits(under(shares)):
                return np.inf, busy
            least = seconds
        return seconds, busy

    price = merged if pairs.objective == "sync" else exactly

    def look(shares: Shares) -> tuple[float, np.ndarray]:
        key = shares_key(shares)
        if key not in costs:
            costs[key] = price(shares)
        return costs[key]

    memory = None if roomy else cost.memory
    options = [pair.shares, *propose(candidate.program, pairs.cluster, fixed, stages, memory)]
    best = min(options, key=lambda s: look(s)[0])
    free = [c for c in pairs.training.classes if c not in fixed]
    best, _ = descend(best, look(best)[0], lambda s: look(s)[0], free, lambda s: look(s)[1], MOVES)
    return best if exactly(best)[0] <= pair.seconds else pair.shares
