"""Messages too quiet for the rounds, counted after all: each kind that the programs at hand send, until they send no other.

A message whose latency is a small part of the step is left out of the rounds' bound, as each flag doubles tables. What spares a few of them gains less
than the gap that is asked for; but sharding all alike, as people do, spares many. So in the end, in small graphs, the kinds that the best program
sends are counted, then those that the new best one sends instead, and so on; also kinds that are counted by parts, of which many messages may be
sent: one at most, but whole. Whatever is left out of a count only lowers the bound, so each is a bound.

Cost: per turn a structure and what the planner spends on one space; nothing where graphs or tables are large.
"""

from __future__ import annotations

from hapdsl.search.messages import SHARED
from hapdsl.search.pairs import Pair
from hapdsl.search.spaces import Spaces

TURNS = 4
CALLS, CELLS = 600, 5e7  # graphs, and tables in all, up to which it is done


def listen(spaces: Spaces, pair: Pair) -> float:
    """A bound for a pair's shares; better programs than the best at hand are kept."""
    bound, heard = 0.0, spaces.heavy
    if len(spaces.training.nodes) > CALLS or spaces.paid:
        return bound
    every = spaces.structure(tuple(m for m in SHARED if m in spaces.audible or m in spaces.once))
    for _ in range(TURNS):
        try:
            assignment = every.assignment(pair.choice)
        except ValueError:
            break  # choices of a space with ways to save memory
        sent = {kind for kind, flag in every.flags.items() if assignment[flag]}
        louder = tuple(m for m in every.messages if m in heard or m in sent)
        if set(louder) <= set(heard) or spaces.clock.late() or spaces.structure(louder).order.total > CELLS:
            break
        solved, heard = spaces.solve(pair.shares, louder), louder
        bound = max(bound, solved.pricing.bound)
        found = [spaces.pair(solved, a) for a in solved.pricing.minimisers]
        if not found:
            break
        spaces.pairs.fastest(found)
        pair = min(found, key=lambda p: p.seconds)
    return bound
