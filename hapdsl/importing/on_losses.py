"""Losses."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from hapdsl.importing.atoms import leaves
from hapdsl.importing.build import Builder
from hapdsl.importing.handlers import handles
from hapdsl.importing.on_numbers import clamped, fresh, reduced, scaled
from hapdsl.importing.values import Value
from hapdsl.theory.dtypes import FLOATS


@handles("aten.cross_entropy_loss.default")
def cross_entropy(
    b: Builder,
    node: Node,
    z: Value,
    label: Value,
    weight: Any = None,
    reduction: int = 1,
    ignore: int = -100,
    smoothing: float = 0.0,
) -> Value:
    if weight is not None or reduction != 1 or label.dtype in FLOATS:
        raise b.refuse("cross_entropy with class weights, soft labels or another reduction than the mean")
    z, label = fresh(z), fresh(label)
    classes = z.dims[1] if len(z.dims) > 1 else z.dims[0]
    which = min(1, len(z.dims) - 1)
    for own, given in zip([d for k, d in enumerate(z.dims) if k != which], label.dims, strict=True):
        b.tie(own, given)
    z, label = fresh(z), fresh(label)
    label = b.renamed(
        label, [d for k, d in enumerate(z.dims) if k != which]
    )  # of scores of a batch by itself, either index
    z = b.fits(z, tuple(d for d in z.stored if d))
    z = b.last(z, [leaves(classes)])
    label = b.fits(label, z.stored[:-1])
    if ignore >= 0:
        hidden = b.emit("eq", [label], label.dims, label.stored, "bool", inner=True, value=ignore)
        label = b.emit("masked_fill", [label, hidden], label.dims, label.stored, value=-100)
    operands = [z, label]
    if ignore >= 0 or len(label.stored) > 1:
        counted: dict[str, Any] = {} if z.dtype == "f32" else {"to": z.dtype}
        operands.append(b.emit("count_labels", [label], (), (), z.dtype, inner=True, **counted))
    loss = b.emit("cross_entropy", operands, (), ())
    if not smoothing:
        return loss
    if len(operands) == 3:
        raise b.refuse("label smoothing where labels may be ignored")
    spread = _evenly(b, z)
    return b.emit("add", [scaled(b, loss, 1 - smoothing), scaled(b, spread, smoothing)], (), ())


def _evenly(b: Builder, z: Value) -> Value:
    """The mean over rows of -log softmax, all classes alike: logsumexp less the mean logit."""
    rows = z.stored[:-1]
    whole = b.emit("logsumexp", [z], rows, rows)
    middle = b.emit("mean", [z], rows, rows, inner=True, dims=len(rows))
    apart = b.emit("sub", [whole, middle], rows, rows, inner=True)
    return b.emit("mean", [apart], (), (), dims=list(range(len(rows))) if len(rows) > 1 else 0)


@handles("aten.nll_loss_nd.default", "aten.nll_loss.default")
def nll_loss(
    b: Builder, node: Node, x: Value, label: Value, weight: Any = None, reduction: int = 1, ignore: int = -100
) -> Value:
    """Of a log_softmax: a cross entropy, which takes the log_softmax again and changes nothing by it."""
    made = x.tensor.statement
    if made is None or made.op != "log_softmax":
        raise b.refuse("nll_loss of what is no log_softmax", "use cross_entropy")
    found: Value = cross_entropy(b, node, x, label, weight, reduction, ignore)
    return found


def pair(b: Builder, x: Value, target: Value) -> list[Value]:
    """Both with the same dims, which are tied."""
    x, target = b.logical(fresh(x)), fresh(target)
    if len(x.dims) != len(target.dims):
        raise b.refuse("a loss between tensors of different dims", "give both the same shape")
    for own, given in zip(x.dims, target.dims, strict=True):
        b.tie(own, given)
    x, target = fresh(x), fresh(target)
    return [x, b.fits(target, x.stored)]


def total(b: Builder, x: Value, reduction: int, what: str) -> Value:
    """The mean (1) or the sum (2) over all elements."""
    if reduction not in (1, 2):
        raise b.refuse(f"{what} without a reduction", "take its mean or sum")
    return reduced(b, "mean" if reduction == 1 else "sum", x, None, False)


@handles("aten.mse_loss.default")
def mse_loss(b: Builder, node: Node, x: Value, target: Value, reduction: int = 1) -> Value:
    both = pair(b, x, target)
    if reduction == 1:
        return b.emit("mse_loss", both, (), ())
    away = b.emit("sub", both, both[0].dims, both[0].stored)
    return total(b, b.emit("mul", [away, away], away.dims, away.stored), reduction, "mse_loss")


@handles("aten.l1_loss.default")
def l1_loss(b: Builder, node: Node, x: Value, target: Value, reduction: int = 1) -> Value:
    away = b.emit("sub", both := pair(b, x, target), both[0].dims, both[0].stored, inner=True)
    return total(b, b.emit("abs", [away], away.dims, away.stored), reduction, "l1_loss")


@handles("aten.huber_loss.default", "aten.smooth_l1_loss.default")
def huber_loss(b: Builder, node: Node, x: Value, target: Value, reduction: int = 1, delta: float = 1.0) -> Value:
    """c (|d| - c / 2) with c the distance |d|, at most delta."""
    both = pair(b, x, target)
    dims, stored = both[0].dims, both[0].stored
    away = b.emit("abs", [b.emit("sub", both, dims, stored, inner=True)], dims, stored)
    near = clamped(b, away, None, delta)
    rest = b.emit("sub", [away, scaled(b, near, 0.5)], dims, stored, inner=True)
    made = b.emit("mul", [near, rest], dims, stored)
    if "smooth" in str(node.target):
        made = scaled(b, made, 1 / delta)
    return total(b, made, reduction, "huber_loss")


@handles("aten.binary_cross_entropy_with_logits.default")
def binary_cross_entropy(
    b: Builder, node: Node, z: Value, target: Value, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Value:
    """log(1 + exp(z)) - target z."""
    if weight is not None or pos_weight is not None:
        raise b.refuse("binary_cross_entropy_with_logits with weights")
    both = pair(b, z, target)
    if reduction == 1:
        return b.emit("binary_cross_entropy_with_logits", both, (), ())
    z = both[0]
    part = b.emit("mul", [z, both[1]], z.dims, z.stored, inner=True)
    made = b.emit("sub", [b.emit("softplus", [z], z.dims, z.stored), part], z.dims, z.stored)
    return total(b, made, reduction, "binary_cross_entropy_with_logits")


@handles("aten.kl_div.default")
def kl_div(b: Builder, node: Node, x: Value, target: Value, reduction: int = 1, *, log_target: bool = False) -> Value:
    """target (log target - x), with a target that isn't 0."""
    both = pair(b, x, target)
    dims, stored = both[0].dims, both[0].stored
    known = both[1] if log_target else b.emit("log", [both[1]], dims, stored)
    weight = b.emit("exp", [both[1]], dims, stored) if log_target else both[1]
    away = b.emit("sub", [known, both[0]], dims, stored, inner=True)
    return total(b, b.emit("mul", [weight, away], dims, stored), reduction, "kl_div")
