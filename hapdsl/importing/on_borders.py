"""What is laid around a tensor: one number, or its own elements mirrored, repeated, or taken from the other side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch.fx import Node

from hapdsl.importing.atoms import size
from hapdsl.importing.build import Builder
from hapdsl.importing.handlers import handles
from hapdsl.importing.on_layout import part
from hapdsl.importing.on_numbers import fresh
from hapdsl.importing.values import Layout, Value
from hapdsl.theory.dtypes import FLOATS


@handles("aten.pad.default", "aten.constant_pad_nd.default")
def pad(
    b: Builder, node: Node, x: Value, amounts: Sequence[int], *rest: Any, value: float | None = None, **other: Any
) -> Value:
    """Amounts are those before and after, of the last dim first; what is negative is cut off."""
    words = [r for r in (*rest, other.get("mode")) if isinstance(r, str)]
    mode = words[0] if words else "constant"
    numbers = [r for r in rest if isinstance(r, int | float)]
    fill = value if value is not None else numbers[0] if numbers else 0
    fill = int(fill) if x.dtype not in FLOATS else fill
    if mode != "constant" and mode not in BORDERS:
        raise b.refuse(f'padding in the mode "{mode}"', f"known: constant, {', '.join(BORDERS)}")
    x = b.logical(fresh(x))
    for k in range(len(amounts) // 2):
        before, after = amounts[2 * k], amounts[2 * k + 1]
        d = len(x.dims) - 1 - k
        x = _cut(b, x, d, max(0, -before), max(0, -after))
        before, after = max(0, before), max(0, after)
        if not before and not after:
            continue
        made = b.new_dim(("padded", k), size(x.dims[d]) + before + after)
        b.measure(made, [x.dims[d]], before + after)
        dims = (*x.dims[:d], made, *x.dims[d + 1 :])
        if mode == "constant":
            x = b.emit("pad", [x], dims, dims, dim=d, before=before, after=after, value=fill)
        else:
            border = BORDERS[mode]
            left = [border(b, x, d, before, False)] if before else []
            right = [border(b, x, d, after, True)] if after else []
            x = b.emit("concat", [*left, x, *right], dims, dims, dim=d)
    return x


def _cut(b: Builder, x: Value, d: int, before: int, after: int) -> Value:
    """Without so many elements at the beginning and at the end of a dim."""
    if not before and not after:
        return x
    stop = size(x.dims[d]) - after
    return _piece(b, x, d, before, stop, "cut", (False, True))


def _piece(b: Builder, x: Value, d: int, start: int, stop: int, key: str, from_end: tuple[bool, bool]) -> Value:
    """Elements start to stop of dim d, stored as they are seen."""
    made = b.new_dim((key, d), stop - start)
    return b.logical(part(b, x, x.dims[d], start, stop, made, _with(x.dims, d, made), from_end))


def _with(dims: Layout, d: int, dim: Any) -> Layout:
    return (*dims[:d], dim, *dims[d + 1 :])


def _mirrored(b: Builder, x: Value, d: int, count: int, at_end: bool) -> Value:
    """Without the outermost element itself."""
    end = size(x.dims[d]) - 1
    start, stop = (end - count, end) if at_end else (1, count + 1)
    found = _piece(b, x, d, start, stop, f"mirrored {at_end}", (at_end, at_end))
    return b.emit("flip", [found], found.dims, found.stored, inner=True, dim=d)


def _repeated(b: Builder, x: Value, d: int, count: int, at_end: bool) -> Value:
    """The outermost element, so many times."""
    end = size(x.dims[d])
    start = end - 1 if at_end else 0
    one = part(b, x, x.dims[d], start, start + 1, (), _with(x.dims, d, ()), (at_end, at_end))
    if count == 1:
        return b.logical(one)
    return b.logical(replace(one, dims=_with(one.dims, d, b.new_dim((f"repeated {at_end}", d), count))))


def _from_the_other_side(b: Builder, x: Value, d: int, count: int, at_end: bool) -> Value:
    end = size(x.dims[d])
    start, stop = (0, count) if at_end else (end - count, end)
    return _piece(b, x, d, start, stop, f"around {at_end}", (not at_end, not at_end))


BORDERS: Mapping[str, Callable[[Builder, Value, int, int, bool], Value]] = {
    "reflect": _mirrored,
    "replicate": _repeated,
    "circular": _from_the_other_side,
}
