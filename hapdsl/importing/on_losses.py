"""Losses between a tensor and a target of its shape."""

from __future__ import annotations

import torch
from torch.fx import Node

from hapdsl.importing.build import Builder
from hapdsl.importing.handlers import handles
from hapdsl.importing.on_numbers import clamped, fresh, reduced, scaled, shifted
from hapdsl.importing.values import Value
from hapdsl.run.context import DTYPES


def pair(b: Builder, x: Value, target: Value) -> list[Value]:
    """Both with the same dims, which are tied."""
    x, target = b.logical(fresh(x)), fresh(target)
    if len(x.dims) != len(target.dims):
        raise b.refuse("a loss between tensors of different dims", "give both the same shape")
    for own, given in zip(x.dims, target.dims, strict=True):
        b.tie(own, given)
    x, target = fresh(x), fresh(target)
    return [x, b.fits(target, x.stored)]


def total(b: Builder, x: Value, reduction: int) -> Value:
    """x itself (0), the mean (1) or the sum (2) over all its elements."""
    return x if reduction == 0 else reduced(b, "mean" if reduction == 1 else "sum", x, None, False)


@handles("aten.mse_loss.default")
def mse_loss(b: Builder, node: Node, x: Value, target: Value, reduction: int = 1) -> Value:
    both = pair(b, x, target)
    if reduction == 1:
        return b.emit("mse_loss", both, (), ())
    away = b.emit("sub", both, both[0].dims, both[0].stored)
    return total(b, b.emit("mul", [away, away], away.dims, away.stored), reduction)


@handles("aten.l1_loss.default")
def l1_loss(b: Builder, node: Node, x: Value, target: Value, reduction: int = 1) -> Value:
    away = b.emit("sub", both := pair(b, x, target), both[0].dims, both[0].stored, inner=True)
    return total(b, b.emit("abs", [away], away.dims, away.stored), reduction)


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
    return total(b, made, reduction)


@handles("aten.binary_cross_entropy_with_logits.default")
def binary_cross_entropy_with_logits(
    b: Builder,
    node: Node,
    z: Value,
    target: Value,
    weight: Value | None = None,
    pos_weight: Value | None = None,
    reduction: int = 1,
) -> Value:
    """log(1 + exp(z)) - target z; with a weight p of the positive cases (1 - target) z + (1 + (p - 1) target) log(1 + exp(-z))."""
    both = pair(b, z, target)
    if reduction == 1 and weight is None and pos_weight is None:
        return b.emit("binary_cross_entropy_with_logits", both, (), ())
    z, target = both
    if pos_weight is None:
        soft = b.emit("softplus", [z], z.dims, z.stored)
        made = b.pointwise("sub", [soft, b.pointwise("mul", [z, target])])
    else:
        negative = b.pointwise("mul", [_other(b, target), z])
        more = shifted(b, fresh(pos_weight), -1)
        case = shifted(b, b.pointwise("mul", [target, more]), 1)
        soft = b.emit("softplus", [scaled(b, z, -1)], z.dims, z.stored)
        made = b.pointwise("add", [negative, b.pointwise("mul", [fresh(case), soft])])
    return total(b, weighed(b, made, weight), reduction)


@handles("aten.binary_cross_entropy.default")
def binary_cross_entropy(
    b: Builder, node: Node, p: Value, target: Value, weight: Value | None = None, reduction: int = 1
) -> Value:
    """Of probabilities."""
    both = pair(b, p, target)
    made = b.emit("binary_cross_entropy", both, both[0].dims, both[0].stored)
    return total(b, weighed(b, made, weight), reduction)


def _other(b: Builder, p: Value) -> Value:
    """1 - p."""
    return shifted(b, scaled(b, p, -1), 1)


def weighed(b: Builder, x: Value, weight: Value | None) -> Value:
    """By a weight of each element, or of what it is broadcast to."""
    return x if weight is None else b.pointwise("mul", [fresh(x), fresh(weight)])


@handles("aten.kl_div.default")
def kl_div(b: Builder, node: Node, x: Value, target: Value, reduction: int = 1, *, log_target: bool = False) -> Value:
    """target (log target - x), which of a target of 0 is 0."""
    both = pair(b, x, target)
    dims, stored = both[0].dims, both[0].stored
    least = torch.finfo(DTYPES[both[1].dtype]).tiny
    known = both[1] if log_target else b.emit("log", [clamped(b, both[1], least)], dims, stored)
    weight = b.emit("exp", [both[1]], dims, stored) if log_target else both[1]
    away = b.emit("sub", [known, both[0]], dims, stored, inner=True)
    return total(b, b.emit("mul", [weight, away], dims, stored), reduction)
