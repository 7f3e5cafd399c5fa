"""Which torch.distributed call does which collective, on flat buffers of any lengths.

    all_reduce               all_reduce on a buffer of its own
    all_gather, padded       all_gather of buffers padded to the longest
    all_gather, grouped      one broadcast per rank, all under way at once
    reduce_scatter, padded   reduce_scatter of parts padded to the longest
    reduce_scatter, grouped  one reduce per rank, all under way at once
    tree, hierarchical       see `hapdsl.run.levels`
    all_to_all               all_to_all_single with split sizes; the part for oneself is copied

gloo has no uneven all_gather and no send to oneself, and a mismatch of sizes may return silently, so all lengths
are known on all ranks beforehand and are verified here. Ranks with nothing to send take part with buffers
of length 0; a collective that moves nothing at all isn't issued. The buffers passed in are messages that the caller has
packed: they may be overwritten, and what is returned may be a view of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hapdsl.lang.diagnostics import error
from hapdsl.run import levels
from hapdsl.run.groups import Group


def all_reduce(mine: Tensor, group: Group, method: str = "ring") -> Tensor:
    """The sum over the group, in place."""
    if group.size == 1 or not mine.numel():
        return mine
    if method == "tree":
        return levels.tree(mine, group)
    if method == "hierarchical" and group.levels is not None:
        return levels.all_reduce(mine, group.levels, all_gather, reduce_scatter)
    dist.all_reduce(mine, group=group.handle)
    return mine


def all_gather(mine: Tensor, lengths: Sequence[int], group: Group, method: str) -> list[Tensor]:
    """Every rank's buffer; rank i's is `lengths[i]` long."""
    _expect(mine, lengths[group.me])
    if group.size == 1 or not any(lengths):
        return [mine if i == group.me else mine.new_empty(n) for i, n in enumerate(lengths)]
    if method == "hierarchical" and group.levels is not None:
        return levels.all_gather(mine, lengths, group.levels, all_gather)
    return _gather_grouped(mine, lengths, group) if method == "grouped" else _gather_padded(mine, lengths, group)


def _gather_padded(mine: Tensor, lengths: Sequence[int], group: Group) -> list[Tensor]:
    longest = max(lengths)
    padded = mine.new_zeros(longest)
    padded[: mine.numel()] = mine
    found = list(mine.new_empty(group.size * longest).split(longest))
    dist.all_gather(found, padded, group=group.handle)
    return [part[:n] for part, n in zip(found, lengths, strict=True)]


def _gather_grouped(mine: Tensor, lengths: Sequence[int], group: Group) -> list[Tensor]:
    found = [mine if i == group.me else mine.new_empty(n) for i, n in enumerate(lengths)]
    _wait([dist.broadcast(part, rank, group=group.handle, async_op=True) for part, rank in _filled(found, group)])
    return found


def reduce_scatter(parts: Sequence[Tensor], lengths: Sequence[int], group: Group, method: str) -> Tensor:
    """This rank's part of the sum; `parts[j]`, `lengths[j]` long, is this rank's contribution to rank j's."""
    for part, length in zip(parts, lengths, strict=True):
        _expect(part, length)
    if group.size == 1 or not any(lengths):
        return parts[group.me]
    if method == "hierarchical" and group.levels is not None:
        return levels.reduce_scatter(parts, lengths, group.levels, reduce_scatter)
    if method != "grouped":
        return _scatter_padded(parts, lengths, group)
    _wait([dist.reduce(part, rank, group=group.handle, async_op=True) for part, rank in _filled(parts, group)])
    return parts[group.me]


def _scatter_padded(parts: Sequence[Tensor], lengths: Sequence[int], group: Group) -> Tensor:
    longest = max(lengths)
    padded = parts[0].new_zeros(group.size, longest)
    for row, part in zip(padded, parts, strict=True):
        row[: part.numel()] = part
    mine = parts[0].new_empty(longest)
    _reduce_scatter_equal(mine, padded.reshape(-1), group=group.handle)
    return mine[: lengths[group.me]]


def all_to_all(parts: Sequence[Tensor], lengths: Sequence[Sequence[int]], group: Group) -> list[Tensor]:
    """What each rank has for this one; `parts[j]` is for rank j, and `lengths[i][j]` what rank i has for rank j."""
    me = group.me
    for part, length in zip(parts, lengths[me], strict=True):
        _expect(part, length)
    sends = [0 if j == me else n for j, n in enumerate(lengths[me])]
    receives = [0 if i == me else row[me] for i, row in enumerate(lengths)]
    crossing = any(n for i, row in enumerate(lengths) for j, n in enumerate(row) if i != j)
    received = parts[me].new_empty(sum(receives))
    if crossing:
        sent = torch.cat([part for j, part in enumerate(parts) if j != me])
        dist.all_to_all_single(received, sent, receives, sends, group=group.handle)
    found = list(received.split(receives))
    found[me] = parts[me]
    return found


def _filled(parts: Sequence[Tensor], group: Group) -> list[tuple[Tensor, int]]:
    """Parts that hold anything, each with the rank it belongs to."""
    return [(part, rank) for part, rank in zip(parts, group.ranks, strict=True) if part.numel()]


def _wait(works: Sequence[Any]) -> None:
    for work in works:
        work.wait()


def _expect(buffer: Tensor, length: int) -> None:
    if buffer.dim() != 1 or buffer.numel() != length:
        raise error(
            "HAP716", f"a message of {list(buffer.shape)} elements was about to leave, the others expect {length}"
        )


# torch 2.13 renamed it; older ones only have the second
_reduce_scatter_equal = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
