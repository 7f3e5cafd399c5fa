"""How a tensor lies on one mesh axis: replicated, sharded on a dim, or as partial sums."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from hapdsl.lang import nodes


@dataclass(frozen=True, slots=True, order=True)
class Placement:
    """`R`, `S(dim)` or `P` on one mesh axis (DTensor: Replicate, Shard(dim), Partial)."""

    kind: str
    dim: int = -1

    def __str__(self) -> str:
        return f"S({self.dim})" if self.kind == "S" else self.kind


R = Placement("R")
P = Placement("P")


@cache
def S(dim: int) -> Placement:
    """Sharded on `dim`; of each dim there is one, so that most comparisons end at a glance."""
    return Placement("S", dim)


# One entry per mesh axis; most programs have one axis.
Placements = tuple[Placement, ...]


def show(placements: Placements) -> str:
    """As it stands behind `@`: `S(0)`, or `(S(0), R)` on several axes."""
    return str(placements[0]) if len(placements) == 1 else "(" + ", ".join(map(str, placements)) + ")"


def to_nodes(placements: Placements) -> tuple[nodes.Placed, ...]:
    """The tree of a placement, for printing."""
    return tuple(nodes.Placed(p.kind, p.dim if p.kind == "S" else None) for p in placements)
