"""Patterns of dims as an operator declares them: stars, merged dims, and which position each takes."""

from __future__ import annotations

from collections.abc import Mapping

from hapdsl.lang import nodes


def is_star(dims: tuple[nodes.Index, ...], name: str) -> bool:
    """Is `name` a star of this pattern?"""
    return any(i.star and i.names[0] == name for i in dims)


def written(index: nodes.Index) -> str:
    """As it stands in a declaration: `m`, `*b`, `(h e)`."""
    if index.star:
        return "*" + index.names[0]
    return index.names[0] if len(index.names) == 1 else f"({' '.join(index.names)})"


def around(dims: tuple[nodes.Index, ...], seats: Mapping[str, list[int]]) -> int | None:
    """The position of the seated index that two stars may stand around; None where there is none."""
    return next((seats[i.names[0]][0] for i in dims if i.names[0] in seats and not i.star), None)


def deal(pattern: list[nodes.Index], free: list[int], middle: int | None) -> dict[int, list[int]]:
    """Give the free positions to the pattern's entries in order; one star takes what is left over.

    Two stars around a seated index, which stands at position `middle`, take the positions before and behind it.
    """
    stars = [k for k, i in enumerate(pattern) if i.star]
    if len(stars) == 2 and middle is not None:
        before = [p for p in free if p < middle]
        return {stars[0]: before, stars[1]: free[len(before) :]}
    dealt: dict[int, list[int]] = {}
    spare = len(free) - (len(pattern) - len(stars))
    position = 0
    for k, index in enumerate(pattern):
        take = spare if index.star else 1
        dealt[k] = free[position : position + take]
        position += take
    return dealt
