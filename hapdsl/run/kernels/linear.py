"""Products: matrix multiplication in its transposed forms, einsum."""

from __future__ import annotations

import torch
from torch import Tensor

from hapdsl.run.context import Context
from hapdsl.run.kernels.registry import kernel


@kernel
def matmul_nt(ctx: Context, x: Tensor, w: Tensor) -> Tensor:
    return x @ w.mT


@kernel
def matmul_tn(ctx: Context, x: Tensor, g: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1]).mT @ g.reshape(-1, g.shape[-1])


@kernel
def bmm_nt(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    return a @ b.mT


@kernel
def bmm_tn(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    return a.mT @ b


@kernel
def einsum(ctx: Context, *x: Tensor, spec: str, **sizes: int) -> Tensor:
    numbers = {index: k for k, index in enumerate(ctx.instance.indices)}
    args: list[object] = []
    for operand, dims in zip(x, ctx.instance.operands, strict=True):
        flat = [i for dim in dims for i in dim]
        args += [operand.reshape([ctx.lengths[i] for i in flat]), [numbers[i] for i in flat]]
    args.append([numbers[i] for dim in ctx.instance.results[0] for i in dim])
    return torch.einsum(*args).reshape(ctx.result_shape())
