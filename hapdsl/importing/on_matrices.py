"""Products, embeddings and normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from hapdsl.importing.atoms import Dim, leaves, root, size
from hapdsl.importing.build import Builder
from hapdsl.importing.constants import Constant
from hapdsl.importing.handlers import handles
from hapdsl.importing.on_layout import as_value
from hapdsl.importing.on_numbers import fresh, reduced, rsqrt, shifted
from hapdsl.importing.values import Extent, Layout, Notation, Value, flat, same_atoms, same_layout
from hapdsl.lang import nodes
from hapdsl.theory.library import standard


@handles("aten.linear.default")
def linear(b: Builder, node: Node, x: Value, w: Value, bias: Value | None = None) -> Value:
    y = contract(b, x, w, 0)
    return y if bias is None else b.pointwise("add", [y, fresh(bias)])


@handles("aten.addmm.default")
def addmm(b: Builder, node: Node, bias: Value, x: Value, w: Value, **scales: Any) -> Value:
    if any(s != 1 for s in scales.values()):
        raise b.refuse("addmm with factors")
    return b.pointwise("add", [contract(b, x, w, 1), fresh(bias)])


@handles(
    "aten.mm.default",
    "aten.bmm.default",
    "aten.matmul.default",
    "aten.mv.default",
    "aten.dot.default",
    "aten.vdot.default",
)
def matmul(b: Builder, node: Node, x: Value, w: Value) -> Value:
    x, w = fresh(as_value(b, x)), fresh(as_value(b, w))
    if len(w.dims) == 1:
        rows = "abcdefgh"[: len(x.dims) - 1]
        along: Value = einsum(b, node, f"{rows}i,i->{rows}", [x, w])
        return along
    if len(w.dims) == 2 and len(x.dims) >= 1:
        return contract(b, x, w, 1)
    if len(x.dims) < 2 or len(w.dims) < 2:
        raise b.refuse("a product of a vector and a batch of matrices")
    return batched(b, x, w)


def contract(b: Builder, x: Value, w: Value, rows_at: int) -> Value:
    """x w over the last dim of x and the other dim of w than `rows_at`, which is the result's."""
    b.tie(x.dims[-1], w.dims[1 - rows_at])
    x, w = fresh(x), fresh(w)
    summed, columns, rows = x.dims[-1], w.dims[1 - rows_at], w.dims[rows_at]
    kept = {id(root(a)) for d in x.dims[:-1] for a in d}
    result = tuple(b.second(a) if id(root(a)) in kept else root(a) for a in rows)
    dims = (*x.dims[:-1], result)
    if not {id(a) for a in summed} <= {id(a) for a in x.atoms}:
        x = b.logical(x)
    if any(not d for d in x.stored):
        x = b.fits(x, tuple(d for d in x.stored if d))
    turned = same_layout(w.stored, (w.dims[1], w.dims[0]))
    plain = turned or same_layout(w.stored, w.dims)
    if plain and len(rows) <= 1 and len(summed) == 1 and len(x.stored) > 1 and same_atoms(x.stored[-1], summed):
        op = "matmul_nt" if (rows_at == 0) != turned else "matmul"
        return b.emit(op, [x, w], dims, (*x.stored[:-1], result), inner=True)
    x = b.fits(x, tuple(s for d in x.stored for s in _apart(d, summed)))
    w = b.fits(w, tuple((a,) for a in w.atoms))
    own = [d for d in x.stored if d and not any(a is d[0] for a in summed)]
    order = [a for d in x.dims for a in d]
    own.sort(key=lambda d: next(k for k, a in enumerate(order) if a is d[0]))
    # the notation has a letter for each index, also where two of them run over one dim
    sums = {id(a) for a in summed}
    letters = tuple(b.second(a, "letter") if id(a) in sums else a for a in result)
    word = {id(c): s for c, s in zip(columns, summed, strict=True)} | {
        id(r): t for r, t in zip(rows, letters, strict=True)
    }
    written = tuple((word[id(a)],) for a in w.atoms)
    spec = Notation((x.stored, written), (*own, *((a,) for a in letters)), letters=True)
    return b.emit("einsum", [x, w], dims, (*own, *((a,) for a in result)), inner=True, spec=spec)


def _apart(dim: Dim, columns: Dim) -> list[Dim]:
    """A stored dim, its atoms apart where some of them are summed."""
    if len(dim) > 1 and any(a is c for a in dim for c in columns):
        return [(a,) for a in dim]
    return [dim]


def batched(b: Builder, x: Value, y: Value) -> Value:
    """Matrix by matrix over leading dims."""
    ours, theirs = x.dims[:-2], y.dims[:-2]
    for own, other in zip(ours[::-1], theirs[::-1], strict=False):
        if leaves(own) and leaves(other):
            b.tie(own, other)
    b.tie(x.dims[-1], y.dims[-2])
    x, y = fresh(x), fresh(y)
    rank = max(len(x.dims), len(y.dims))
    batch: list[Dim] = []
    for place in range(rank - 2):
        own, other = (v.dims[at] if (at := place - rank + len(v.dims)) >= 0 else () for v in (x, y))
        batch.append(own or other)
    m, k, n = x.dims[-2], x.dims[-1], y.dims[-1]
    taken = {id(root(a)) for a in (*flat(batch), *m)}
    result = tuple(b.second(a) if id(root(a)) in taken else a for a in n)
    laid = b.fits(replace(x, dims=(*batch, m, k)), (*batch, m, k))
    dims = (*batch, m, result)
    summed = y.dims[-2]  # as long as k, but perhaps its twin
    if same_layout(y.stored, (*batch, n, summed)):
        return b.emit("bmm_nt", [laid, y], dims, dims)
    right = b.fits(replace(y, dims=(*batch, summed, n)), (*batch, summed, n))
    return b.emit("bmm", [laid, right], dims, dims)


@handles("aten.einsum.default")
def einsum(b: Builder, node: Node, spec: str, operands: Sequence[Value], **__: Any) -> Value:
    """The module's own notation, over the dims as the module sees them."""
    left, arrow, right = spec.replace(" ", "").partition("->")
    terms = left.split(",")
    if "." in spec or not arrow:
        raise b.refuse(f'einsum "{spec}"', "name every dim, and the output's")
    if any(len(set(term)) < len(term) for term in terms):
        raise b.refuse(f'einsum "{spec}", which reads a diagonal,', "take one element of each row by gather")
    values = [fresh(as_value(b, v)) for v in operands]
    letters: dict[str, Dim] = {}
    for term, v in zip(terms, values, strict=True):
        for letter, dim in zip(term, v.dims, strict=True):
            b.tie(letters.setdefault(letter, dim), dim)
    values = [b.logical(fresh(v)) for v in values]
    dims: list[Dim] = []
    for letter in right:
        taken = {id(a) for d in dims for a in d}
        dims.append(tuple(b.second(a, letter) if id(a) in taken else a for a in leaves(letters[letter])))
    return b.emit("einsum", values, tuple(dims), tuple(dims), spec=f"{left}->{right}")


@handles("aten.bilinear.default")
def bilinear(b: Builder, node: Node, x: Value, y: Value, w: Value, bias: Value | None = None) -> Value:
    """x w[k] y for each k: first x with all of w [k, i, j], then the result with y."""
    rows = "abcdefgh"[: len(x.dims) - 1]
    half: Value = einsum(b, node, f"{rows}i,kij->{rows}kj", [x, w])
    made: Value = einsum(b, node, f"{rows}kj,{rows}j->{rows}k", [half, y])
    return made if bias is None else b.pointwise("add", [fresh(made), fresh(bias)])


# -- lookups and norms -----------------------------------------------------------------------


@handles("aten.embedding.default", constants=True)
def embedding(
    b: Builder, node: Node, table: Value, ids: Value | Constant, padding: int = -1, by_count: bool = False, *_: Any
) -> Value:
    if by_count:
        raise b.refuse("an embedding with scale_grad_by_freq", "leave its gradient as it is")
    table = b.logical(fresh(table))
    width = table.dims[1]
    if isinstance(ids, Constant):
        return constant_rows(b, table, ids)
    ids = fresh(ids)
    given: dict[str, Any] = {"padding": padding} if padding >= 0 else {}  # this row isn't trained
    return b.emit("embedding", [ids, table], (*ids.dims, width), (*ids.stored, width), table.dtype, **given)


def constant_rows(b: Builder, table: Value, ids: Constant) -> Value:
    """Rows that are known at import: one, or a run of them."""
    rows, width = table.dims
    same = ids.number()
    if same is not None:
        row = b.emit("slice", [table], ((), width), ((), width), dim=0, start=int(same), stop=int(same) + 1)
        return replace(row, dims=(*ids.dims, width))
    found = ids.positions()
    if found is None:
        ids_value = fresh(as_value(b, ids))
        return b.emit(
            "embedding", [ids_value, table], (*ids_value.dims, width), (*ids_value.stored, width), table.dtype
        )
    start, axis = found
    run = leaves(ids.dims[axis])
    if start == 0 and size(run) == size(rows):
        b.tie(run, rows)
        return Value(
            table.tensor, (*ids.dims[:axis], leaves(run), *ids.dims[axis + 1 :], width), table.stored, table.dtype
        )
    row = b.emit("slice", [table], (run, width), (run, width), dim=0, start=start, stop=Extent(run, start))
    return replace(row, dims=(*ids.dims[:axis], run, *ids.dims[axis + 1 :], width))


@handles("aten.layer_norm.default", "aten.rms_norm.default")
def norm(b: Builder, node: Node, x: Value, shape: Sequence[int], *rest: Any, **kwargs: Any) -> Value:
    """Over the last dims."""
    rms = "rms" in str(node.target)
    values = [*rest, *(kwargs.get(k) for k in ("weight", "bias")[len(rest) :])]
    weight, bias = (values[0] if values else None), (values[1] if len(values) > 1 and not rms else None)
    double = node.meta["val"].dtype == torch.float64
    # Where the module says nothing; torch works out an rms_norm of f16 and bf16 in f32.
    usual = torch.finfo(torch.float64 if double else torch.float32).eps if rms else 1e-5
    eps = kwargs.get("eps") or next((v for v in rest if isinstance(v, float)), usual)
    for w in (weight, bias):
        if isinstance(w, Value):
            for own, other in zip(x.dims[-len(shape) :], w.dims, strict=True):
                b.tie(own, other)
    x = fresh(x)
    dims = x.dims
    wanted = flat(x.dims[-len(shape) :])
    x = b.last(x, x.dims[-len(shape) :])
    operands = [x]
    for w in (weight, bias):
        if isinstance(w, Value):
            w = fresh(w)
            w = b.logical(w) if len(w.dims) == 1 else w
            operands.append(b.fits(w, (wanted,)))
    if rms and len(operands) == 1:
        over = list(range(len(dims) - len(shape), len(dims)))
        square = fresh(reduced(b, "mean", b.emit("mul", [x, x], dims, x.stored, inner=True), over, True))
        return b.pointwise("mul", [x, fresh(rsqrt(b, node, shifted(b, square, eps)))])
    if not rms and len(operands) != 3:
        y = b.emit("standardize", [x], dims, x.stored, eps=eps)
        for op, w in (("mul", weight), ("add", bias)):
            if isinstance(w, Value):
                y = b.pointwise(op, [fresh(y), fresh(w)])
        return y
    return _normed(b, "rms_norm" if rms else "layer_norm", operands, dims, eps)


def _normed(b: Builder, op: str, operands: list[Value], dims: Layout, eps: float) -> Value:
    """A call that says its eps where that isn't the operator's own."""
    own = standard()[op].attributes["eps"]
    given: dict[str, Any] = {} if isinstance(own, nodes.Number) and own.value == eps else {"eps": eps}
    return b.emit(op, operands, dims, operands[0].stored, **given)


@handles("hapdsl.rms_norm", constants=True)
def rms_norm(b: Builder, node: Node, x: Value, weight: Value | Constant, eps: float) -> Value:
    """x / sqrt(mean(x^2) + eps) * weight over the last dim."""
    weight = as_value(b, weight)
    b.tie(x.dims[-1], weight.dims[-1])
    x, weight = fresh(x), b.logical(fresh(weight))
    dims = x.dims
    x = b.last(x, [x.dims[-1]])
    return _normed(b, "rms_norm", [x, weight], dims, eps)


@handles("hapdsl.gelu_tanh")
def gelu_tanh(b: Builder, node: Node, x: Value) -> Value:
    x = fresh(x)
    return b.emit("gelu_tanh", [x], x.dims, x.stored)
