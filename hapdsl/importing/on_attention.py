"""Attention, and the positions that are turned into its queries and keys."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from hapdsl.importing.atoms import leaves, size
from hapdsl.importing.build import Builder
from hapdsl.importing.constants import Constant
from hapdsl.importing.handlers import handles
from hapdsl.importing.on_layout import cat, part
from hapdsl.importing.on_matrices import batched
from hapdsl.importing.on_numbers import add, causal, fresh, mul, scaled
from hapdsl.importing.values import Layout, Root, Value, same_atoms
from hapdsl.theory.dtypes import FLOATS

SLOWEST = 1e-12  # an angle from one position to the next that is still taken for one


@handles("hapdsl.rotary", constants=True)
def rotary(b: Builder, node: Node, x: Value, cos: Any, sin: Any) -> Value:
    """Positions turned into the pairs (x[i], x[e + i]), if the tables are those of a base; else the steps that were written."""
    base = rotary_base(cos, sin) if isinstance(cos, Constant) and isinstance(sin, Constant) else None
    x = fresh(x)
    if base is None:
        half = size(x.dims[-1]) // 2
        parts = [b.new_dim(k, half) for k in (0, 1)]
        lower, upper = (
            part(b, x, x.dims[-1], k * half, (k + 1) * half, parts[k], (*x.dims[:-1], parts[k])) for k in (0, 1)
        )
        turned = cat(b, node, [scaled(b, fresh(upper), -1), fresh(lower)], -1)
        return add(b, node, mul(b, node, x, cos), mul(b, node, turned, sin))
    ids = {id(a) for d in x.dims[-2:] for a in d}
    rest = tuple(r for s in x.stored if (r := tuple(a for a in s if id(a) not in ids)) or not s)
    x = b.fits(x, (*rest, x.dims[-2], x.dims[-1]))
    return (
        b.emit("rotary", [x], x.dims, x.stored) if base == 10000 else b.emit("rotary", [x], x.dims, x.stored, base=base)
    )


def rotary_base(cos: Constant, sin: Constant) -> float | int | None:
    """The base of tables [.., positions, 2 e] of cos and sin of s * base^(-i / e), else None."""
    tables = [t.tensor.double() for t in (cos, sin)]
    if any(t.dim() < 2 for t in tables):
        return None
    tables = [t.reshape(-1, *t.shape[-2:]) for t in tables]
    if any(bool((t != t[:1]).any()) for t in tables):
        return None  # each sample has positions of its own
    c, s = (t[0] for t in tables)
    positions, width = c.shape
    if positions < 2 or width < 4 or width % 2 or s.shape != c.shape:
        return None
    half = width // 2
    slowest = float(torch.atan2(s[1, half - 1], c[1, half - 1]))
    if not slowest > SLOWEST:
        return None
    base: float | int = float(f"{slowest ** (-half / (half - 1)):.4g}")
    base = int(base) if base == int(base) else base
    angles = torch.arange(positions).double()[:, None] * torch.tensor(float(base)).double() ** (
        -torch.arange(half).double() / half
    )
    angles = torch.cat([angles, angles], -1)
    near = torch.allclose(c, angles.cos(), atol=1e-4) and torch.allclose(s, angles.sin(), atol=1e-4)
    return base if near else None


@handles("aten.scaled_dot_product_attention.default", constants=True)
def attention(
    b: Builder,
    node: Node,
    q: Value,
    k: Value,
    v: Value,
    mask: Any = None,
    p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    if len(q.dims) != 4 or enable_gqa:
        raise b.refuse(
            "attention other than [batch, heads, positions, elements]" if not enable_gqa else "enable_gqa",
            "repeat the heads of k and v",
        )
    for left, right, pairs in ((q, k, ((0, 0), (1, 1), (3, 3))), (k, v, ((0, 0), (1, 1), (2, 2)))):
        for i, j in pairs:
            if leaves(left.dims[i]) and leaves(right.dims[j]):
                b.tie(left.dims[i], right.dims[j])
    q, k, v = (fresh(x) for x in (q, k, v))
    if isinstance(mask, Constant):
        if mask.is_causal():
            is_causal, mask = True, None
        elif mask.is_everything():
            mask = None
    keys = keys_of(b, q, k, mask)
    if p and keys is not None:
        raise b.refuse("attention with a mask of keys and dropout on its weights", "set the attention's dropout to 0")
    if keys is not None:
        mask = None
        q, k, v = (fresh(x) for x in (q, k, v))
    width = size(q.dims[3])
    factor = 1.0 if scale is None else scale * math.sqrt(width)
    if mask is not None or p:
        return written_out(b, node, q, k, v, mask, factor, is_causal, p)
    if abs(factor - 1) > 1e-6:
        q = b.emit("scale", [q], q.dims, q.stored, by=Root(q.dims[3], under=False) if scale == 1 else factor)
    batch, heads = q.dims[0], q.dims[1]
    q, k, v = b.logical(q), shared_heads(b, k), shared_heads(b, v)
    stored: Layout = (batch, heads, q.dims[2], v.dims[3])
    operands = [q, k, v] if keys is None else [q, k, v, b.fits(fresh(keys), (batch, k.dims[2]))]
    if is_causal:
        return b.emit("attention", operands, stored, stored, causal=True)
    return b.emit("attention", operands, stored, stored)


def keys_of(b: Builder, q: Value, k: Value, mask: Any) -> Value | None:
    """A mask of true and false that says which keys exist, [batch, 1, 1, keys], for all heads and queries alike; else None."""
    if not isinstance(mask, Value) or mask.dtype in FLOATS or len(mask.dims) != 4:
        return None
    mask = fresh(mask)
    held = {id(a) for a in mask.atoms}
    if {id(a) for a in (*mask.dims[0], *mask.dims[3])} != held:
        return None
    b.tie(mask.dims[0], q.dims[0])
    b.tie(mask.dims[3], k.dims[2])
    return replace(fresh(mask), dims=(mask.dims[0], mask.dims[3]))


def shared_heads(b: Builder, x: Value) -> Value:
    """Keys or values [batch, heads, positions, elements]; heads that are repeated for a group of queries are stored once."""
    held = {id(a) for a in x.atoms}
    heads = x.dims[1]
    own = tuple(a for a in heads if id(a) in held)
    if own != heads and same_atoms(own, heads[: len(own)]):
        return b.fits(x, (x.dims[0], own, *x.dims[2:]))
    return b.logical(x)


def written_out(
    b: Builder, node: Node, q: Value, k: Value, v: Value, mask: Any, factor: float, is_causal: bool, p: float
) -> Value:
    """dropout(softmax(factor q k^T / sqrt(e) + mask)) v, step by step."""
    scores = batched(b, q, replace(k, dims=(k.dims[0], k.dims[1], k.dims[3], k.dims[2])))
    by = factor / math.sqrt(size(q.dims[3]))
    if abs(by - 1) > 1e-6:
        scores = b.emit(
            "scale", [scores], scores.dims, scores.stored, by=Root(q.dims[3]) if abs(factor - 1) < 1e-6 else by
        )
    if isinstance(mask, Value | Constant):
        if not (mask.dtype in FLOATS if isinstance(mask, Value) else mask.tensor.dtype.is_floating_point):
            raise b.refuse(
                "attention with a mask of true and false other than of keys", "add a mask of 0 and -inf to the scores"
            )
        scores = add(b, node, scores, mask)
    if is_causal:
        scores = causal(b, scores)
    weights = b.emit("softmax", [scores], scores.dims, scores.stored)
    if p:
        weights = b.emit("dropout", [weights], weights.dims, weights.stored, p=p)
    return batched(b, weights, v)
