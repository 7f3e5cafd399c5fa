"""Patterns of dims as an operator declares them: stars, merged dims, and which position each takes."""

from __future__ import annotations

from hapdsl.lang import nodes


def is_star(dims: tuple[nodes.Index, ...], name: str) -> bool:
    """Is `name` a star of this pattern?"""
    return any(i.star and i.names[0] == name for i in dims)


def written(index: nodes.Index) -> str:
    """As it stands in a declaration: `m`, `*b`, `(h e)`."""
    if index.star:
        return "*" + index.names[0]
    return index.names[0] if len(index.names) == 1 else f"({' '.join(index.names)})"


def deal(pattern: list[nodes.Index], free: list[int], cut: tuple[int, int] | None) -> dict[int, list[int]]:
    """Give the free positions to the pattern's entries in order; one star takes what is left over.

    Two stars around a seated index (`cut`) take the positions before and behind it.
    """
    stars = [k for k, i in enumerate(pattern) if i.star]
    if len(stars) == 2 and cut is not None:
        before = [p for p in free if p < cut[1]]
        return {stars[0]: before, stars[1]: free[len(before) :]}
    dealt: dict[int, list[int]] = {}
    spare = len(free) - (len(pattern) - len(stars))
    position = 0
    for k, index in enumerate(pattern):
        take = spare if index.star else 1
        dealt[k] = free[position : position + take]
        position += take
    return dealt
