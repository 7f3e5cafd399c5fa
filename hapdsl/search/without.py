"""Programs that do without a kind of shared message: where a latency isn't counted in full, whether it is worth its while is asked by forbidding it.

Where tables would be too wide for flags, or many messages of a kind may be sent, the bound knows little of latencies or nothing, and its
minimisers send messages for the sake of a few bytes less: no program among the first leaves does without. A flag doubles tables; forbidding a kind
(flag down) leaves them as they are, as what needs the message stands over the same variables as its price. So here one kind after the other that the programs at
hand send is forbidden, the dearest first, and the cheapest of what is left is priced. What is forbidden only raises the least cost: when that has reached the
best program, all that is left is worse.

Cost: an elimination per kind, TURNS at most; where a model's gradients must be sent one way or another, the first shows that it is of no use.
"""

from __future__ import annotations

import numpy as np

from hapdsl.search.eliminate import TooWide, eliminate
from hapdsl.search.flags import needs
from hapdsl.search.messages import SHARED, Split
from hapdsl.search.pairs import Pair
from hapdsl.search.spaces import Spaces

TURNS = 5
PATIENCE = 2  # of them, of which none gave a better program, after which it ends; one is enough after one that did


def do_without(spaces: Spaces, pair: Pair) -> None:
    """Look for better programs under a pair's shares; what is better than the best at hand is kept."""
    solved = spaces.solve(pair.shares, spaces.heavy, spaces.paid)
    space, prices = solved.space, solved.pricing.prices
    assignment = solved.assignment(pair.choice)
    if not assignment or not solved.by_tables or spaces.paid:
        return
    latencies = Split(spaces.cluster, 1.0, 1.0)
    counted = space.structure.flags.keys()
    graph, best, patience = space.graph.copy(), pair.seconds, PATIENCE
    forbidden: set[str] = set()
    for _ in range(TURNS):
        where = {kind: needs(space.structure, kind) for kind in SHARED if kind not in counted and kind not in forbidden}
        sent = [k for k, each in where.items() if any(needed[tuple(assignment[v] for v in at)] for at, needed in each)]
        if not sent or not patience or spaces.clock.late():
            return
        dearest = max(sent, key=latencies.floor)
        forbidden.add(dearest)
        for at, needed in where[dearest]:
            graph.factor(at, np.where(needed, np.inf, 0.0))
        try:
            left = eliminate(graph, prices)
        except TooWide:
            return
        if left.bound >= best:  # also where nothing is left
            return
        assignment = left.best()
        found = spaces.pair(solved, assignment)
        patience -= 1
        if found.seconds < best and spaces.pairs.fits(found):
            best, patience = found.seconds, 1
            spaces.pairs.keep(found)
