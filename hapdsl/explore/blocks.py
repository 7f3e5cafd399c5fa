"""Blocks of a text, `… {` to `}`, found by their braces alone: so also where a text doesn't parse."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hapdsl.lang.lines import alike

_MARKS = re.compile(r'"(?:[^"\\]|\\.)*"?|#.*|[{}]')
_REPEAT = re.compile(r"\s*repeat\b")


def blocks(lines: Sequence[str]) -> dict[int, int]:
    """Of each block over several lines, the row that opens it (from 0) and the last row that folding hides.

    The row that closes a block is hidden with it unless something else stands behind the brace.
    """
    found: dict[int, int] = {}
    opened: list[int] = []
    for row, line in enumerate(lines):
        if "{" not in line and "}" not in line:
            continue
        for mark in _MARKS.finditer(line):
            if mark[0] == "{":
                opened.append(row)
            elif mark[0] == "}" and opened:
                behind = line[mark.end() :].lstrip()
                last = row if not behind or behind.startswith("#") else row - 1
                if last > (first := opened.pop()):
                    found[first] = last  # of two that open in one row the outer one, which closes later
    return found


def around(found: Mapping[int, int], row: int) -> int | None:
    """The row that opens the innermost block around a row."""
    return max((first for first, last in found.items() if first <= row <= last), default=None)


def repeats(lines: Sequence[str], found: Mapping[int, int]) -> list[int]:
    """The rows that open rolled layers."""
    return [row for row in sorted(found) if _REPEAT.match(lines[row])]


def changed(before: Sequence[str], after: Sequence[str]) -> tuple[int, int, int]:
    """Which rows differ, from and to (not including it), and how many more there are afterwards."""
    head, tail = alike(before, after)
    return head, len(before) - tail, len(after) - len(before)


def carried(folds: set[int], before: Sequence[str], after: Sequence[str]) -> set[int]:
    """Which blocks stay folded when a text has changed: those around the change move along, in it the same ones by their number if there are as many."""
    head, last, by = changed(before, after)
    old, new = blocks(before), blocks(after)
    then = sorted(r for r in old if head <= r < last)
    now = sorted(r for r in new if head <= r < last + by)
    moved = dict(zip(then, now, strict=True)) if len(then) == len(now) else {}
    rows = (r if r < head else r + by if r >= last else moved.get(r) for r in folds)
    return {r for r in rows if r in new}
