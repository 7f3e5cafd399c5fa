"""Losses over classes: cross entropies and what they are made of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch.fx import Node

from hapdsl.importing.atoms import Dim, leaves
from hapdsl.importing.build import Builder
from hapdsl.importing.handlers import handles
from hapdsl.importing.on_numbers import fresh, reduced, scaled
from hapdsl.importing.values import Layout, Value
from hapdsl.theory.dtypes import FLOATS

IGNORED = -100  # torch's and the theory's own number for a label that doesn't count


@handles("aten.cross_entropy_loss.default")
def cross_entropy(
    b: Builder,
    node: Node,
    z: Value,
    label: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignore: int = IGNORED,
    smoothing: float = 0.0,
) -> Value:
    """The theory's own operator for a mean of rows that all count alike; else step by step from the log_softmax."""
    if label.dtype in FLOATS:
        return _of_shares(b, z, label, weight, reduction, smoothing)
    z, label, classes = _rows(b, z, label)
    if weight is None and reduction == 1 and not smoothing:
        return _plain(b, z, label, ignore)
    p = b.emit("log_softmax", [z], z.dims, z.stored)
    return _of_labels(b, p, label, classes, weight, reduction, ignore, smoothing)


@handles("aten.nll_loss_nd.default", "aten.nll_loss.default", "aten.nll_loss2d.default")
def nll_loss(
    b: Builder,
    node: Node,
    x: Value,
    label: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignore: int = IGNORED,
) -> Value:
    """The mean of a log_softmax is a cross entropy, which takes the log_softmax again and changes nothing by it."""
    x, label, classes = _rows(b, x, label)
    made = x.tensor.statement
    if weight is None and reduction == 1 and made is not None and made.op == "log_softmax":
        return _plain(b, x, label, ignore)
    return _of_labels(b, x, label, classes, weight, reduction, ignore)


def _rows(b: Builder, z: Value, label: Value) -> tuple[Value, Value, Dim]:
    """Scores with the classes, dim 1 of the module's (dim 0 of one row), as their last stored dim; labels stored as the rest; the classes."""
    z, label = fresh(z), fresh(label)
    which = min(1, len(z.dims) - 1)
    others = [k for k in range(len(z.dims)) if k != which]
    for own, given in zip([z.dims[k] for k in others], label.dims, strict=True):
        b.tie(own, given)
    z, label = fresh(z), fresh(label)
    classes = leaves(z.dims[which])
    # of scores of a batch by itself, either index
    label = b.renamed(label, [z.dims[k] for k in others])
    z = b.fits(z, tuple(d for d in z.stored if d))
    z = b.last(z, [classes])
    return z, b.fits(label, z.stored[:-1]), classes


def _ignoring(label: Value, ignore: int) -> bool:
    """May labels be ignored? Those of a batch of single rows only where the module says which."""
    return ignore != IGNORED or len(label.stored) > 1


def _plain(b: Builder, z: Value, label: Value, ignore: int) -> Value:
    if ignore != IGNORED:
        hidden = b.emit("eq", [label], label.dims, label.stored, "bool", inner=True, value=ignore)
        label = b.emit("masked_fill", [label, hidden], label.dims, label.stored, value=IGNORED)
    operands = [z, label]
    if _ignoring(label, ignore):
        counted: dict[str, Any] = {} if z.dtype == "f32" else {"to": z.dtype}
        operands.append(b.emit("count_labels", [label], (), (), z.dtype, inner=True, **counted))
    return b.emit("cross_entropy", operands, (), ())


def _of_labels(
    b: Builder,
    p: Value,
    label: Value,
    classes: Dim,
    weight: Value | None,
    reduction: int,
    ignore: int,
    smoothing: float = 0.0,
) -> Value:
    """Of logarithms p, stored [rows, classes]: minus the one at the label, by the label's weight; a share `smoothing` of it is of all
    classes alike. The mean is over the weights of the rows that count (torch.nn.CrossEntropyLoss)."""
    dims, rows = label.dims, label.stored
    kept, hidden = label, None
    if _ignoring(label, ignore):
        hidden = b.emit("eq", [label], dims, rows, "bool", called="ignored", value=ignore)
        kept = b.emit("masked_fill", [label, hidden], dims, rows, value=0)
    found = b.emit("neg", [b.emit("pick", [p, kept], dims, rows, p.dtype, inner=True)], dims, rows)
    of_row = None
    if weight is not None:
        b.tie(classes, weight.dims[0])
        weight = b.logical(fresh(weight))
        of_row = b.emit("pick", [weight, kept], dims, rows, weight.dtype, called="weights")
        if hidden is not None:
            of_row = b.emit("masked_fill", [of_row, hidden], dims, rows, called="weights", value=0.0)
        found = b.pointwise("mul", [found, of_row])
    if smoothing:
        evenly = _evenly(b, p, weight, dims)
        found = b.pointwise("sub", [scaled(b, found, 1 - smoothing), scaled(b, evenly, smoothing)])
    if hidden is not None and (of_row is None or smoothing):
        found = b.emit("masked_fill", [found, hidden], found.dims, found.stored, value=0.0)
    if reduction == 0:
        return found
    if reduction == 1 and of_row is None and hidden is None:
        return reduced(b, "mean", found, None, False)
    total = reduced(b, "sum", found, None, False)
    if reduction == 2:
        return total
    if of_row is not None:
        count = reduced(b, "sum", of_row, None, False)
    else:
        counted: dict[str, Any] = {} if ignore == IGNORED else {"ignore": ignore}
        counted |= {} if p.dtype == "f32" else {"to": p.dtype}
        count = b.emit("count_labels", [label], (), (), p.dtype, inner=True, **counted)
    return b.pointwise("div", [total, count])


def _evenly(b: Builder, p: Value, weight: Value | None, dims: Layout) -> Value:
    """The mean of each row, its classes weighed."""
    rows = p.stored[:-1]
    if weight is not None:
        laid = replace(p, dims=p.stored)
        p = b.pointwise("mul", [laid, weight])
        p = b.fits(p, laid.stored)
    return b.emit("mean", [p], dims, rows, dims=len(rows))


def _of_shares(b: Builder, z: Value, target: Value, weight: Value | None, reduction: int, smoothing: float) -> Value:
    """Labels that are shares of all classes; the mean is over rows, whatever they weigh."""
    z, target = fresh(z), fresh(target)
    for own, given in zip(z.dims, target.dims, strict=True):
        b.tie(own, given)
    z, target = fresh(z), fresh(target)
    which = min(1, len(z.dims) - 1)
    classes = leaves(z.dims[which])
    dims = tuple(d for k, d in enumerate(z.dims) if k != which)
    z = b.last(b.fits(z, tuple(d for d in z.stored if d)), [classes])
    target = b.fits(target, z.stored)
    p = b.emit("log_softmax", [z], z.stored, z.stored)
    if weight is not None:
        b.tie(classes, weight.dims[0])
        p = b.fits(b.pointwise("mul", [p, b.logical(fresh(weight))]), z.stored)
    found = b.pointwise("mul", [replace(target, dims=z.stored), p])
    rows = b.emit("sum", [found], dims, z.stored[:-1], inner=True, dims=len(z.stored) - 1)
    if smoothing:
        evenly = b.emit("mean", [p], dims, z.stored[:-1], dims=len(z.stored) - 1)
        rows = b.pointwise("add", [scaled(b, rows, 1 - smoothing), scaled(b, evenly, smoothing)])
    rows = b.emit("neg", [rows], dims, rows.stored)
    return rows if reduction == 0 else reduced(b, "mean" if reduction == 1 else "sum", rows, None, False)
