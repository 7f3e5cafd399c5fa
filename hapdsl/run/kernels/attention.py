"""Scaled dot-product attention, whole over both sequence dims."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from hapdsl.run.context import Context
from hapdsl.run.kernels.registry import kernel


@kernel
def attention(ctx: Context, q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    return scaled_dot_product_attention(q, k, v, is_causal=causal)


@kernel
def attention_grad(ctx: Context, q: Tensor, k: Tensor, v: Tensor, g: Tensor, *, causal: bool) -> tuple[Tensor, ...]:
    """With p = softmax(q k^T / sqrt(e)): dv = p^T g, ds = p (g v^T - rowsum(p g v^T)), dq = ds k / sqrt(e), dk = ds^T q / sqrt(e)."""
    factor = 1 / math.sqrt(q.shape[-1])
    scores = q @ k.mT * factor
    p = torch.softmax(_masked(scores, -math.inf) if causal else scores, -1)
    dp = g @ v.mT
    ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * factor
    return ds @ k, ds.mT @ q, p.mT @ g


def _masked(x: Tensor, fill: float) -> Tensor:
    """`x` with `fill` where the column is after the row."""
    later = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
    return x.masked_fill(later, fill)


@kernel
def causal_mask(ctx: Context, x: Tensor) -> Tensor:
    return _masked(x, -math.inf)


@kernel
def causal_mask_grad(ctx: Context, g: Tensor) -> Tensor:
    return _masked(g, 0.0)
