"""Elements by their numbers: indexing by tensors, gather, rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from hapdsl.importing.atoms import leaves, root, size
from hapdsl.importing.build import Builder
from hapdsl.importing.constants import Constant
from hapdsl.importing.handlers import handles
from hapdsl.importing.lengths import Length
from hapdsl.importing.on_layout import as_value, slice_
from hapdsl.importing.on_matrices import embedding
from hapdsl.importing.on_numbers import Operand, fresh
from hapdsl.importing.values import Dim, Extent, Value, flat, resolved
from hapdsl.theory.dtypes import FLOATS

ONE_BY_ONE = "index one dim at a time, or gather along one dim"


@handles("aten.index.Tensor", constants=True)
def index(b: Builder, node: Node, x: Operand, where: Sequence[Any]) -> Value:
    """Each dim by all its positions, along dims that are broadcast: a view. Rows of a table by their numbers: an embedding. One dim
    by a tensor, others by all their positions: what stands there."""
    x = fresh(as_value(b, x))
    given = {d: p for d, p in enumerate(where) if p is not None}
    for positions in given.values():
        _no_mask(b, positions)
    if len(given) == 1:
        ((d, positions),) = given.items()
        if isinstance(positions, Constant) and (run := _run(positions)) is not None:
            part: Value = slice_(b, node, x, d, *run)
            return part
        if d == 0 and len(x.dims) > 1:
            return rows_of(b, node, x, positions)
    rank = max(len(_shape(p)) for p in given.values())
    free = [d for d, p in given.items() if not _counts(p, x.dims[d])]
    if len(free) > 1:
        raise b.refuse("indexing of several dims by tensors at once", ONE_BY_ONE)
    taken = _numbers(b, given[free[0]], x.dims[free[0]]) if free else None
    own: list[Dim] = [()] * rank  # the dims of the index that counts no dim, broadcast
    if taken is not None:
        own[rank - len(taken.dims) :] = taken.dims
    counted: dict[int, int] = {}  # which dim of x is counted along one of all indices, broadcast
    for d, p in given.items():
        if d not in free and leaves(x.dims[d]):
            place = p.positions()[1] - len(p.shape) + rank
            if place in counted:
                raise b.refuse("a diagonal, two dims counted by one index,", "take one element of each row by gather")
            counted[place] = d
            if leaves(own[place]):
                b.tie(x.dims[d], own[place])
    x = fresh(x)
    shared = {id(a) for d in counted.values() for a in x.dims[d]}
    along = [x.dims[counted[k]] if k in counted else () for k in range(rank)]
    found = x
    if taken is not None:
        taken = _read_along(b, fresh(taken), along[rank - len(taken.dims) :], shared)
        found, atoms = looked_up(b, x, free[0], taken, shared)
        own[rank - len(taken.dims) :] = _with_names(taken.dims, atoms, shared)
        along = [dim or leaves(o) for dim, o in zip(along, own, strict=True)]
    along = [dim or _repeated(b, k - rank, given.values()) for k, dim in enumerate(along)]
    # as numpy has it: where the indexed dims stand, or in front if these are apart
    first, last = min(given), max(given)
    at = first if len(given) == last - first + 1 else 0
    rest = [leaves(dim) for d, dim in enumerate(x.dims) if d not in given]
    return replace(found, dims=(*rest[:at], *along, *rest[at:]))


def _read_along(b: Builder, index: Value, along: Sequence[Dim], shared: set[int]) -> Value:
    """An index with the dims of x where it is read along these (a square's rows and columns are two dims of one extent); what else it has
    are dims of its own."""
    dims = [
        dim if dim and own else tuple(b.second(a, "own") if id(a) in shared else a for a in own)
        for own, dim in zip(resolved(index.dims), along, strict=True)
    ]
    return b.renamed(index, dims)


def _with_names(dims: Sequence[Dim], atoms: Dim, shared: set[int]) -> list[Dim]:
    """Dims of an index as they are in the result, where its own atoms may be others."""
    names = iter(atoms)
    return [tuple(a if id(a) in shared else next(names) for a in dim) for dim in dims]


def _repeated(b: Builder, place: int, indices: Iterable[Operand]) -> Dim:
    """A dim that only indices of a dim of 1 have: its one element again and again."""
    sizes = [shape[place] for p in indices if len(shape := _shape(p)) >= -place]
    return b.new_dim(("repeated", place), max(sizes, default=1)) if max(sizes, default=1) > 1 else ()


def _shape(positions: Operand) -> tuple[int, ...]:
    return positions.shape if isinstance(positions, Constant) else tuple(size(d) for d in positions.dims)


def _counts(positions: Operand, dim: Dim) -> bool:
    """Are these all positions of a dim in their order?"""
    if not isinstance(positions, Constant):
        return False
    if not leaves(dim):
        return positions.number() == 0
    found = positions.positions()
    return found is not None and found[0] == 0 and positions.shape[found[1]] == size(dim)


def _run(positions: Constant) -> tuple[int, int | None] | None:
    """Start and end of positions that follow one another, in one row; the last one may be called -1."""
    numbers = [int(n) for n in positions.tensor] if len(positions.shape) == 1 else []
    if not numbers or numbers != list(range(numbers[0], numbers[0] + len(numbers))) or numbers[0] < 0 <= numbers[-1]:
        return None
    return numbers[0], numbers[-1] + 1 or None


def _no_mask(b: Builder, positions: Operand) -> None:
    """An index is whole numbers. Raises HapError HAP877."""
    dtype = positions.dtype if isinstance(positions, Value) else b.dtype(positions.node.meta["val"])
    if dtype in FLOATS or dtype == "bool":
        raise b.refuse("indexing by a mask", "choose by torch.where, or multiply by the mask")


def _checked(b: Builder, positions: Operand, dim: Dim) -> None:
    """An index is counted from 0. Raises HapError HAP877."""
    _no_mask(b, positions)
    if isinstance(positions, Constant) and bool((positions.tensor < 0).any()):
        raise b.refuse("indexing by negative numbers in a tensor", f"count from the start: {size(dim)} more")


def _numbers(b: Builder, positions: Operand, dim: Dim) -> Value:
    _checked(b, positions, dim)
    return as_value(b, positions)


def rows_of(b: Builder, node: Node, x: Value, positions: Operand) -> Value:
    """x[positions], whatever stands behind the first dim: an embedding."""
    if len(x.dims) == 2:
        _checked(b, positions, x.dims[0])
        found: Value = embedding(b, node, x, positions)
        return found
    ids = fresh(_numbers(b, positions, x.dims[0]))
    rest = x.dims[1:]
    if not {id(a) for a in flat(x.dims)} <= {id(a) for a in x.atoms}:
        x = b.logical(x)
    table = b.fits(x, (x.dims[0], flat(rest)))
    ids, own = _apart(b, ids, {id(root(a)) for a in flat(rest)})
    return b.emit("embedding", [ids, table], (*own, *rest), (*ids.stored, flat(rest)), table.dtype)


def looked_up(b: Builder, x: Value, d: int, index: Value, shared: set[int]) -> tuple[Value, Dim]:
    """The elements of x along dim d that the index names, row by row along the `shared` atoms, which both have; and the index' own atoms,
    major first, as they are in the result. That is stored [what x has besides, the index' own]; who calls says how it is seen."""
    needed = {id(a) for a in x.dims[d]} | shared
    if not needed <= {id(a) for a in x.atoms}:
        x = b.logical(x)
    x = b.last(x, [x.dims[d]])
    own = tuple(a for dim in index.dims for a in dim if id(a) not in shared)
    held = {id(a) for a in index.atoms}
    if any(0 < sum(id(a) in shared and id(a) in held for a in s) < len(s) for s in x.stored[:-1]):
        x = b.fits(x, (*((a,) for a in flat(x.stored[:-1])), x.stored[-1]))
    taken = {id(root(a)) for s in x.stored[:-1] for a in s}
    twins = {id(a): b.second(a, "taken") if id(root(a)) in taken else a for a in own}
    index = b.renamed(index, [tuple(twins.get(id(a), a) for a in dim) for dim in index.dims])
    own = tuple(twins[id(a)] for a in own)
    rows = tuple(s if s and id(s[0]) in held & shared else () for s in x.stored[:-1])
    while rows and not rows[0]:
        rows = rows[1:]  # dims align from the right
    if not own:
        return b.emit("pick", [x, b.fits(index, rows)], (), x.stored[:-1], x.dtype), own
    return b.emit("gather", [x, b.fits(index, (*rows, own))], (), (*x.stored[:-1], own), x.dtype), own


def _apart(b: Builder, ids: Value, taken: set[int]) -> tuple[Value, tuple[Dim, ...]]:
    """Numbers whose dims are other indices than those that are taken, and these dims."""
    dims = tuple(tuple(b.second(a, "taken") if id(root(a)) in taken else a for a in dim) for dim in ids.dims)
    return b.renamed(ids, dims), dims


@handles("aten.index_select.default", constants=True)
def index_select(b: Builder, node: Node, x: Operand, d: int, where: Operand) -> Value:
    """The listed positions along one dim."""
    rank = len(node.meta["val"].shape)
    found: Value = index(b, node, x, [*[None] * (d % rank), where])
    return found


@handles("aten.gather.default", "aten.take_along_dim.default", constants=True)
def gather(b: Builder, node: Node, x: Operand, index: Operand, d: Any = None, **_: Any) -> Value | Constant:
    """Some elements of each row along dim d. Of what is one number everywhere that number."""
    if isinstance(index, int):
        index, d = d, index  # `gather` has the dim first
    if isinstance(x, Constant) and (same := x.number()) is not None:
        made: torch.Tensor = node.meta["val"]
        b.constants.known[node], b.constants.values[node] = True, torch.full(made.shape, same, dtype=made.dtype)
        return b.constant(node)
    if not isinstance(d, int):
        raise b.refuse("take_along_dim of all elements", "flatten first, and say dim = 0")
    x = as_value(b, x)
    d %= max(1, len(x.dims))
    index = _numbers(b, index, x.dims[d])
    shared: list[Dim] = []
    for k, (own, other) in enumerate(zip(x.dims, index.dims, strict=True)):
        if k != d and leaves(own) and leaves(other):
            if size(own) != size(other):
                raise b.refuse("gather from a part of the rows", "slice the tensor to the rows first")
            b.tie(own, other)
            shared.append(own)
        elif k != d and leaves(own) and "gather" in str(node.target):
            raise b.refuse("gather from a part of the rows", "slice the tensor to the rows first")
    x, index = fresh(x), fresh(index)
    ids = {id(a) for dim in resolved(shared) for a in dim}
    along = [
        own if k != d and leaves(other) else () for k, (own, other) in enumerate(zip(x.dims, index.dims, strict=True))
    ]
    index = _read_along(b, index, along, ids)
    found, atoms = looked_up(b, x, d, index, ids)
    names = _with_names(index.dims, atoms, ids)
    dims = [dim if k == d else dim or own for k, (dim, own) in enumerate(zip(names, x.dims, strict=True))]
    return replace(found, dims=tuple(dims))


@handles("aten.one_hot.default")
def one_hot(b: Builder, node: Node, x: Value, count: int = -1) -> Value:
    """1 at the number, 0 elsewhere."""
    x = fresh(x)
    made = b.new_dim("classes", int(node.meta["val"].shape[-1]))
    if isinstance(count, Length) and count.row is not None:
        b.measure(made, [(count.row[0],)], count.row[1])
    return b.emit("one_hot", [x], (*x.dims, made), (*x.stored, made), "i64", classes=Extent(made))
