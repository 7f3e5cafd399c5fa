"""What a tensor is after a part of it was overwritten."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch.fx import Node

from hapdsl.importing.atoms import Dim, size
from hapdsl.importing.build import Builder, Piece
from hapdsl.importing.constants import Constant
from hapdsl.importing.handlers import handles
from hapdsl.importing.on_layout import cast, expand, part
from hapdsl.importing.values import Extent, Value, resolved


@handles("aten.copy.default", "aten.fill.Scalar", "aten.fill.Tensor", "aten.zero.default", constants=True)
def filled(b: Builder, node: Node, x: Any, value: Any = 0, *_: Any) -> Any:
    """What a part of a tensor is after it was overwritten: a value, or a number."""
    if not isinstance(value, Value):
        return value
    return expand(b, node, cast(b, node, value))


@handles("hapdsl.laid", constants=True)
def laid(b: Builder, node: Node, owner: Any, piece: Piece, found: Any) -> Value | None:
    """A tensor with one part put in the place of its own; what is beside it goes with the dim's length."""
    d, start, stop, gone, from_end = piece
    dims = resolved(owner.dims)
    extent = owner.shape[d] if isinstance(owner, Constant) else size(dims[d])
    fill = owner.number() if isinstance(owner, Constant) else None
    new = found.number() if isinstance(found, Constant) else found
    if isinstance(new, Value):
        new = replace(new, dims=(*new.dims[:d], (), *new.dims[d:])) if gone else new
        for k, (own, other) in enumerate(zip(dims, new.dims, strict=True)):
            if k != d:
                b.tie(own, other)
        dims = resolved(owner.dims)
        new = b.logical(replace(new, dims=resolved(new.dims), stored=resolved(new.stored)))
        if stop - start == extent:
            return new
        if fill is not None:
            before, after = _up_to(dims[d], start, from_end[0]), _behind(dims[d], stop, from_end[1])
            return b.emit("pad", [new], dims, dims, dim=d, before=before, after=after, value=fill)
    if not isinstance(owner, Value) or not isinstance(new, Value | int | float):
        return None
    x = b.logical(replace(owner, dims=dims, stored=resolved(owner.stored)))
    sides = []
    for k, (first, last, ends) in enumerate(((0, start, (False, from_end[0])), (stop, extent, (from_end[1], True)))):
        if last > first:
            own = b.new_dim(("beside", k), last - first)
            beside = part(b, x, x.dims[d], first, last, own, (*x.dims[:d], own, *x.dims[d + 1 :]), ends)
            sides.append((k, b.logical(beside)))
    if isinstance(new, Value):
        joined = [v for k, v in sides if k == 0] + [new] + [v for k, v in sides if k == 1]
        return b.emit("concat", joined, dims, dims, dim=d)
    if len(sides) != 1:
        return None
    k, rest = sides[0]
    before, after = (0, _behind(dims[d], start, from_end[0])) if k == 0 else (_up_to(dims[d], stop, from_end[1]), 0)
    return b.emit("pad", [rest], dims, dims, dim=d, before=before, after=after, value=new)


def _up_to(dim: Dim, position: int, from_end: bool) -> Any:
    """How many elements stand before a position."""
    return Extent(dim, position - size(dim)) if from_end else position


def _behind(dim: Dim, position: int, from_end: bool) -> Any:
    """How many elements stand from a position on."""
    return size(dim) - position if from_end else Extent(dim, -position)
