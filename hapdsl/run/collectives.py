"""Which calls of a backend do which collective, on flat buffers of any lengths.

    all_reduce               all_reduce on a buffer of its own
    all_gather, padded       all_gather of buffers padded to the longest
    all_gather, grouped      one broadcast per rank, all under way at once
    reduce_scatter, padded   reduce_scatter of parts padded to the longest
    reduce_scatter, grouped  one reduce per rank, all under way at once
    tree, hierarchical       see `hapdsl.run.levels`
    all_to_all, pairwise     all_to_all_single with split sizes; the part for oneself is copied

Each is a *flight*: a generator that starts something, yields its handle, and goes on when that has been waited for; it returns the
result. `Flight` starts one and holds it until the result is wanted. What a flight with several phases starts later it starts when
it is waited for, which all ranks do in the order of the program.

A mismatch of sizes may return silently, so all lengths are known on all ranks beforehand and are verified here. Ranks with
nothing to send take part with buffers of length 0; a collective that moves nothing at all isn't issued. The buffers passed in are messages that the
caller has packed: they may be overwritten, lists of them emptied, and what is returned may be a view of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from hapdsl.lang.diagnostics import error
from hapdsl.run import levels
from hapdsl.run.backends import padded
from hapdsl.run.groups import Group

T = TypeVar("T")
Phases = Generator[Any, None, T]


class Flight(Generic[T]):
    """A collective under way, started as far as it can be without waiting."""

    def __init__(self, phases: Phases[T]) -> None:
        self._phases, self._handle, self._result = phases, None, None
        self._next()

    def _next(self) -> None:
        try:
            self._handle = next(self._phases)
        except StopIteration as end:
            self._handle, self._result = None, end.value

    @property
    def arrived(self) -> bool:
        """Is what has been started there? Nobody need be waiting for it."""
        return self._handle is None or bool(self._handle.is_completed())

    def poll(self) -> None:
        """Take the result if it has arrived, so that the messages' memory is free for others. Not for flights of several phases: what they
        start, all ranks must start in one order."""
        if self._handle is not None and self.arrived:
            self.wait()

    def wait(self) -> T:
        """The result, when it is there."""
        while self._handle is not None:
            self._handle.wait()
            self._next()
        return self._result  # type: ignore[return-value]


class Several:
    """Handles that are waited for together."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self.handles = handles

    def is_completed(self) -> bool:
        return all(handle.is_completed() for handle in self.handles)

    def wait(self) -> None:
        for handle in self.handles:
            handle.wait()


def all_reduce(mine: Tensor, group: Group, method: str = "ring") -> Phases[Tensor]:
    """The sum over the group, in place."""
    if group.size == 1 or not mine.numel():
        return mine
    if method == "tree":
        return (yield from levels.tree(mine, group))
    if method == "hierarchical" and group.levels is not None:
        return (yield from levels.all_reduce(mine, group.levels, all_gather, reduce_scatter))
    yield group.backend.all_reduce(mine, group.handle)
    return mine


def all_gather(mine: Tensor, lengths: Sequence[int], group: Group, method: str) -> Phases[list[Tensor]]:
    """Every rank's buffer; rank i's is `lengths[i]` long."""
    _expect(mine, lengths[group.me])
    if group.size == 1 or not any(lengths):
        return [mine if i == group.me else mine.new_empty(n) for i, n in enumerate(lengths)]
    if method == "hierarchical" and group.levels is not None:
        return (yield from levels.all_gather(mine, lengths, group.levels, all_gather))
    phases = (_gather_grouped if method == "grouped" else _gather_padded)(mine, lengths, group)
    del mine
    return (yield from phases)


def _gather_padded(mine: Tensor, lengths: Sequence[int], group: Group) -> Phases[list[Tensor]]:
    longest = max(lengths)
    rows = mine.new_zeros(group.size, longest)
    rows[group.me, : mine.numel()] = mine
    del mine
    yield group.backend.all_gather(list(rows), rows[group.me], group.handle)
    return [row[:n] for row, n in zip(rows, lengths, strict=True)]


def _gather_grouped(mine: Tensor, lengths: Sequence[int], group: Group) -> Phases[list[Tensor]]:
    found = [mine if i == group.me else mine.new_empty(n) for i, n in enumerate(lengths)]
    yield _each(group.backend.broadcast, found, group)
    return found


def reduce_scatter(parts: list[Tensor], lengths: Sequence[int], group: Group, method: str) -> Phases[Tensor]:
    """This rank's part of the sum; `parts[j]`, `lengths[j]` long, is this rank's contribution to rank j's."""
    _expect_all(parts, lengths)
    if group.size == 1 or not any(lengths):
        return parts[group.me]
    if method == "hierarchical" and group.levels is not None:
        return (yield from levels.reduce_scatter(parts, lengths, group.levels, reduce_scatter))
    if method != "grouped":
        return (yield from _scatter_padded(parts, lengths, group))
    yield _each(group.backend.reduce, parts, group)
    return parts[group.me]


def _scatter_padded(parts: list[Tensor], lengths: Sequence[int], group: Group) -> Phases[Tensor]:
    longest = max(lengths)
    rows = padded(parts, longest)  # named, so that it is there until the result is
    mine = rows.view(group.size, longest)[group.me]  # in its place: it has been read before it is written
    parts.clear()  # they are in the rows
    yield group.backend.reduce_scatter(mine, rows, group.handle)
    return mine[: lengths[group.me]]


def all_to_all(
    parts: list[Tensor], lengths: Sequence[Sequence[int]], group: Group, method: str = "pairwise"
) -> Phases[list[Tensor]]:
    """What each rank has for this one; `parts[j]` is for rank j, and `lengths[i][j]` what rank i has for rank j."""
    me = group.me
    _expect_all(parts, lengths[me])
    if method == "hierarchical" and group.levels is not None:
        return (yield from levels.all_to_all(parts, lengths, group.levels, all_to_all))
    sends = [0 if j == me else n for j, n in enumerate(lengths[me])]
    receives = [0 if i == me else row[me] for i, row in enumerate(lengths)]
    crossing = any(n for i, row in enumerate(lengths) for j, n in enumerate(row) if i != j)
    received = parts[me].new_empty(sum(receives))
    if crossing:
        sent = torch.cat([part for j, part in enumerate(parts) if j != me])
        yield group.backend.all_to_all(received, sent, receives, sends, group.handle)
    found = list(received.split(receives))
    found[me] = parts[me]
    return found


def _each(start: Callable[[Tensor, int, Any], Any], parts: Sequence[Tensor], group: Group) -> Several:
    """`start` for each part that holds anything, with the rank it belongs to; all under way at once."""
    return Several([start(p, rank, group.handle) for p, rank in zip(parts, group.ranks, strict=True) if p.numel()])


def _expect_all(parts: Sequence[Tensor], lengths: Sequence[int]) -> None:
    for part, length in zip(parts, lengths, strict=True):
        _expect(part, length)


def _expect(buffer: Tensor, length: int) -> None:
    if buffer.dim() != 1 or buffer.numel() != length:
        raise error(
            "HAP716", f"a message of {list(buffer.shape)} elements was about to leave, the others expect {length}"
        )
