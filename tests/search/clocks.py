"""Dijkstra over states with a clock per device: a state may be kept under several clocks, none of which is behind another on every device."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

State = TypeVar("State", bound=Hashable)
Clock = tuple[float, ...]


def earliest(
    starts: Iterable[State],
    devices: int,
    moves: Callable[[State, Clock], Iterable[tuple[State, Clock]]],
    reached: Callable[[State], bool],
    late: Callable[[], bool] = lambda: False,
) -> tuple[float, int]:
    """Seconds until the last device is at the first state that is `reached`, and how many states were looked at.

    Raises TimeoutError, with the latter, once it is `late`.
    """
    count = itertools.count()  # breaks ties: first come, first served
    zero: Clock = (0.0,) * devices
    heap: list[tuple[float, int, State, Clock]] = []
    known: dict[State, list[Clock]] = {}
    popped = 0
    for state in starts:  # there may be many: a way to hold each parameter
        if late():
            raise TimeoutError(popped)
        heap.append((0.0, next(count), state, zero))
        known[state] = [zero]
    while heap:
        total, _, state, clock = heapq.heappop(heap)
        if clock not in known[state]:
            continue  # something better has come since
        popped += 1
        if late():
            raise TimeoutError(popped)
        if reached(state):
            return total, popped
        for following, later in moves(state, clock):
            clocks = known.setdefault(following, [])
            if any(_no_later(c, later) for c in clocks):
                continue
            clocks[:] = [c for c in clocks if not _no_later(later, c)]
            clocks.append(later)
            heapq.heappush(heap, (max(later), next(count), following, later))
    raise AssertionError("the end is never reached")


def _no_later(a: Clock, b: Clock) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True))
