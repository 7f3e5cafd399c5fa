"""Normalisation over batches and over groups of channels. Means divide by global counts."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from hapdsl.run.context import Context
from hapdsl.run.kernels.registry import kernel
from hapdsl.run.kernels.stretch import in_full

aten = torch.ops.aten


def _others(x: Tensor) -> list[int]:
    """All dims but the channels'."""
    return [0, *range(2, x.dim())]


def _along(v: Tensor, x: Tensor) -> Tensor:
    """One number per channel, laid along the channels of `x`."""
    return v.reshape([-1] + [1] * (x.dim() - 2))


@kernel
def batch_norm_stats(ctx: Context, x: Tensor) -> tuple[Tensor, Tensor]:
    count = ctx.extent("n") * ctx.extent("s")
    return x.sum(_others(x)) / count, (x * x).sum(_others(x)) / count


@kernel
def batch_norm_stats_grad(ctx: Context, x: Tensor, mean_grad: Tensor, square_grad: Tensor) -> Tensor:
    count = ctx.extent("n") * ctx.extent("s")
    return _along(mean_grad / count, x) + x * _along(2 * square_grad / count, x)


@kernel
def running(ctx: Context, now: Tensor, kept: Tensor) -> Tensor:
    return torch.broadcast_tensors(now, kept)[0].clone()


@kernel
def batch_norm(
    ctx: Context, x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, *, eps: float
) -> Tensor:
    factor = weight * (var + eps).rsqrt()
    return x * _along(factor, x) + _along(bias - mean * factor, x)


@kernel
def batch_norm_grad(
    ctx: Context, x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, g: Tensor, *, eps: float
) -> tuple[Tensor, ...]:
    """With r = (var + eps)^-1/2 and, per channel, a = sum of g and b = sum of g (x - mean): x' = g w r, mean' = -a w r,
    var' = -b w r^3 / 2, weight' = b r, bias' = a."""
    r = (var + eps).rsqrt()
    total = g.sum(_others(g))
    product = (g * (x - _along(mean, x))).sum(_others(g))
    factor = weight * r
    return g * _along(factor, x), -total * factor, product * factor * r * r / -2, product * r, total


@kernel
def group_norm(ctx: Context, x: Tensor, weight: Tensor, bias: Tensor, *, groups: int, eps: float) -> Tensor:
    return functional.group_norm(x, ctx.lengths["groups"], weight, bias, eps)


@kernel
def group_norm_grad(
    ctx: Context, x: Tensor, weight: Tensor, g: Tensor, *, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    x, g = (operand.contiguous() for operand in in_full(x, g))
    here, (n, c), rest = ctx.lengths["groups"], x.shape[:2], math.prod(x.shape[2:])
    _, mean, rstd = torch.native_group_norm(x, weight, None, n, c, rest, here, eps)
    return aten.native_group_norm_backward(g, x, mean, rstd, weight, n, c, rest, here, [True, True, True])
