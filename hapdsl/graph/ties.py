"""Sets of what is tied together, found pair by pair."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Ties(Generic[T]):
    """Disjoint sets. Of two that are tied the smaller moves, so n members move O(n log n) times in all.

    Our own: networkx has it, too, but to import that takes a fifth of a second, in every process that reads a model.
    """

    def __init__(self) -> None:
        self._sets: dict[T, list[T]] = {}

    def add(self, member: T) -> list[T]:
        """The set of a member: itself, until it is tied."""
        return self._sets.setdefault(member, [member])

    def tie(self, one: T, other: T) -> None:
        larger, smaller = self.add(one), self.add(other)
        if larger is smaller:
            return
        if len(larger) < len(smaller):
            larger, smaller = smaller, larger
        larger += smaller
        for member in smaller:
            self._sets[member] = larger

    def sets(self) -> Iterable[list[T]]:
        """All sets, in the order of their first members."""
        return {id(found): found for found in self._sets.values()}.values()
