"""Routing of tokens to experts: the k best of each token, and a slot in each of them while there is room."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from hapdsl.run.context import Context
from hapdsl.run.kernels.registry import kernel


def _route(gates: Tensor, k: int, capacity: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For each token and choice, [b, s, k]: the gate, the expert, its place among the group's (expert, slot) pairs and whether it has one.

    Slots are dealt choice by choice (all first choices before the second ones), within a choice token by token.
    """
    best, chosen = gates.topk(k, dim=-1)
    b, s, e = gates.shape
    asked = one_hot(chosen, e).transpose(1, 2).reshape(b, k * s, e)
    slots = ((asked.cumsum(1) - 1) * asked).sum(-1).reshape(b, k, s).transpose(1, 2)
    served = slots < capacity
    return best, chosen, torch.where(served, chosen * capacity + slots, 0), served


@kernel
def top_k_gate(ctx: Context, gates: Tensor, *, k: int, capacity: int, normalize: bool) -> tuple[Tensor, Tensor]:
    best, _, place, served = _route(gates, k, capacity)
    weights = best / best.sum(-1, keepdim=True) if normalize else best
    b, s, e = gates.shape
    nothing = gates.new_zeros(b, s, e * capacity)
    combine = nothing.scatter_add(-1, place, torch.where(served, weights, 0))
    dispatch = nothing.scatter_add(-1, place, served.to(gates.dtype))
    return combine.unflatten(-1, (e, capacity)), dispatch.unflatten(-1, (e, capacity))


@kernel
def top_k_gate_grad(ctx: Context, gates: Tensor, g: Tensor, *, k: int, normalize: bool) -> Tensor:
    """With w = a / sum(a): da = (dw - sum(dw w)) / sum(a); the k best gates a are elements of `gates`."""
    best, chosen, place, served = _route(gates, k, g.shape[-1])
    slope = torch.where(served, g.flatten(-2).gather(-1, place), 0)
    if normalize:
        total = best.sum(-1, keepdim=True)
        slope = (slope - (slope * best).sum(-1, keepdim=True) / total) / total
    return torch.zeros_like(gates).scatter(-1, chosen, slope)


@kernel
def top_k_count(ctx: Context, gates: Tensor, *, k: int) -> Tensor:
    chosen = gates.topk(k, dim=-1).indices
    return one_hot(chosen, gates.shape[-1]).sum((1, 2))
