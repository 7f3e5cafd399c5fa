"""Comparisons, choices by true and false, and sums along a dim."""

from __future__ import annotations

import torch
from torch import Tensor

from hapdsl.run.context import Context
from hapdsl.run.kernels.layout import check_rows
from hapdsl.run.kernels.registry import kernel


@kernel
def eq(ctx: Context, a: Tensor, b: Tensor | None = None, *, value: float) -> Tensor:
    return torch.eq(a, value if b is None else b)


@kernel
def ne(ctx: Context, a: Tensor, b: Tensor | None = None, *, value: float) -> Tensor:
    return torch.ne(a, value if b is None else b)


@kernel
def lt(ctx: Context, a: Tensor, b: Tensor | None = None, *, value: float) -> Tensor:
    return torch.lt(a, value if b is None else b)


@kernel
def le(ctx: Context, a: Tensor, b: Tensor | None = None, *, value: float) -> Tensor:
    return torch.le(a, value if b is None else b)


@kernel
def gt(ctx: Context, a: Tensor, b: Tensor | None = None, *, value: float) -> Tensor:
    return torch.gt(a, value if b is None else b)


@kernel
def ge(ctx: Context, a: Tensor, b: Tensor | None = None, *, value: float) -> Tensor:
    return torch.ge(a, value if b is None else b)


@kernel
def where(ctx: Context, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(condition != 0, a, b)


@kernel
def where_grad(ctx: Context, condition: Tensor, g: Tensor, *, taken: bool) -> Tensor:
    return torch.where((condition != 0) == taken, g, 0)


@kernel
def masked_fill(ctx: Context, x: Tensor, mask: Tensor, *, value: float) -> Tensor:
    return torch.masked_fill(x, mask != 0, value)


@kernel
def maximum_grad(ctx: Context, a: Tensor, b: Tensor, g: Tensor) -> Tensor:
    return torch.where(a > b, g, torch.where(a == b, g / 2, 0))


@kernel
def cumsum(ctx: Context, x: Tensor, *, dim: int, direction: int) -> Tensor:
    return x.cumsum(dim, dtype=x.dtype) if direction > 0 else x.flip(dim).cumsum(dim, dtype=x.dtype).flip(dim)


@kernel
def flip(ctx: Context, x: Tensor, *, dim: int) -> Tensor:
    return x.flip(dim)


@kernel
def argmax(ctx: Context, x: Tensor, *, dim: int) -> Tensor:
    return x.argmax(dim)


@kernel
def one_hot(ctx: Context, index: Tensor, *, classes: int) -> Tensor:
    """Raises HapError HAP704 for an index that is no class."""
    check_rows(index, classes)
    here = ctx.spans()[-1]
    own = torch.arange(here.offset, here.offset + here.length, dtype=index.dtype, device=index.device)
    return (index.unsqueeze(-1) == own).long()
