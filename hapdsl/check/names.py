"""Names in a program: relative to a turn, through aliases, to a tensor of the training graph."""

from __future__ import annotations

from dataclasses import dataclass

from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.diagnostics import error
from hapdsl.lang.near import near
from hapdsl.lang.nodes import Span


@dataclass(frozen=True)
class Turn:
    """The turn of a program's `repeat` that a line stands in."""

    path: str
    turn: int
    count: int

    def absolute(self, relative: str) -> str:
        """`.a` is `layer.<turn>.a`, `.next.a` the next turn's; after the last turn that is plain `a`."""
        rest = relative[1:]
        turn = self.turn
        if rest.startswith("next."):
            rest, turn = rest[5:], turn + 1
        if turn < self.count:
            return f"{self.path}.{turn}.{rest}"
        outer = self.path.rpartition(".")[0]
        return f"{outer}.{rest}" if outer else rest

    def left(self, relative: str, graph: TrainingGraph) -> str | None:
        """What `.next.x` (or `.next.x.grad`) is in the last turn, where the repeat hands x on under another name: another repeat may begin with it."""
        if self.turn + 1 != self.count or not relative.startswith(".next."):
            return None
        words = f"{self.path}.{self.count}.{relative[6:]}".split(".")
        for k in range(len(words), 1, -1):
            held = graph.aliases.get(".".join(words[:k]))
            if held is not None:
                return ".".join([held, *words[k:]])
        return None


def tensor_of(name: str, turn: Turn | None, graph: TrainingGraph, span: Span) -> str:
    """The tensor that `name` stands for. Raises HapError HAP510 (no such tensor) or HAP511 (a relative name outside a repeat)."""
    full = name
    if name.startswith("."):
        if turn is None:
            raise error(
                "HAP511", f"'{name}' is relative to a turn, but stands in no repeat", span, "write the whole name"
            )
        full = turn.left(name, graph) or turn.absolute(name)
    full = graph.resolve(full)
    if full in graph.tensors:
        return full
    hint = near(full, graph.tensors, f"the model is '{graph.model}'")
    shown = full if full == name else f"{name}' = '{full}"
    raise error("HAP510", f"the model has no tensor '{shown}'", span, hint)
