"""Products: matrix multiplication in its transposed forms, einsum."""

from __future__ import annotations

from string import ascii_letters

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
    plan = ctx.kept.get("einsum")
    if plan is None:
        plan = ctx.kept["einsum"] = _einsum_plan(ctx)
    equation, shapes = plan
    parts = [t if t.shape == s else t.reshape(s) for t, s in zip(x, shapes, strict=True)]
    made = torch.einsum(equation, *parts)
    shape = ctx.result_shape()
    return made if made.shape == shape else made.reshape(shape)


def _einsum_plan(ctx: Context) -> tuple[str, list[tuple[int, ...]]]:
    """The equation over single indices, and the local shapes of operands with their merged dims apart."""
    letters = dict(zip(ctx.instance.indices, ascii_letters, strict=False))
    flat = [[i for dim in dims for i in dim] for dims in ctx.instance.operands]
    result = [i for dim in ctx.instance.results[0] for i in dim]
    equation = ",".join("".join(letters[i] for i in row) for row in flat) + "->" + "".join(letters[i] for i in result)
    return equation, [tuple(ctx.lengths[i] for i in row) for row in flat]
