"""Scaled dot-product attention, whole over keys and values; masks; rotary positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from hapdsl.run.context import Context, Range
from hapdsl.run.kernels.registry import kernel

aten = torch.ops.aten


@kernel
def attention(ctx: Context, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool) -> Tensor:
    k, v = (_per_query(x, q) for x in (k, v))
    if mask is not None:  # torch leaves open what a query gets that may attend to nothing
        return _weights(q, k, _seen(ctx, q, k, mask, causal)) @ v
    if causal and ctx.span(0, 2).offset == 0:
        return scaled_dot_product_attention(q, k, v, is_causal=True)
    return scaled_dot_product_attention(q, k, v, attn_mask=_seen(ctx, q, k, None, causal))


@kernel
def attention_grad(
    ctx: Context, q: Tensor, k: Tensor, v: Tensor, g: Tensor, mask: Tensor | None = None, *, causal: bool
) -> tuple[Tensor, ...]:
    """With p = softmax(q k^T / sqrt(e)): dv = p^T g, ds = p (g v^T - rowsum(p g v^T)), dq = ds k / sqrt(e), dk = ds^T q / sqrt(e)."""
    heads = k.shape[1]
    k, v = (_per_query(x, q) for x in (k, v))
    if mask is None and not (causal and ctx.span(0, 2).offset) and _blockwise(q, v):
        q, k, v, g = (x.contiguous() for x in (q, k, v, g))  # torch's kernels misread others, and don't say so
        out, norms = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
        dq, dk, dv = aten._scaled_dot_product_flash_attention_for_cpu_backward(g, q, k, v, out, norms, 0.0, causal)
        return dq, _per_key(dk, heads), _per_key(dv, heads)
    p = _weights(q, k, _seen(ctx, q, k, mask, causal))
    dp = g @ v.mT
    ds = p * (dp - (dp * p).sum(-1, keepdim=True)) / math.sqrt(q.shape[-1])
    return ds @ k, _per_key(ds.mT @ q, heads), _per_key(p.mT @ g, heads)


def _blockwise(q: Tensor, v: Tensor) -> bool:
    """Has torch kernels that go through the keys in blocks, so that the weights are never there as a whole? Half as long in f32, made twice or not."""
    if q.shape[-1] != v.shape[-1]:
        return False  # they take heads of one size only
    return (
        q.device.type == "cpu"
        and q.dtype in (torch.float32, torch.float64)
        and hasattr(aten, "_scaled_dot_product_flash_attention_for_cpu_backward")
    )


def _per_query(x: Tensor, q: Tensor) -> Tensor:
    """Keys or values once for each query head that shares them."""
    shared = q.shape[1] // x.shape[1]
    return x.repeat_interleave(shared, 1) if shared > 1 else x


def _per_key(x: Tensor, heads: int) -> Tensor:
    """Gradients summed over the query heads that share keys or values."""
    return x.unflatten(1, (heads, -1)).sum(2) if x.shape[1] > heads else x


def _weights(q: Tensor, k: Tensor, seen: Tensor | None) -> Tensor:
    """The softmax over the keys that are seen; zeros where none is."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if seen is None:
        return torch.softmax(scores, -1)
    return torch.softmax(scores.masked_fill(~seen, torch.finfo(scores.dtype).min), -1) * seen


def _seen(ctx: Context, q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    """Which keys each query may attend to, of a shape that stretches to [b, h, s, t]; None for all."""
    seen = None if mask is None else (mask != 0)[:, None, None, :]
    if causal:
        earlier = ~_later(ctx.span(0, 2), ctx.span(1, 2), q.device)
        seen = earlier if seen is None else seen & earlier
    return seen


def _later(rows: Range, columns: Range, device: torch.device) -> Tensor:
    """Where the column is after the row, by their global numbers."""
    row = torch.arange(rows.offset, rows.offset + rows.length, device=device)
    column = torch.arange(columns.offset, columns.offset + columns.length, device=device)
    return column > row[:, None]


@kernel
def causal_mask(ctx: Context, x: Tensor) -> Tensor:
    return x.masked_fill(_later(ctx.span(0, x.dim() - 2), ctx.span(0, x.dim() - 1), x.device), -math.inf)


@kernel
def causal_mask_grad(ctx: Context, g: Tensor) -> Tensor:
    return g.masked_fill(_later(ctx.span(0, g.dim() - 2), ctx.span(0, g.dim() - 1), g.device), 0.0)


@kernel
def rotary(ctx: Context, x: Tensor, *, base: float, direction: float) -> Tensor:
    here = ctx.span(0, x.dim() - 2)
    half = x.shape[-1] // 2
    place = torch.arange(here.offset, here.offset + here.length, dtype=torch.float64, device=x.device)
    rate = base ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)
    angle = direction * place[:, None] * rate
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second = x.split(half, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
