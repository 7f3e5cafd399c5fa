"""Replicas that stay equal: fingerprints of what several devices hold alike, and how they are brought together.

What every device computes for itself can drift apart, bit by bit, between different kinds of device. Every so many steps the fingerprints of
parameters, buffers and optimizer state are compared, along the mesh axes on which they are replicated. **The rule**: the value of the first device
along these axes holds; it is broadcast to the others. Sharded values have no replica and are left alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from hapdsl.graph.program import Value
from hapdsl.run.distributed import Rank
from hapdsl.run.pieces import firsts, largest_gap

_STEP, _FACTORS = -7046029254386353131, (-4658895280553007687, -7723592293110705685)  # of SplitMix64, as signed numbers


@dataclass(frozen=True)
class Drift:
    """One value of which devices held something else than the first one of their replicas; `gap` is the largest difference of an element."""

    tensor: str
    devices: tuple[int, ...]
    gap: float


def fingerprint(tensor: Tensor) -> Tensor:
    """i64, a scalar on the tensor's device: the sum over its words of a mix (SplitMix64's) of the word and its place."""
    raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if raw.numel() % 8:
        raw = torch.cat([raw, raw.new_zeros(8 - raw.numel() % 8)])
    mixed = (
        torch.arange(1, raw.numel() // 8 + 1, dtype=torch.int64, device=raw.device)
        .mul_(_STEP)
        .add_(raw.view(torch.int64))
    )
    for factor in _FACTORS:
        mixed = (mixed ^ ((mixed >> 32) & 0xFFFFFFFF)).mul_(factor)
    return (mixed ^ ((mixed >> 32) & 0xFFFFFFFF)).sum()


def check(rank: Rank) -> list[Drift]:
    """Compare the replicas of what is held, and bring them together where they differ. All ranks must call it; all return the same."""
    values = [
        v
        for v in rank.held
        if any(p.kind == "R" and size > 1 for p, (_, size) in zip(v.placement, rank.program.layout.mesh, strict=True))
    ]
    if not values:
        return []
    own = torch.stack([fingerprint(rank.held[v]) for v in values]).cpu()
    every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(every, own)
    prints = torch.stack(every).tolist()
    holders = {p: firsts(rank.program.layout, p) for p in {v.placement for v in values}}
    found = []
    for k, value in enumerate(values):
        apart = tuple(d for d, first in enumerate(holders[value.placement]) if prints[d][k] != prints[first][k])
        if apart:
            found.append(Drift(value.tensor, apart, _together(rank, value)))
    return found


def _together(rank: Rank, value: Value) -> float:
    """Take over the first device's value, axis by axis; returns the largest difference that there was on any rank."""
    before = rank.held[value]
    after = before.clone(memory_format=torch.contiguous_format)
    for axis, p in enumerate(value.placement):
        group = rank.groups[axis]
        if p.kind == "R" and group.size > 1:
            group.backend.broadcast(after.view(-1), group.ranks[0], group.handle).wait()
    rank.held[value] = after
    largest = torch.tensor([largest_gap(after, before, relative=False)], dtype=torch.float64)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return float(largest)
