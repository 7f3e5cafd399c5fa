"""When each instruction runs on each rank: the actions of some steps, stamped.

A traced step goes through stamped copies of a rank's actions; other steps go through the actions themselves, so tracing costs nothing
outside. A collective is stamped when it is started, when its messages have arrived, and when what it brings has been unpacked. Nobody need be
waiting for the messages; where the backend tells nobody that they came, the end of the action in which they did is stamped. Of messages that go in
phases only the finish knows.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from hapdsl.run import levels
from hapdsl.run.actions import Action, Store
from hapdsl.run.distributed import Rank
from hapdsl.run.everybody import texts
from hapdsl.run.moves import Under
from hapdsl.run.reporting import Sink

Floats = NDArray[np.float64]
STEPS = 5  # how many steps a trace holds at most: the last ones of a run
# Actions that are an instruction's own, the same on all ranks.
TRACED = ("load", "compute", "convert", "start", "finish")
ROUNDS = 7  # of barriers by which clocks of several machines are laid over each other


@dataclass(frozen=True)
class Traces:
    """What a run's traced steps did: `events` are (kind, number of the lowered step, turn) in order, the same on all ranks; `times` is a float
    array [steps, events, devices, 3] of seconds since the step's first event: started, ended, and (of the start of a collective) arrived, 0 where only its finish knows."""

    steps: tuple[int, ...]
    events: tuple[tuple[str, int, int], ...]
    times: Floats


@dataclass
class Tracer:
    """Stamps the last steps of a run on one rank. `steps` says which."""

    rank: Rank
    steps: range
    taken: list[list[list[float]]] = field(default_factory=list)
    events: list[tuple[str, int, int]] = field(default_factory=list)
    asked: dict[int, tuple[list[Any], list[float]]] = field(default_factory=dict)

    @contextmanager
    def at(self, step: int) -> Iterator[None]:
        """Around `rank.step`: stamped where this step is one to trace."""
        if step not in self.steps:
            yield
            return
        rank = self.rank
        before = rank.loop, rank.after
        rows: list[list[float]] = []
        events: list[tuple[str, int, int]] = []
        rank.loop, rank.after = ([self._stamped(a, rows, events) for a in part] for part in before)
        try:
            dist.barrier()  # what comes before the step belongs to nobody
            yield
        finally:
            rank.loop, rank.after = before
        self.taken.append(rows)
        self.events = events

    def _stamped(
        self,
        action: Action,
        rows: list[list[float]],
        events: list[tuple[str, int, int]],
    ) -> Action:
        if action.kind not in TRACED:
            return action
        clock, under, number, kind = self.rank.clock, self.rank.under, action.step, action.kind
        cuda = self.rank.device.type == "cuda"

        def act(store: Store) -> None:
            row = [time.perf_counter(), 0.0, 0.0]
            rows.append(row)
            events.append((kind, number, clock.turn))
            action.run(store)
            if cuda:
                torch.cuda.synchronize()
            row[1] = time.perf_counter()
            self._ask(row[1])
            if kind == "finish" and number in self.asked:
                self.asked.pop(number)[1][2] = row[1]
            if kind == "start" and (handles := _when_arrived(under[number], row)):
                self.asked[number] = handles, row

        return Action(kind, number, act)

    def _ask(self, now: float) -> None:
        """Stamp what has arrived since the action before."""
        for number, (handles, row) in list(self.asked.items()):
            if all(handle.is_completed() for handle in handles):
                row[2] = now
                del self.asked[number]

    def send(self, sink: Sink) -> None:
        """All ranks' stamps, by the first one. All ranks must call it."""
        offset = _offset()
        own = torch.tensor(self.taken, dtype=torch.float64).reshape(len(self.taken), len(self.events), 3)
        own = torch.where(own > 0, own - offset, 0.0)
        every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(every, own)
        if self.rank.rank == 0:
            sink.send("trace", torch.stack(every, 2).contiguous(), steps=list(self.steps), events=self.events)


def received(header: dict[str, Any], tensor: Tensor) -> Traces:
    """What `Tracer.send` reports, each step's times from its first event on."""
    times = tensor.numpy().copy()
    for step in times:
        first = step[:, :, 0].min(initial=np.inf)
        step[step > 0] -= first
    events = tuple((str(k), int(n), int(t)) for k, n, t in header["events"])
    return Traces(tuple(header["steps"]), events, times)


def last(first: int, steps: int) -> range:
    """The steps of a run from `first` to `steps` that are traced: the last ones, and not the first two, in which memory is made."""
    return range(min(max(steps - STEPS + 1, first + 2), steps), steps + 1)


def _when_arrived(under: Under, row: list[float]) -> list[Any]:
    """Stamp row[2] when the last message that is under way has come. Returns what is to be asked for that instead: a work of gloo without a
    future may be waited for only once. Of what is sent in several phases nobody can know: the next begins when somebody waits."""

    def stamp(_: Any = None) -> None:
        row[2] = max(row[2], time.perf_counter())

    handles = [flight._handle for flight in under.flights if flight._handle is not None]
    if under.move.phased:
        return []
    works = [getattr(each, "work", each) for handle in handles for each in getattr(handle, "handles", [handle])]
    try:
        futures = [work.get_future() for work in works]
    except RuntimeError:
        return handles
    for future in futures:
        future.add_done_callback(stamp)
    return []


def _offset() -> float:
    """Seconds by which this rank's clock is ahead of the first rank's: 0 on its machine, elsewhere from what barriers let through last."""
    names = levels.node_names()
    if len(set(names)) == 1:
        return 0.0
    hosts = texts(socket.gethostname())
    stamps = []
    for _ in range(ROUNDS):
        dist.barrier()
        stamps.append(time.perf_counter())
    own = torch.tensor(stamps, dtype=torch.float64)
    first = own.clone()
    dist.broadcast(first, 0)
    return 0.0 if hosts[dist.get_rank()] == hosts[0] else float((own - first).median())
