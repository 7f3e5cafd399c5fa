"""Convolution, pooling and upsampling. Groups are counted as they lie here: a device may hold some of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv2d_input, conv2d_weight

from hapdsl.run.context import Context
from hapdsl.run.kernels.registry import kernel

aten = torch.ops.aten


def _laid(ctx: Context, stride: int, pad: int, dilation: int = 1) -> dict[str, Any]:
    return {"stride": stride, "padding": pad, "dilation": dilation, "groups": ctx.lengths["groups"]}


@kernel
def conv2d(ctx: Context, x: Tensor, k: Tensor, *, stride: int, pad: int, groups: int, dilation: int) -> Tensor:
    return functional.conv2d(x, k, **_laid(ctx, stride, pad, dilation))


@kernel
def conv2d_input_grad(
    ctx: Context, g: Tensor, k: Tensor, *, height: int, width: int, stride: int, pad: int, groups: int, dilation: int
) -> Tensor:
    return conv2d_input(ctx.result_shape(), k, g, **_laid(ctx, stride, pad, dilation))


@kernel
def conv2d_weight_grad(
    ctx: Context,
    x: Tensor,
    g: Tensor,
    *,
    kernel_height: int,
    kernel_width: int,
    stride: int,
    pad: int,
    groups: int,
    dilation: int,
) -> Tensor:
    return conv2d_weight(x, ctx.result_shape(), g, **_laid(ctx, stride, pad, dilation))


@kernel
def conv_transpose2d(
    ctx: Context, x: Tensor, k: Tensor, *, stride: int, pad: int, output_pad: int, groups: int
) -> Tensor:
    return functional.conv_transpose2d(x, k, output_padding=output_pad, **_laid(ctx, stride, pad))


@kernel
def max_pool2d(ctx: Context, x: Tensor, *, kernel: int, stride: int, pad: int) -> Tensor:
    return functional.max_pool2d(x, kernel, stride, pad)


@kernel
def max_pool2d_grad(ctx: Context, x: Tensor, g: Tensor, *, kernel: int, stride: int, pad: int) -> Tensor:
    window = ([kernel, kernel], [stride, stride], [pad, pad], [1, 1], False)
    _, at = aten.max_pool2d_with_indices(x, *window)
    return aten.max_pool2d_with_indices_backward(g, x, *window, at)


@kernel
def avg_pool2d(ctx: Context, x: Tensor, *, kernel: int, stride: int, pad: int) -> Tensor:
    return functional.avg_pool2d(x, kernel, stride, pad)


@kernel
def avg_pool2d_grad(ctx: Context, g: Tensor, *, height: int, width: int, kernel: int, stride: int, pad: int) -> Tensor:
    like = g.new_empty(ctx.result_shape())
    return aten.avg_pool2d_backward(g, like, [kernel, kernel], [stride, stride], [pad, pad], False, True, None)


@kernel
def adaptive_avg_pool2d(ctx: Context, x: Tensor, *, size: int) -> Tensor:
    return functional.adaptive_avg_pool2d(x, size)


@kernel
def adaptive_avg_pool2d_grad(ctx: Context, g: Tensor, *, height: int, width: int) -> Tensor:
    return aten._adaptive_avg_pool2d_backward(g, g.new_empty(ctx.result_shape()))


@kernel
def upsample_nearest2d(ctx: Context, x: Tensor, *, factor: int) -> Tensor:
    return x.repeat_interleave(factor, 2).repeat_interleave(factor, 3)


@kernel
def upsample_nearest2d_grad(ctx: Context, g: Tensor, *, factor: int) -> Tensor:
    n, c, h, w = ctx.result_shape()
    return g.reshape(n, c, h, factor, w, factor).sum((3, 5))
