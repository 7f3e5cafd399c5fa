"""Reductions, normalisation and losses. Means divide by global counts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as torch_binary_cross_entropy
from torch.nn.functional import layer_norm as torch_layer_norm

from hapdsl.lang.diagnostics import error
from hapdsl.run.context import Context
from hapdsl.run.kernels.layout import rows_here
from hapdsl.run.kernels.registry import kernel
from hapdsl.run.kernels.stretch import in_full

IGNORED = -100
aten = torch.ops.aten


def positions(dims: int | Sequence[int], rank: int) -> list[int]:
    """`dims` as a sorted list of dims from 0."""
    return sorted(d % rank for d in ([dims] if isinstance(dims, int) else dims))


def _sum(x: Tensor, dims: int | Sequence[int]) -> Tensor:
    at = positions(dims, x.dim()) if x.dim() else []
    return x.sum(at, dtype=x.dtype) if at else x  # torch reads an empty list as all dims


def _restore(y: Tensor, dims: int | Sequence[int]) -> Tensor:
    """`y` with dims of 1 where a reduction took them away."""
    rank = y.dim() + (1 if isinstance(dims, int) else len(dims))
    for d in positions(dims, rank):
        y = y.unsqueeze(d)
    return y


@kernel
def sum_(ctx: Context, x: Tensor, *, dims: int | Sequence[int]) -> Tensor:
    return _sum(x, dims)


@kernel
def mean(ctx: Context, x: Tensor, *, dims: int | Sequence[int]) -> Tensor:
    return _sum(x, dims) / ctx.extent("k")


@kernel
def spread(ctx: Context, g: Tensor, *, dims: int | Sequence[int], sizes: Sequence[int]) -> Tensor:
    return _restore(g, dims).expand(ctx.result_shape())


@kernel
def max_(ctx: Context, x: Tensor, *, dims: int | Sequence[int]) -> Tensor:
    at = positions(dims, x.dim()) if x.dim() else []
    return x.amax(at) if at else x


@kernel
def max_grad(ctx: Context, x: Tensor, y: Tensor, g: Tensor, *, dims: int | Sequence[int]) -> Tensor:
    largest = (x == _restore(y, dims)).to(g.dtype)
    count = _restore(_sum(largest, dims), dims)
    return largest / count * _restore(g, dims)


@kernel
def softmax(ctx: Context, x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


@kernel
def softmax_grad(ctx: Context, y: Tensor, g: Tensor) -> Tensor:
    return aten._softmax_backward_data(*in_full(g, y), -1, y.dtype)


@kernel
def log_softmax(ctx: Context, x: Tensor) -> Tensor:
    return torch.log_softmax(x, -1)


@kernel
def log_softmax_grad(ctx: Context, y: Tensor, g: Tensor) -> Tensor:
    return aten._log_softmax_backward_data(*in_full(g, y), -1, y.dtype)


@kernel
def logsumexp(ctx: Context, x: Tensor) -> Tensor:
    return torch.logsumexp(x, -1)


@kernel
def logsumexp_grad(ctx: Context, x: Tensor, y: Tensor, g: Tensor) -> Tensor:
    return torch.exp(x - y.unsqueeze(-1)) * g.unsqueeze(-1)


@kernel
def pick(ctx: Context, x: Tensor, index: Tensor) -> Tensor:
    shape = ctx.result_shape()
    at, here = rows_here(index, ctx.span(0, x.dim() - 1))
    found = x.expand(*shape, x.shape[-1]).gather(-1, at.expand(shape).unsqueeze(-1))
    return torch.where(here, found.squeeze(-1), 0)


@kernel
def pick_grad(ctx: Context, index: Tensor, g: Tensor, *, size: int) -> Tensor:
    shape = ctx.result_shape()
    at, here = rows_here(index, ctx.results[0][-1])
    return g.new_zeros(shape).scatter_(-1, at.expand(shape[:-1]).unsqueeze(-1), torch.where(here, g, 0).unsqueeze(-1))


@kernel
def layer_norm(ctx: Context, x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    return torch_layer_norm(x, weight.shape, weight, bias, eps)


@kernel
def layer_norm_grad(ctx: Context, x: Tensor, weight: Tensor, g: Tensor, *, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    _, mean, rstd = torch.native_layer_norm(x, weight.shape, weight, None, eps)
    return aten.native_layer_norm_backward(g, x, weight.shape, mean, rstd, weight, weight, [True, True, True])


@kernel
def rms_norm(ctx: Context, x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    return x * _rms_rate(x, eps) * weight


@kernel
def rms_norm_grad(ctx: Context, x: Tensor, weight: Tensor, g: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
    """With n = x / rms(x) and h = g weight: dx = (h - n mean(h n)) / rms(x), and the weight's gradient is the sum of g n."""
    rate = _rms_rate(x, eps)
    n, h = x * rate, g * weight
    return (h - n * (h * n).mean(-1, keepdim=True)) * rate, (g * n).reshape(-1, x.shape[-1]).sum(0)


def _rms_rate(x: Tensor, eps: float) -> Tensor:
    """One over the root of the mean square along the last dim."""
    return torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)


def check_labels(label: Tensor, classes: int, ignoring: bool) -> Tensor:
    """bool, shape of `label`: which rows count.

    Raises HapError: HAP702 a label that is no class, HAP703 an ignored label where nothing counts the others.
    """
    ignored = label == IGNORED
    wrong = ~ignored & ((label < 0) | (label >= classes))
    if bool(wrong.any()):
        raise error(
            "HAP702",
            f"label {int(label[wrong][0])} is none of the {classes} classes",
            help=f"labels run from 0 to {classes - 1}",
        )
    if not ignoring and bool(ignored.any()):
        raise error("HAP703", f"a label is {IGNORED} (ignored), but the mean is over all rows", help="cross_entropy(z, label, count_labels(label))")  # fmt: skip
    return ~ignored


@kernel
def cross_entropy(ctx: Context, z: Tensor, label: Tensor, count: Tensor | None = None) -> Tensor:
    kept = check_labels(label, z.shape[-1], count is not None)
    picked = torch.log_softmax(z, -1).gather(-1, label.where(kept, 0).long().unsqueeze(-1)).squeeze(-1)
    total = -torch.where(kept, picked, 0).sum()
    return (total / (ctx.extent("b") if count is None else count)).to(z.dtype)


@kernel
def cross_entropy_grad(ctx: Context, z: Tensor, label: Tensor, g: Tensor, count: Tensor | None = None) -> Tensor:
    shape = ctx.result_shape()
    z, label = z.expand(shape), label.expand(shape[:-1])
    kept = check_labels(label, z.shape[-1], count is not None)
    at = label.where(kept, 0).long().unsqueeze(-1)
    slope = torch.softmax(z, -1)
    slope.scatter_add_(-1, at, slope.new_full((), -1.0).expand(at.shape))
    scaled = slope * (g / (ctx.extent("b") if count is None else count))
    return torch.where(kept.unsqueeze(-1), scaled, 0)


@kernel
def count_labels(ctx: Context, label: Tensor, *, ignore: int, to: str) -> Tensor:
    return (label != ignore).sum().to(ctx.dtype(to))


@kernel
def mse_loss(ctx: Context, x: Tensor, target: Tensor) -> Tensor:
    return ((x - target) ** 2).sum() / ctx.extent("i")


@kernel
def mse_loss_grad(ctx: Context, x: Tensor, target: Tensor, g: Tensor) -> Tensor:
    return (x - target) * (2 / ctx.extent("i")) * g


@kernel
def binary_cross_entropy_with_logits(ctx: Context, z: Tensor, target: Tensor) -> Tensor:
    return torch_binary_cross_entropy(z, target.to(z.dtype), reduction="sum") / ctx.extent("i")


@kernel
def binary_cross_entropy_with_logits_grad(ctx: Context, z: Tensor, target: Tensor, g: Tensor) -> Tensor:
    return (torch.sigmoid(z) - target.to(z.dtype)) * (g / ctx.extent("i"))


@kernel
def binary_cross_entropy(ctx: Context, p: Tensor, target: Tensor) -> Tensor:
    """What is no probability is taken for the nearest one."""
    p = p.clamp(0, 1)
    return (target - 1) * torch.log1p(-p).clamp(min=-100) - target * torch.log(p).clamp(min=-100)


@kernel
def binary_cross_entropy_grad(ctx: Context, p: Tensor, target: Tensor, g: Tensor) -> Tensor:
    least = max(1e-12, torch.finfo(p.dtype).tiny)  # torch's own bound is 0 in f16
    slope = (p - target) / (p * (1 - p)).clamp(min=least)
    return torch.where((p >= 0) & (p <= 1), slope, 0) * g


@kernel
def accuracy(ctx: Context, z: Tensor, label: Tensor) -> Tensor:
    check_labels(label, z.shape[-1], ignoring=True)
    return (z.argmax(-1) == label).sum().to(z.dtype) / ctx.extent("b")


@kernel
def layer_norm_input_grad(ctx: Context, x: Tensor, weight: Tensor, g: Tensor, *, eps: float) -> Tensor:
    x, g = in_full(x, g)
    _, mean, rstd = torch.native_layer_norm(x, weight.shape, weight, None, eps)
    return aten.native_layer_norm_backward(g, x, weight.shape, mean, rstd, weight, None, [True, False, False])[0]
