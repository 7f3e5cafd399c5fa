"""Views, permutations, parts and joins. Most of them move nothing: they only say how a stored tensor is seen."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from torch.fx import Node

from hapdsl.importing.atoms import Atom, Dim, leaves, size
from hapdsl.importing.build import Builder
from hapdsl.importing.constants import Constant
from hapdsl.importing.handlers import handles
from hapdsl.importing.lengths import REST, Length
from hapdsl.importing.values import Either, Extent, Layout, Value, flat, resolved
from hapdsl.theory.dtypes import FLOATS


def shape_of(node: Node) -> tuple[int, ...]:
    """The shape of what an operator makes."""
    return tuple(int(n) for n in node.meta["val"].shape)


@handles(
    "aten.contiguous.default", "aten.alias.default", "aten.clone.default", "aten.lift_fresh_copy.default",
    "aten.to.device", "aten.positive.default",
)  # fmt: skip
def same(b: Builder, node: Node, x: Value, *_: Any, **__: Any) -> Value:
    return x


@handles("aten.detach.default")
def detach(b: Builder, node: Node, x: Value) -> Value:
    """What depends on no parameter passes no gradient anyway."""
    x = replace(x, dims=resolved(x.dims), stored=resolved(x.stored))
    return b.emit("detach", [x], x.dims, x.stored) if x.dtype in FLOATS and b.depends_on_parameters(x) else x


@handles(
    "aten.to.dtype",
    "aten.to.dtype_layout",
    "aten._to_copy.default",
    "aten.type_as.default",
    "aten.to.other",
    "aten.float.default",
)
def cast(b: Builder, node: Node, x: Value, *_: Any, **__: Any) -> Value:
    dtype = b.dtype(node.meta["val"])
    return x if dtype == x.dtype else b.emit("cast", [x], x.dims, x.stored, dtype, to=dtype)


@handles("aten._assert_tensor_metadata.default", "aten._assert_async.msg", "aten.sym_constrain_range_for_size.default")
def nothing(b: Builder, node: Node, *_: Any, **__: Any) -> None:
    return None


@handles("<built-in function getitem>")
def item(b: Builder, node: Node, values: Sequence[Value], k: int) -> Value:
    return values[k]


assert str(operator.getitem) == "<built-in function getitem>"


@handles("aten.view.default", "aten.reshape.default", "aten.flatten.using_ints", "aten.unflatten.int", "aten._unsafe_view.default", "aten.view_as.default", "aten.reshape_as.default")  # fmt: skip
def view(b: Builder, node: Node, x: Value, *_: Any, **__: Any) -> Value:
    """Row-major: both shapes are rows of the same atoms. Where they don't nest, the elements are really rearranged."""
    shape = shape_of(node)
    dims = tuple(b.new_dim(d, n) for d, n in enumerate(shape))
    before = resolved(x.dims)
    if b.ties.tie(flat(before), flat(dims)):
        found = _grouped(flat(resolved(before)), shape) or resolved(dims)
        return _joined_sides(b, Value(x.tensor, found, resolved(x.stored), x.dtype))
    x = b.logical(replace(x, dims=before))
    return b.emit("reshape", [x], dims, dims, shape=[Extent(d) for d in dims])


def _grouped(atoms: Dim, shape: Sequence[int]) -> Layout | None:
    """A value's own atoms as the dims of another shape: of two indices over one extent each stays where it is."""
    left, found = list(atoms), []
    for extent in shape:
        row: list[Atom] = []
        while left and size(row) < extent:
            row.append(left.pop(0))
        found.append(tuple(row))
    return tuple(found) if tuple(map(size, found)) == tuple(shape) else None


def _joined_sides(b: Builder, x: Value) -> Value:
    """Height and width seen as one dim are one from here on: patches of an image are a sequence."""
    places = [d for d, dim in enumerate(x.dims) if len(dim) > 1 and all(a.side for a in dim)]
    if not places or any(not {id(a) for a in x.dims[d]} <= {id(a) for a in x.atoms} for d in places):
        return x
    for d in places:
        sides = x.dims[d]
        x, at = b.isolated(x, sides)
        made = b.new_dim(("sides", d), size(sides))
        x = replace(x, dims=(*x.dims[:d], made, *x.dims[d + 1 :]), stored=(*x.stored[:at], made, *x.stored[at + 1 :]))
    return x


@handles("aten.permute.default")
def permute(b: Builder, node: Node, x: Value, order: Sequence[int]) -> Value:
    return replace(x, dims=tuple(x.dims[d] for d in order))


@handles("aten.transpose.int", "aten.swapaxes.default")
def transpose(b: Builder, node: Node, x: Value, i: int, j: int) -> Value:
    dims = list(x.dims)
    dims[i], dims[j] = dims[j], dims[i]
    return replace(x, dims=tuple(dims))


@handles("aten.numpy_T.default")
def reversed_(b: Builder, node: Node, x: Value) -> Value:
    return replace(x, dims=x.dims[::-1])


@handles("aten.t.default", "aten.mT.default")
def turned(b: Builder, node: Node, x: Value) -> Value:
    return replace(x, dims=(*x.dims[:-2], *x.dims[:-3:-1])) if len(x.dims) > 1 else x


@handles("aten.unsqueeze.default")
def unsqueeze(b: Builder, node: Node, x: Value, d: int) -> Value:
    dims = list(x.dims)
    dims.insert(d % (len(dims) + 1), ())
    return replace(x, dims=tuple(dims))


@handles("aten.squeeze.dim", "aten.squeeze.dims", "aten.squeeze.default")
def squeeze(b: Builder, node: Node, x: Value, d: int | Sequence[int] | None = None) -> Value:
    places = range(len(x.dims)) if d is None else [d] if isinstance(d, int) else d
    gone = {p % max(1, len(x.dims)) for p in places if not leaves(x.dims[p])}
    return replace(x, dims=tuple(dim for k, dim in enumerate(x.dims) if k not in gone))


@handles("aten.expand.default", "aten.expand_as.default", "aten.broadcast_to.default")
def expand(b: Builder, node: Node, x: Value, *_: Any, **__: Any) -> Value:
    """Repeats without storing: an atom that the stored tensor lacks."""
    shape = shape_of(node)
    own = (*((),) * (len(shape) - len(x.dims)), *x.dims)
    beside = {id(a) for d in own for a in leaves(d)}
    dims = tuple(leaves(d) or b.again(k, n, beside) for k, (d, n) in enumerate(zip(own, shape, strict=True)))
    b.measured_by(node, dims)
    return replace(x, dims=dims)


@handles("aten.broadcast_tensors.default")
def broadcast_tensors(b: Builder, node: Node, values: Sequence[Value]) -> tuple[Value, ...]:
    """All with the dims of their common result; equal dims are tied."""
    values = [as_value(b, v) for v in values]
    named, dims = b.broadcast(values)
    return tuple(replace(v, dims=dims) for v in named)


@handles("aten.repeat.default", "aten.tile.default")
def repeat(b: Builder, node: Node, x: Value, counts: Sequence[int]) -> Value:
    """All of a dim again and again: behind an atom that the stored tensor lacks."""
    rank = max(len(counts), len(x.dims))
    times = (*(1,) * (rank - len(counts)), *counts)
    own = (*((),) * (rank - len(x.dims)), *x.dims)
    _some(b, times)
    beside = {id(a) for d in own for a in leaves(d)}
    dims = tuple((*_again(b, k, n, beside), *leaves(d)) for k, (n, d) in enumerate(zip(times, own, strict=True)))
    return replace(x, dims=dims)


@handles("aten.repeat_interleave.self_int")
def repeat_interleave(b: Builder, node: Node, x: Value, n: int, d: int | None = None, **_: Any) -> Value:
    """Each element of a dim so many times: before an atom that the stored tensor lacks."""
    if d is None and len(x.dims) != 1:
        raise b.refuse("repeat_interleave of all dims as one", "say along which dim")
    _some(b, [n])
    at, dims = (d or 0) % len(x.dims), list(resolved(x.dims))
    dims[at] = (*dims[at], *_again(b, "each", n, {id(a) for dim in dims for a in dim}))
    return replace(x, dims=tuple(dims))


def _again(b: Builder, key: Hashable, n: int, beside: set[int]) -> Dim:
    """`Layouts.again`, where the number may be a length."""
    found = b.again(key, int(n), beside)
    if isinstance(n, Length) and n.row is not None and leaves((n.row[0],)) != found:
        b.measure(found, [(n.row[0],)], n.row[1])
    return found


def _some(b: Builder, times: Sequence[int]) -> None:
    if min(times) < 1:
        raise b.refuse("a tensor without elements", "leave it out")


@handles("aten.roll.default")
def roll(b: Builder, node: Node, x: Value, shifts: Any, dims: Any = ()) -> Value:
    """The end of a dim in front of its start."""
    if dims == ():
        raise b.refuse("roll over all dims at once", "say along which dim")
    for by, d in zip(*((v,) if isinstance(v, int) else v for v in (shifts, dims)), strict=True):
        x = replace(x, dims=resolved(x.dims), stored=resolved(x.stored))
        extent, back = size(x.dims[d]), by > 0
        by %= extent
        if by:
            d %= len(x.dims)
            parts = []
            for k, (start, stop) in enumerate(((extent - by, extent), (0, extent - by))):
                made = b.new_dim(("rolled", d, k), stop - start)
                ends = (back and k == 0, back and k == 1)
                parts.append(part(b, x, x.dims[d], start, stop, made, (*x.dims[:d], made, *x.dims[d + 1 :]), ends))
            whole = x.dims[d]
            laid = [b.logical(p) for p in parts]
            stored = (*laid[0].dims[:d], whole, *laid[0].dims[d + 1 :])
            x = b.emit("concat", laid, stored, stored, dim=d)
    return x


# -- parts ------------------------------------------------------------------------------


def part(
    b: Builder,
    x: Value,
    dim: Dim,
    start: int,
    stop: int,
    result: Dim,
    dims: Layout,
    from_end: tuple[bool, bool] = (False, False),
    said: tuple[Any, Any] = (None, None),
) -> Value:
    """Elements start to stop of one dim; `dims` is how the module sees the result. `from_end` says which of both are counted from the
    dim's end, and go with it where its length is a parameter; which of them were `said` as a length goes with that."""
    x, place = b.isolated(x, dim)
    stored = (*x.stored[:place], result, *x.stored[place + 1 :])
    extent = size(dim)
    first: Any = Extent(dim, start - extent) if from_end[0] else start
    end: Any = Extent(result, start)
    if stop >= extent or from_end[1]:
        end = Either(Extent(dim, min(0, stop - extent)), end)
    first, end = (s if isinstance(s, Length) else own for s, own in zip(said, (first, end), strict=True))
    _measured(b, dim, start, stop, result, (from_end[0], from_end[1] or stop >= extent), said)
    return b.emit("slice", [x], dims, stored, inner=True, dim=place, start=first, stop=end)


def _measured(
    b: Builder, dim: Dim, start: int, stop: int, result: Dim, from_end: tuple[bool, bool], said: tuple[Any, Any]
) -> None:
    """Note the length of a part whose ends go with lengths."""
    if from_end[0] == from_end[1] and not any(isinstance(s, Length) for s in said):
        return
    rows: list[tuple[Dim, int]] = []
    plus = 0
    for at, back, word, sign in ((stop, from_end[1], said[1], 1), (start, from_end[0], said[0], -1)):
        if isinstance(word, Length):
            if word.row is None:
                return
            rows.append(((word.row[0],), sign))
            plus += sign * word.row[1]
        elif back:
            rows.append((dim, sign))
            plus += sign * (at - size(dim))
        else:
            plus += sign * at
    if rows and all(sign == 1 for _, sign in rows):
        b.measure(result, [row for row, _ in rows], plus)


@handles("aten.slice.Tensor")
def slice_(
    b: Builder, node: Node, x: Value, d: int = 0, start: int | None = 0, end: int | None = None, step: int = 1
) -> Value:
    x = replace(x, dims=resolved(x.dims), stored=resolved(x.stored))
    d %= len(x.dims)
    extent, said = size(x.dims[d]), (start, end)
    from_end = ((start or 0) < 0, end is not None and end < 0)
    start = int(max(0, (start or 0) + (extent if (start or 0) < 0 else 0)))
    stop = extent if end is None else int(min(extent, end + (extent if end < 0 else 0)))
    if stop <= start:
        raise b.refuse("a slice without elements", "leave it out")
    if step != 1:
        return _every(b, x, d, start, stop, step)
    if start == 0 and stop >= extent and not isinstance(end, Length):
        return x
    result = b.new_dim("part", stop - start)
    return part(b, x, x.dims[d], start, stop, result, (*x.dims[:d], result, *x.dims[d + 1 :]), from_end, said)


def _every(b: Builder, x: Value, d: int, start: int, stop: int, step: int) -> Value:
    """Each so manieth element: one column of the dim seen as rows of `step`."""
    extent = size(x.dims[d])
    if extent % step or start >= step or stop <= extent - step + start:
        raise b.refuse(
            f"a slice by steps of {step} of a dim of {extent}", "take steps that divide it, from beginning to end"
        )
    rows, columns = b.new_dim("rows", extent // step), b.new_dim("columns", step)
    b.tie(x.dims[d], (*rows, *columns))
    x = replace(x, dims=resolved(x.dims), stored=resolved(x.stored))
    return part(b, x, leaves(columns), start, start + 1, (), (*x.dims[:d], leaves(rows), *x.dims[d + 1 :]))


@handles("aten.select.int")
def select(b: Builder, node: Node, x: Value, d: int, k: int) -> Value:
    x = replace(x, dims=resolved(x.dims), stored=resolved(x.stored))
    d %= len(x.dims)
    rest = (*x.dims[:d], *x.dims[d + 1 :])
    if not x.dims[d]:
        return replace(x, dims=rest)
    back = k < 0
    k %= size(x.dims[d])
    return part(b, x, x.dims[d], k, k + 1, (), rest, (back, back))


@handles("aten.unbind.int")
def unbind(b: Builder, node: Node, x: Value, d: int = 0) -> tuple[Value, ...]:
    x = replace(x, dims=resolved(x.dims), stored=resolved(x.stored))
    if _alone(b, x, x.dims[d % len(x.dims)]):
        x, _ = b.isolated(x, x.dims[d % len(x.dims)])
    return tuple(select(b, node, x, d, k) for k in range(size(x.dims[d])))


def _alone(b: Builder, x: Value, dim: Dim) -> bool:
    return bool(dim) and {id(a) for a in dim} <= {id(a) for a in x.atoms}


@handles("aten.chunk.default", "aten.split.Tensor", "aten.split_with_sizes.default", "aten.split.sizes")
def split(b: Builder, node: Node, x: Value, sizes: Any, d: int = 0) -> tuple[Value, ...]:
    """Equal parts are a dim of their own: three projections in one are (3, heads, …)."""
    x = replace(x, dims=resolved(x.dims), stored=resolved(x.stored))
    d %= len(x.dims)
    lengths = [int(v.shape[d]) for v in node.meta["val"]]
    count = len(lengths)
    if count == 1:
        return (x,)
    if len(set(lengths)) == 1 and not (isinstance(sizes, list | tuple) and REST in sizes):
        parts, within = b.new_dim("parts", count), b.new_dim("within", lengths[0])
        if b.ties.tie(x.dims[d], (*parts, *within)):
            x = replace(x, dims=resolved(x.dims), stored=resolved(x.stored))
            parts, within = leaves(parts), leaves(within)
            dims = (*x.dims[:d], within, *x.dims[d + 1 :])
            return tuple(part(b, x, parts, k, k + 1, (), dims) for k in range(count))
    found, start = [], 0
    rest = list(sizes).index(REST) if isinstance(sizes, list | tuple) and REST in sizes else count
    for k, n in enumerate(lengths):
        result = b.new_dim(("part", k), n)
        dims = (*x.dims[:d], result, *x.dims[d + 1 :])
        found.append(part(b, x, x.dims[d], start, start + n, result, dims, (k > rest, k >= rest)))
        start += n
    return tuple(found)


@handles("aten.cat.default", "aten.concat.default")
def cat(b: Builder, node: Node, values: Sequence[Value], d: int = 0) -> Value:
    values = [as_value(b, v) for v in values]
    rank = len(shape_of(node))
    d %= rank
    for k in range(rank):
        if k != d:
            for other in values[1:]:
                b.tie(values[0].dims[k], other.dims[k])
    laid = [b.logical(replace(v, dims=resolved(v.dims), stored=resolved(v.stored))) for v in values]
    joined = b.new_dim("joined", shape_of(node)[d])
    b.measure(joined, [v.dims[d] for v in laid])
    dims = (*laid[0].dims[:d], joined, *laid[0].dims[d + 1 :])
    return b.emit("concat", laid, dims, dims, dim=d)


@handles("aten.stack.default")
def stack(b: Builder, node: Node, values: Sequence[Value], d: int = 0) -> Value:
    laid = [unsqueeze(b, node, as_value(b, v), d) for v in values]
    found: Value = cat(b, node, laid, d)
    return found


def as_value(b: Builder, x: Any) -> Value:
    """A value; a constant becomes a tensor of the text (see `Builder.table`)."""
    if not isinstance(x, Value | Constant):
        raise b.refuse("an operand that is no tensor")
    return x if isinstance(x, Value) else b.table(x)
