"""What a person may have meant by a name that isn't there: the one place where names are compared, and the one way to ask."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

# Comparing a name letter by letter with every tensor of a deep model would take seconds.
MOST_COMPARED = 300
ALIKE = 0.66  # of difflib's ratio, 1 for equal names: two letters swapped in three; less proposes words that share but a few letters


def near(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """`did you mean 'x'?` for the closest of the known names, `otherwise` where none is close."""
    found = closest(name, known)
    return meant(found[0]) if found else otherwise


def meant(name: str) -> str:
    """The question itself; the explorer's quick fix reads the name out of it."""
    return f"did you mean '{name}'?"


def closest(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Known names that `name` nearly is, the closest first, `most` at the most.

    Of dotted names first those that differ in one part (`layer.3.blok.q`), then any; of very many names only some of about the same length.
    """
    names = list(known)
    parts = name.split(".")
    differing = (n for n in names if n.count(".") == len(parts) - 1 and _one_differs(parts, n.split(".")))
    some = names if len(names) <= MOST_COMPARED else (n for n in names if abs(len(n) - len(name)) <= 2)
    for candidates in (differing, some) if len(parts) > 1 else (some,):
        found = difflib.get_close_matches(name, list(islice(candidates, MOST_COMPARED)), most, ALIKE)
        if found:
            return found
    return []


def _one_differs(parts: list[str], other: list[str]) -> bool:
    return sum(a != b for a, b in zip(parts, other, strict=True)) == 1
