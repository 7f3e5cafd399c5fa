"""A rank's share of every batch, through torch's DataLoader.

Which samples a batch is made of depends on the seed and the step alone; which rows, columns and turns of it a rank reads follows from the
program. So the same seed gives the same batches whatever the shares, and a rank reads no more of a file than it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from hapdsl.graph.program import Value
from hapdsl.lang.diagnostics import Diagnostic, HapError
from hapdsl.run.data import Feed, Wanted
from hapdsl.run.distributed import Fed, Rank
from hapdsl.run.pieces import Slices, ranges, slices

Local = dict[Value, list[torch.Tensor]]


@dataclass(frozen=True)
class Wrong:
    """What is wrong with a batch, said as a value: of what is raised in a worker's process torch leaves nothing but text."""

    diagnostics: tuple[Diagnostic, ...]
    status: int


class Shares(Dataset[Local | Wrong]):
    """By number of a step: this rank's share of its batch, on the host."""

    def __init__(self, feed: Feed, rank: Rank) -> None:
        graph, program = rank.program.graph, rank.program
        self.feed = feed
        self.dtypes = {v: rank.lowered.dtypes[graph.tensors[v.tensor].dtype] for v in rank.lowered.fed}
        self.wanted: Wanted = {}
        for value in rank.lowered.fed:
            own = slices(ranges(program, value, rank.rank))
            for turn in range(rank.lowered.turns):
                self.wanted[value, turn] = (
                    graph.sources.get(value.tensor, value.tensor),
                    self._of_turn(rank, value, own, turn),
                )

    @staticmethod
    def _of_turn(rank: Rank, value: Value, own: Slices, turn: int) -> Slices:
        """The same piece in the whole batch."""
        dim = rank.program.graph.turned.get(value.tensor)
        if dim is None:
            return own
        start = turn * rank.program.graph.tensors[value.tensor].shape[dim]
        moved = slice(own[dim].start + start, own[dim].stop + start)
        return (*own[:dim], moved, *own[dim + 1 :])

    def __getitem__(self, step: int) -> Local | Wrong:
        try:
            parts = self.feed.parts(step, self.wanted)
        except HapError as stop:
            return Wrong(stop.diagnostics, stop.status)
        made: Local = {}
        for (value, _), part in parts.items():
            made.setdefault(value, []).append(part.to(self.dtypes[value]))
        return made


def batches(feed: Feed, rank: Rank, steps: range, workers: int = 0) -> Iterator[Fed]:
    """This rank's share of the batches of `steps`, on its device. With `workers` processes of its own, a rank loads ahead.

    Raises HapError as the feed does.
    """
    pinned = rank.device.type == "cuda"
    loader: Iterable[Any] = DataLoader(
        Shares(feed, rank), batch_size=None, sampler=steps, num_workers=workers, collate_fn=_as_it_is, pin_memory=pinned
    )
    for local in loader:
        if isinstance(local, Wrong):
            raise HapError(*local.diagnostics, status=local.status)
        yield {v: [t.to(rank.device, non_blocking=pinned) for t in parts] for v, parts in local.items()}


def _as_it_is(local: Any) -> Any:
    return local
