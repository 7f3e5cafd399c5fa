"""Where the lines of a text went when it was changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from hapdsl.lang.lines import alike

_T = TypeVar("_T")


@lru_cache(maxsize=16)
def moved(old: str, new: str) -> Move:
    """Where lines of a text went: those before and behind what changed keep their place in order."""
    before, after = old.split("\n"), new.split("\n")
    head, tail = alike(before, after)
    return Move(head, len(before) - tail, len(after) - len(before))


@dataclass(frozen=True)
class Move:
    """Lines up to `head` stay, lines behind `tail` shift by `by`; those between were changed."""

    head: int
    tail: int
    by: int

    def carried(self, costs: Mapping[int, _T]) -> dict[int, _T]:
        """What is known by line, where the lines are now."""
        if self.by:
            return {new: cost for old, cost in costs.items() if (new := self(old)) is not None}
        found = dict(costs)  # a key in a line moves no other: thousands of lines are copied at once
        for line in range(self.head + 1, self.tail + 1):
            found.pop(line, None)
        return found

    def __call__(self, line: int) -> int | None:
        if line <= self.head:
            return line
        return line + self.by if line > self.tail else None
