"""Seconds of what a rank does again and again: alone, or together with all others.

A batch of calls lasts as long as several periods of whatever slows a process down (a CPU quota lets it run for some milliseconds, then
stops it), so that what comes out is what a long computation sees; the median over batches counts. A message is timed behind computing,
too: whoever has just computed may have used up its quota, or wake late, and all wait for the last.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from hapdsl.run.moves import Under

LONG_S = 2.0  # what takes so long needs no repetition
MUCH = 2.0  # batches: a message that takes so long isn't much longer behind computing
FEW = 8  # messages of a batch behind computing, at least: how long one of them waits depends on chance
STAGE = 0.25  # of a batch: what is computed before a message
LONGER = 4  # times a message: what is computed beside it,
PARTS = 100  # in so many parts: after each it is asked whether the message is there
SIDE = 192  # rows and columns of the products that are computed then


@dataclass(frozen=True)
class Timing:
    """`batch_s` is how long a batch lasts at least, `batches` how many of them there are."""

    device: torch.device
    batch_s: float
    batches: int

    def settle(self) -> None:
        """Wait until the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def alone(self, act: Callable[[int], Any]) -> float:
        """Seconds of `act(k)`, the k-th call of a batch, on this rank."""
        act(0)
        self.settle()
        calls = 1
        seconds = self._batch(act, calls)
        while seconds < self.batch_s:
            calls = max(calls + 1, min(calls * 10, int(calls * 1.3 * self.batch_s / max(seconds, 1e-7))))
            seconds = self._batch(act, calls)
        found, spent = [seconds / calls], seconds
        while len(found) < self.batches and spent < LONG_S:
            seconds = self._batch(act, calls)
            found.append(seconds / calls)
            spent += seconds
        return statistics.median(found)

    def _batch(self, act: Callable[[int], Any], calls: int) -> float:
        start = time.perf_counter()
        for k in range(calls):
            act(k)
        self.settle()
        return time.perf_counter() - start

    def together(self, act: Callable[[], Any]) -> float:
        """Seconds of `act()`, in which all ranks take part: the slowest rank's. The calls of a batch follow on each other."""
        dist.barrier()
        self._batch(lambda k: act(), 1)  # connections are made at the first use
        dist.barrier()
        first = slowest(self._batch(lambda k: act(), 1))
        if first > LONG_S:
            return first
        calls = max(1, min(500, round(self.batch_s / max(first, 1e-6))))
        found: list[float] = []
        spent = 0.0
        while len(found) < self.batches and spent < LONG_S:
            dist.barrier()
            seconds = slowest(self._batch(lambda k: act(), calls))
            found.append(seconds / calls)
            spent += seconds
        return statistics.median(found)

    # -- messages and computing -------------------------------------------------------------

    def computing(self, seconds: float) -> Callable[[], None]:
        """Something to compute that takes this rank so long alone."""
        a = torch.ones(SIDE, SIDE, device=self.device)
        out = torch.empty_like(a)
        calls = max(1, round(seconds / self.alone(lambda k: torch.mm(a, a, out=out))))

        def compute() -> None:
            for _ in range(calls):
                torch.mm(a, a, out=out)

        return compute

    def behind(self, compute: Callable[[], None], act: Callable[[], Any]) -> float:
        """Seconds of `act()` in which all ranks take part, each time behind `compute()`: by how much the slowest rank takes longer than with computing
        alone. Never less than when nothing is computed."""

        def both(k: int) -> None:
            compute()
            act()

        least = self.together(act)
        if least > min(LONG_S, MUCH * self.batch_s):
            return least
        calls = max(FEW, round(self.batch_s / (STAGE * self.batch_s + least)))
        found: list[float] = []
        for _ in range(self.batches):
            dist.barrier()
            alone = slowest(self._batch(lambda k: compute(), calls))
            dist.barrier()
            found.append((slowest(self._batch(both, calls)) - alone) / calls)
        return max(least, statistics.median(found))

    def beside(self, start: Callable[[], Under]) -> tuple[float, float]:
        """(computing, message): of a second in which this rank computes beside a message, the parts that each doesn't get on by, 0 to 1, together
        1 at most. All ranks take part, and all compute."""
        message_s = self.together(lambda: start().finish())
        part = self.computing(LONGER * message_s / PARTS)
        lost: list[float] = []
        late: list[float] = []
        for _ in range(self.batches):
            dist.barrier()
            alone = self._batch(lambda k: part(), PARTS)
            dist.barrier()
            begun = time.perf_counter()
            under, took = start(), 0.0
            for _ in range(PARTS):
                part()
                self.settle()
                if not took and under.arrived:
                    took = time.perf_counter() - begun
            longer = time.perf_counter() - begun - alone
            under.finish()
            took = took or time.perf_counter() - begun
            lost.append(longer / took)
            late.append(1 - message_s / took)
        computing = min(1.0, max(0.0, statistics.median(lost)))
        return computing, min(1 - computing, max(0.0, statistics.median(late)))


class Stopwatch:
    """Seconds of each step that is done within it. A GPU works behind the process that feeds it, so there events on its stream say how long a step took; nobody
    waits for them before all are asked for."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._began: Any = None
        self._under: deque[tuple[Any, Any]] = deque()  # events of steps that the GPU may not have ended
        self._seconds: list[float] = []

    def __enter__(self) -> None:
        self._began = self._now()

    def __exit__(self, *_: object) -> None:
        ended = self._now()
        if not self._cuda:
            self._seconds.append(ended - self._began)
            return
        self._under.append((self._began, ended))
        while self._under and self._under[0][1].query():
            self._read()

    @property
    def seconds(self) -> list[float]:
        """Of all steps so far; waits for the last one."""
        while self._under:
            self._under[0][1].synchronize()
            self._read()
        return self._seconds

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _read(self) -> None:
        began, ended = self._under.popleft()
        self._seconds.append(began.elapsed_time(ended) / 1e3)


def every(own: float) -> tuple[float, ...]:
    """Every rank's number."""
    found = [torch.zeros(1, dtype=torch.float64) for _ in range(dist.get_world_size())]
    dist.all_gather(found, torch.tensor([own], dtype=torch.float64))
    return tuple(float(x) for x in found)


def slowest(own: float) -> float:
    """The largest of all ranks' numbers, the same on each."""
    return max(every(own))
