"""The ranks that a collective joins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hapdsl.run.backends import GLOO, Backend

if TYPE_CHECKING:
    from hapdsl.run.levels import Levels


@dataclass(frozen=True)
class Group:
    """The ranks that a collective joins, in order; `me` is this rank's place among them. `handle` None is the world.

    `levels` says which of them share a node, where a collective asks for it.
    """

    ranks: tuple[int, ...]
    me: int
    handle: Any = None
    levels: Levels | None = None
    backend: Backend = GLOO

    @property
    def size(self) -> int:
        return len(self.ranks)
