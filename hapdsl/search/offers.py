"""What a tensor may be offered as: sets of placements, and the conversions that provide them.

A reader takes any placement that follows for free from the offered ones: `R` implies every shard (slice) and partial
sums (one device keeps). So a set that the search thinks of never holds a shard beside `R`; what a person wrote may. Two
members are what is searched: a trial with three and four gave the same optima on every graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from itertools import chain, combinations, permutations
from math import inf

from hapdsl.graph.program import LOCAL, conversion
from hapdsl.theory.placements import Placement, R

Offer = tuple[Placement, ...]  # sorted
Step = tuple[Placement, Placement]
Route = tuple[float, tuple[Step, ...]]  # seconds, and conversions in order
PriceStep = Callable[[Placement, Placement], float]  # seconds of one collective
NO_SOURCES: Mapping[Placement, Placement] = {}


@cache
def alone(placement: Placement) -> Offer:
    """The set of one placement; of each there is one, as ways are told apart by the identity of what they lead to."""
    return (placement,)


@lru_cache(maxsize=4096)
def offers(readable: Offer, readers: int, made: Offer = (), wanted: Offer = ()) -> tuple[Offer, ...]:
    """All offered sets for a tensor whose `readers` (operands, not calls) can take `readable` (sorted), in a fixed order.

    Every set holds `made`; with and without each of `wanted` there is one. Cost: O(readable² × 2^wanted).
    """
    found: list[Offer] = [(p,) for p in readable]
    if R not in readable and readers:
        found.append((R,))  # gathered once, cut for each reader
    found.sort()
    for a, b in combinations(readable, 2) if readers > 1 else ():
        if not (R in (a, b) and "S" in (a.kind, b.kind)):
            found.append((a, b))
    if not made and not wanted:
        return tuple(found)
    given = [set(o) | set(made) for o in found or [()]]
    extra = chain.from_iterable(combinations(wanted, n) for n in range(len(wanted) + 1))
    every = [tuple(sorted(g | set(e))) for e in extra for g in given]
    return tuple(o for o in dict.fromkeys(every) if o or not readers)


def provides(offer: Offer, wanted: Placement) -> bool:
    """Does a reader get `wanted` from the offered set without communication?"""
    return wanted in offer or (R in offer and wanted.kind in "SP")


@cache
def feasible(source: Placement, offer: Offer, without: tuple[str, ...] = ()) -> bool:
    """Can all members of `offer` be made from `source`, without collectives of the kinds `without`?"""
    found = steps(source, offer, lambda p, q: inf if conversion(p, q) in without else 0.0)
    return found is not None and found[0] < inf


def steps(
    source: Placement, offer: Offer, price: PriceStep, sources: Mapping[Placement, Placement] = NO_SOURCES
) -> Route | None:
    """The cheapest way to make all members of `offer` from `source`: seconds and conversions in order.

    Each member is made from the source or from a member made before it; one that `sources` names, from that one alone.
    None where one can't be made. Ties go to the first in the order of members.
    """
    best: Route | None = None
    for order in _orders(offer):
        have: list[Placement] = [source]
        total = 0.0
        path: list[Step] = []
        for member in order:
            if member in have:
                continue
            options = []
            for k, p in enumerate(have):
                how = conversion(p, member)
                if how is not None and sources.get(member, p) == p:
                    options.append((0.0 if how in LOCAL else price(p, member), k, p))
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
    return (offer,) if len(offer) < 2 else permutations(offer)
