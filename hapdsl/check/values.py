"""Values as written: a tensor at a placement, `?` where the search chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hapdsl.check.names import Turn, tensor_of
from hapdsl.graph.program import Layout, Value
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error
from hapdsl.theory.placements import Placement, show


@dataclass(frozen=True)
class Pattern:
    """A tensor at a placement that may have holes: None on an axis where the text says `?`."""

    tensor: str
    placement: tuple[Placement | None, ...]

    @cached_property
    def value(self) -> Value | None:
        """The value, None where any of it is left open."""
        known = tuple(p for p in self.placement if p is not None)
        return Value(self.tensor, known) if len(known) == len(self.placement) else None

    def __str__(self) -> str:
        value = self.value
        if value is not None:
            return str(value)
        axes = ["?" if p is None else str(p) for p in self.placement]
        return f"{self.tensor}@{axes[0]}" if len(axes) == 1 else f"{self.tensor}@({', '.join(axes)})"


def pattern_of(value: nodes.Value, turn: Turn | None, graph: TrainingGraph, layout: Layout) -> Pattern:
    """What a person wrote.

    Raises HapError: HAP510 no such tensor, HAP520 wrong number of axes, HAP521 a dim that isn't there,
    HAP522 a dim that can't be sharded, HAP523 two axes cutting one dim without rows of shares.
    """
    name = tensor_of(value.name, turn, graph, value.span)
    axes = len(layout.mesh)
    if len(value.placement) == 1 and value.placement[0].kind == "?":
        return Pattern(name, (None,) * axes)
    placement = tuple(
        None if p.kind == "?" else Placement(p.kind, -1 if p.dim is None else p.dim) for p in value.placement
    )
    if len(placement) != axes:
        written = f"{value.name}@({', '.join('?' if p is None else str(p) for p in placement)})"
        raise error("HAP520", f"{written} has {len(placement)} placements, the mesh has {axes} {'axes' if axes > 1 else 'axis'}", value.span, _example(axes))  # fmt: skip
    for p in placement:
        if p is not None and p.kind == "S":
            _shardable(name, p, placement, value.span, graph, layout)
    return Pattern(name, placement)


def _example(axes: int) -> str:
    return (
        "write one: R, S(0) or P"
        if axes == 1
        else f"one entry per axis: {show((Placement('S', 0),) + (Placement('R'),) * (axes - 1))}"
    )


def _shardable(
    name: str,
    p: Placement,
    placement: Sequence[Placement | None],
    span: nodes.Span,
    graph: TrainingGraph,
    layout: Layout,
) -> None:
    tensor = graph.tensors[name]
    if not 0 <= p.dim < len(tensor.shape):
        dims = f"has {len(tensor.shape)} dims" if tensor.shape else "is a scalar"
        raise error("HAP521", f"'{name}' {dims}, there is no dim {p.dim}", span, "dims count from 0")
    cls = tensor.classes[p.dim]
    if cls is None:
        raise error("HAP522", f"dim {p.dim} of '{name}' has length 1 and can't be sharded", span, "keep it whole: R")
    if graph.classes[cls].units == 1:
        raise error(
            "HAP522", f"dim {p.dim} of '{name}' is one indivisible unit (class {cls})", span, "keep it whole: R"
        )
    axes = tuple(a for a, q in enumerate(placement) if q == p)
    if axes not in layout.shares.get(cls, {}):
        raise error("HAP523", f"dim {p.dim} of '{name}' is cut on two axes, but '{cls}' has no shares for both", span, f"shares {cls} = [[…], […]]: a row per outer position")  # fmt: skip
