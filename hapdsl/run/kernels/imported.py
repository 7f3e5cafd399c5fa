"""Kernels of operators that imported modules bring along."""

from __future__ import annotations

import torch
from torch import Tensor

from hapdsl.run.context import Context
from hapdsl.run.kernels.registry import kernel

aten = torch.ops.aten


@kernel
def pad(ctx: Context, x: Tensor, *, dim: int, before: int, after: int, value: float) -> Tensor:
    full = x.new_full(ctx.result_shape(), value)
    full.narrow(dim, before, x.shape[dim]).copy_(x)
    return full


@kernel
def standardize(ctx: Context, x: Tensor, *, eps: float) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], None, None, eps)


@kernel
def standardize_grad(ctx: Context, x: Tensor, g: Tensor, *, eps: float) -> Tensor:
    """With y = (x - mean) r: r (g - mean(g) - y mean(g y)), means over the last dim."""
    centred = x - x.mean(-1, keepdim=True)
    r = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
    y = centred * r
    return r * (g - g.mean(-1, keepdim=True) - y * (g * y).mean(-1, keepdim=True))


@kernel
def leaky_relu(ctx: Context, x: Tensor, *, slope: float) -> Tensor:
    return torch.nn.functional.leaky_relu(x, slope)


@kernel
def leaky_relu_grad(ctx: Context, x: Tensor, g: Tensor, *, slope: float) -> Tensor:
    return aten.leaky_relu_backward(g, x, slope, False)


@kernel
def elu(ctx: Context, x: Tensor, *, alpha: float) -> Tensor:
    return torch.nn.functional.elu(x, alpha)


@kernel
def elu_grad(ctx: Context, x: Tensor, g: Tensor, *, alpha: float) -> Tensor:
    return aten.elu_backward(g, alpha, 1.0, 1.0, False, x)


@kernel
def hardswish_grad(ctx: Context, x: Tensor, g: Tensor) -> Tensor:
    return aten.hardswish_backward(g, x)


@kernel
def hardsigmoid_grad(ctx: Context, x: Tensor, g: Tensor) -> Tensor:
    return aten.hardsigmoid_backward(g, x)
