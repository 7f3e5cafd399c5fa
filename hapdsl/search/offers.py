"""What a tensor may be offered as: sets of placements, and the conversions that provide them.

A reader takes any placement that follows for free from the offered ones: `R` implies every shard (slice) and partial
sums (one device keeps). So a set never holds a shard beside `R`. Two members are enough: a trial with three and four gave
the same optima on every graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import combinations
from math import inf

from hapdsl.graph.program import LOCAL, conversion
from hapdsl.theory.placements import Placement, R

Offer = tuple[Placement, ...]  # sorted
Step = tuple[Placement, Placement]
PriceStep = Callable[[Placement, Placement], float]  # seconds of one collective


@lru_cache(maxsize=4096)
def offers(readable: tuple[Placement, ...], readers: int) -> tuple[Offer, ...]:
    """All offered sets for a tensor whose readers can take `readable` (sorted), in a fixed order."""
    singles: list[Offer] = [(p,) for p in readable]
    if R not in readable:
        singles.append((R,))  # gathered once, cut for each reader
    pairs: list[Offer] = []
    if readers > 1:
        for a, b in combinations(readable, 2):
            if R in (a, b) and "S" in (a.kind, b.kind):
                continue
            pairs.append((a, b))
    return tuple(sorted(singles) + pairs)


def provides(offer: Offer, wanted: Placement) -> bool:
    """Does a reader get `wanted` from the offered set without communication?"""
    return wanted in offer or (R in offer and wanted.kind in "SP")


@lru_cache(maxsize=None)
def feasible(source: Placement, offer: Offer, without: str | None = None) -> bool:
    """Can all members of `offer` be made from `source`, without a conversion of the kind `without`?"""
    found = steps(source, offer, lambda p, q: inf if conversion(p, q) == without else 0.0)
    return found is not None and found[0] < inf


def steps(source: Placement, offer: Offer, price: PriceStep) -> tuple[float, tuple[Step, ...]] | None:
    """The cheapest way to make all members of `offer` from `source`: seconds and conversions in order.

    Each member is made from the source or from a member made before it. None where one can't be made.
    Ties go to the first in the order of members.
    """
    best: tuple[float, tuple[Step, ...]] | None = None
    for order in _orders(offer):
        have: list[Placement] = [source]
        total, path = 0.0, []
        for member in order:
            if member in have:
                continue
            options = [(0.0 if how in LOCAL else price(p, member), k, p) for k, p in enumerate(have) if (how := conversion(p, member))]
            if not options:
                break
            seconds, _, origin = min(options)
            total += seconds
            path.append((origin, member))
            have.append(member)
        else:
            if best is None or total < best[0]:
                best = (total, tuple(path))
    return best


def _orders(offer: Offer) -> Iterable[Offer]:
    return (offer,) if len(offer) < 2 else (offer, offer[::-1])
