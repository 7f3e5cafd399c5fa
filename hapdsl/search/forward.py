"""How far the tasks of an order may go forward, each in its own stream (compute, communication) with all else as it is. Cost: linear."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hapdsl.search.order import Tasks

Streams = tuple[list[int], list[int]]  # tasks that compute, and messages, each in their order


@dataclass(frozen=True)
class Forward:
    """The streams of an order. Task t is the `place[t]`-th of its own, and may be the `first[t]`-th at the earliest: behind what it needs there,
    and behind what must be done there before what it needs of the other stream, be it for that itself or for anything earlier in that."""

    collective: Sequence[bool]
    streams: Streams
    place: list[int]
    first: list[int]

    def moved(self, t: int, to: int) -> Streams:
        """The streams with a task at an earlier place of its own."""
        compute, messages = self.streams
        own, at = self.streams[self.collective[t]], self.place[t]
        changed = [*own[:to], t, *own[to:at], *own[at + 1 :]]
        return (compute, changed) if self.collective[t] else (changed, messages)

    def each(self) -> Iterator[Streams]:
        """Every task before the one before it, then before earlier ones, as far as it may go."""
        able, far = [*self.streams[0], *self.streams[1]], 1
        while able := [t for t in able if self.first[t] <= self.place[t] - far]:
            for t in able:
                yield self.moved(t, self.place[t] - far)
            far += 1


def forward(tasks: Tasks, order: Sequence[int]) -> Forward:
    """The streams of an order. A task stays in its part."""
    streams: Streams = ([], [])
    place, first, through = ([0] * len(tasks) for _ in range(3))
    begins = [0, 0]  # of each stream: where the part begins that it is in
    others = [0, 0]  # of each stream: how many tasks of the other one must be done for what it has come to
    for t in order:
        k = int(tasks.collective[t])
        own = streams[k]
        if own and tasks.part[own[-1]] != tasks.part[t]:
            begins[k] = len(own)
        first[t] = begins[k]
        for b in tasks.before[t]:
            if tasks.collective[b] == tasks.collective[t]:
                first[t] = max(first[t], place[b] + 1)
            else:
                first[t] = max(first[t], through[b])
                others[k] = max(others[k], place[b] + 1)
        place[t], through[t] = len(own), others[k]
        own.append(t)
    return Forward(tasks.collective, streams, place, first)
