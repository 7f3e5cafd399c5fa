"""Moving elements about: transposition, reshaping, joining, cutting, looking up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hapdsl.lang.diagnostics import error
from hapdsl.run.context import Context, Range
from hapdsl.run.kernels.registry import kernel


@kernel
def transpose(ctx: Context, x: Tensor, *, perm: Sequence[int]) -> Tensor:
    return x.permute(*perm)


@kernel
def rearrange(ctx: Context, x: Tensor, *, spec: Any = None, shape: Any = None, **sizes: int) -> Tensor:
    """Split dims into their indices, permute these, merge; every index at its local length.

    A plain reshape keeps the order of elements, and its shared indices lead their groups: nothing is permuted.
    """
    if isinstance(spec if shape is None else shape, str):
        ours = [i for dim in ctx.instance.operands[0] for i in dim]
        theirs = [i for dim in ctx.instance.results[0] for i in dim]
        x = x.reshape([ctx.lengths[i] for i in ours]).permute([ours.index(i) for i in theirs])
    return x.reshape(ctx.result_shape())


@kernel
def concat(ctx: Context, *x: Tensor, dim: int) -> Tensor:
    return torch.cat(x, dim)


@kernel
def slice_(ctx: Context, x: Tensor, *, dim: int, start: int, stop: int) -> Tensor:
    return x.narrow(dim, start, stop - start)


@kernel
def unslice(ctx: Context, g: Tensor, *, dim: int, start: int, size: int) -> Tensor:
    full = g.new_zeros(ctx.result_shape())
    full.narrow(dim, start, g.shape[dim]).copy_(g)
    return full


def check_rows(ids: Tensor, rows: int) -> None:
    """Raises HapError HAP704 for an index beyond the table."""
    wrong = (ids < 0) | (ids >= rows)
    if bool(wrong.any()):
        raise error(
            "HAP704",
            f"index {int(ids[wrong][0])} is outside a table of {rows} rows",
            help=f"indices run from 0 to {rows - 1}",
        )


def rows_here(ids: Tensor, table: Range) -> tuple[Tensor, Tensor]:
    """Where in this device's piece of the table each index lies, and whether it does; elsewhere 0. Raises HapError HAP704."""
    check_rows(ids, table.extent)
    at = ids.long() - table.offset
    here = (at >= 0) & (at < table.length)
    return at.where(here, 0), here


@kernel
def embedding(ctx: Context, ids: Tensor, table: Tensor, *, padding: int = -1) -> Tensor:
    rows = ctx.span(1, 0)
    if rows.length == rows.extent:
        check_rows(ids, rows.extent)
        return torch.nn.functional.embedding(ids.long(), table)
    at, here = rows_here(ids, rows)
    return torch.where(here.unsqueeze(-1), table[at], 0)


@kernel
def embedding_grad(ctx: Context, ids: Tensor, g: Tensor, *, rows: int, padding: int = -1) -> Tensor:
    table = ctx.spans()[0]
    if padding >= 0:
        g = torch.where((ids == padding).unsqueeze(-1), 0, g)
    if table.length == table.extent:
        check_rows(ids, table.extent)
        return torch.ops.aten.embedding_dense_backward(g, ids.long(), rows, -1, False)
    at, here = rows_here(ids, table)
    kept = torch.where(here.unsqueeze(-1), g, 0).reshape(-1, g.shape[-1])
    return g.new_zeros(ctx.result_shape()).index_add_(0, at.reshape(-1), kept)


@kernel
def gather(ctx: Context, x: Tensor, index: Tensor) -> Tensor:
    shape = ctx.result_shape()
    at, here = rows_here(index, ctx.span(0, x.dim() - 1))
    found = x.expand(*shape[:-1], x.shape[-1]).gather(-1, at.expand(shape))
    return torch.where(here, found, 0)


@kernel
def gather_grad(ctx: Context, index: Tensor, g: Tensor, *, size: int) -> Tensor:
    shape = ctx.result_shape()
    at, here = rows_here(index, ctx.spans()[-1])
    full = (*shape[:-1], index.shape[-1])
    return g.new_zeros(shape).scatter_add_(-1, at.expand(full), torch.where(here, g, 0).expand(full))


@kernel
def embedding_bag(ctx: Context, ids: Tensor, table: Tensor) -> Tensor:
    return embedding(ctx, ids, table).sum(-2)


@kernel
def embedding_bag_grad(ctx: Context, ids: Tensor, g: Tensor, *, rows: int) -> Tensor:
    return embedding_grad(ctx, ids, g.unsqueeze(-2).expand(*ids.shape, g.shape[-1]), rows=rows)


@kernel
def lower_triangle(ctx: Context, x: Tensor) -> Tensor:
    rows, columns = torch.tril_indices(x.shape[-2], x.shape[-1], -1, device=x.device)
    return x[..., rows, columns]


@kernel
def lower_triangle_grad(ctx: Context, g: Tensor, *, size: int) -> Tensor:
    rows, columns = torch.tril_indices(size, size, -1, device=g.device)
    x = g.new_zeros(ctx.result_shape())
    x[..., rows, columns] = g
    return x
