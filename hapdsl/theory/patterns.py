"""Patterns of dims as an operator declares them: stars, and which position each entry takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hapdsl.lang import nodes

# An entry of a pattern, and the positions that it takes.
Laid = tuple[nodes.Index, list[int]]


def is_star(dims: tuple[nodes.Index, ...], name: str) -> bool:
    """Is `name` a star of this pattern?"""
    return any(i.star and i.names[0] == name for i in dims)


def free_stars(dims: tuple[nodes.Index, ...], seated: Collection[str]) -> list[int]:
    """The places in a pattern of the stars that no `at` statement seats."""
    return [k for k, i in enumerate(dims) if i.star and i.names[0] not in seated]


def parting(dims: tuple[nodes.Index, ...], seated: Collection[str]) -> int | None:
    """The place in a pattern of the seated index between its two free stars, which tells their dims apart; None where there is no such thing."""
    stars = free_stars(dims, seated)
    between = range(stars[0] + 1, stars[1]) if len(stars) == 2 else ()
    return next((k for k in between if dims[k].names[0] in seated and not dims[k].star), None)


def deal(dims: tuple[nodes.Index, ...], seats: Mapping[str, list[int]], free: list[int]) -> list[Laid] | None:
    """Give the free positions to the entries of a pattern that have no seat, in order; a star takes what is left over.

    Two stars around a seated index do so before it and behind it. None where there are too few positions, or too many.
    """
    place = parting(dims, seats)
    if place is None:
        return _in_order([i for i in dims if i.names[0] not in seats], free)
    middle = seats[dims[place].names[0]][0]
    before, behind = deal(dims[:place], seats, [p for p in free if p < middle]), deal(dims[place + 1 :], seats, [p for p in free if p > middle])  # fmt: skip
    return None if before is None or behind is None else before + behind


def _in_order(entries: Sequence[nodes.Index], free: list[int]) -> list[Laid] | None:
    """The same for entries with one star at most."""
    stars = sum(i.star for i in entries)
    spare = len(free) - (len(entries) - stars)
    if spare < 0 or (spare and not stars):
        return None
    dealt: list[Laid] = []
    start = 0
    for entry in entries:
        stop = start + (spare if entry.star else 1)
        dealt.append((entry, free[start:stop]))
        start = stop
    return dealt
