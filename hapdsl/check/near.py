"""What a person may have meant by a name that isn't there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

# Comparing a name letter by letter with every tensor of a deep model would take seconds.
MOST_COMPARED = 300


def near(name: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?`, or "" where nothing is close.

    Of dotted names first those that differ in one part (`layer.3.blok.q`), then some of about the same length.
    """
    names = list(known)
    parts = name.split(".")
    differing = (n for n in names if n.count(".") == len(parts) - 1 and _one_differs(parts, n.split(".")))
    some = (n for n in names if abs(len(n) - len(name)) <= 2)
    for candidates in (differing, some):
        found = difflib.get_close_matches(name, list(islice(candidates, MOST_COMPARED)), n=1, cutoff=0.7)
        if found:
            return f"did you mean '{found[0]}'?"
    return ""


def _one_differs(parts: list[str], other: list[str]) -> bool:
    return sum(a != b for a, b in zip(parts, other, strict=True)) == 1
