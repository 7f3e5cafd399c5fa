"""An order for the overlapped cost: communication that hides behind compute.

An order is two sequences, one of each stream (compute, communication): messages stand as early as what they need allows, and in the end
as late as they start anyway, so that what they make isn't held for longer than it must. List schedules propose
them: each stream takes, of what could start first, what stands first in the program, or what the longest chain of work waits for.
That prefetches gathers and sends gradients as they appear. The best of these and the given order is improved on its critical path: what
waits there for its stream, though its operands are at hand, goes before what it waits for; then any task goes before what stands before it.

Cost: a list schedule (there are eight) and a simulation each take O(tasks x (devices + what is ready at once)); there are at most
WORK / tasks simulations, or 8.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product

import numpy as np

from hapdsl.cost.overlap import Beside, together
from hapdsl.search.forward import Forward, Streams, forward
from hapdsl.search.order import Floats, Tasks

WORK = 60_000  # tasks that are simulated in all, in MOST orders
MOST = 200
LEAST = 1e-9  # of the step: what a change must gain
GRAIN = 1e-6  # of the longest chain: what waits for as much stands as it did
CLOSE = 1e-3  # of the step: nearer to what any order takes isn't looked for


def by_streams(tasks: Tasks, most: int = MOST) -> list[int]:
    """An order of the tasks that is not above the given one in overlapped seconds; `most` orders are simulated."""
    n = len(tasks)
    start = list(range(n))
    if not n:
        return start
    found = _Search(tasks, most)
    floor = found.floor()
    best = found.run(start)
    for strict, rank in product((True, False), found.ranks()):
        if best.seconds <= floor * (1 + CLOSE):
            return best.order
        made = found.run(found.listed(*rank, strict))
        if made.seconds < best.seconds * (1 - LEAST):
            best = made
    return found.timely(found.improved(best, floor)).order


@dataclass(frozen=True)
class _Run:
    """An order and when its tasks run; float arrays [devices]."""

    order: list[int]
    starts: list[Floats]
    ends: list[Floats]
    seconds: float


class _Search:
    def __init__(self, tasks: Tasks, most: int = MOST) -> None:
        self.tasks = tasks
        self.groups = [tasks.pricer.groups(tasks.lines[k].instruction.axis) for k in tasks.line_of]
        self.zero: Floats = np.zeros(len(tasks.seconds[0]))
        longest = [float(s.max()) for s in tasks.seconds]
        self.behind = [0.0] * len(tasks)  # the longest chain of work that waits for a task
        for t in reversed(range(len(tasks))):
            self.behind[t] = max((self.behind[a] + longest[a] for a in tasks.after[t]), default=0.0)
        self.left = min(most, max(8, WORK // len(tasks)))
        self.waits = [len(b) for b in tasks.before]

    def floor(self) -> float:
        """What no order is below: the longest chain, all computing of a device, all messages."""
        total = sum((s for s, c in zip(self.tasks.seconds, self.tasks.collective, strict=True) if not c), self.zero)
        sent = sum((s for s, c in zip(self.tasks.seconds, self.tasks.collective, strict=True) if c), self.zero)
        ends: list[float] = []
        for t, seconds in enumerate(self.tasks.seconds):
            least = float(seconds.min())
            ends.append(least + max((ends[b] for b in self.tasks.before[t]), default=0.0))
        return max(float(total.max()), float(sent.max()), max(ends))

    # -- what an order takes ---------------------------------------------------------------

    def run(self, order: Sequence[int]) -> _Run:
        """The simulation of `hapdsl.cost.overlap`, over tasks."""
        tasks, zero = self.tasks, self.zero
        starts, ends = [zero] * len(tasks), [zero] * len(tasks)
        free = [zero, zero]
        beside = Beside(tasks.pricer.cluster.interferences)
        for t in order:
            stream = tasks.collective[t]
            start = free[stream]
            if stream:
                start = together(np.maximum(start, free[0]), self.groups[t])
            else:
                for b in tasks.before[t]:
                    if tasks.collective[b]:
                        start = np.maximum(start, ends[b])
            end = start + tasks.seconds[t]
            if stream:
                beside.sent(start, end)
            else:
                beside.slow(start, end)
            starts[t] = start
            free[stream] = ends[t] = end
        return _Run(list(order), starts, ends, float(max(free[0].max(), free[1].max())))

    # -- list schedules ----------------------------------------------------------------------

    def ranks(self) -> list[tuple[list[float], list[float]]]:
        """By which computing, and by which messages, are taken: the least first."""
        stands = [float(t) for t in range(len(self.tasks))]
        grain = GRAIN * max(self.behind) or 1.0
        longest = [-float(round(behind / grain)) for behind in self.behind]
        return [(stands, longest), (longest, longest), (stands, stands), (longest, stands)]

    def listed(self, compute: list[float], messages: list[float], strict: bool = True) -> list[int]:
        """What could start first is next; of several, the one of least rank. A part ends before the next one begins.

        Not `strict`: on the devices that are free before the last one, waiting counts for nothing.
        """
        tasks, zero = self.tasks, self.zero
        waits = self.waits.copy()
        ends = [zero] * len(tasks)
        free = [zero, zero]
        order: list[int] = []
        for part in sorted(set(tasks.part)):
            streams = (_Ready(compute, strict), _Ready(messages, strict))
            members = [t for t, p in enumerate(tasks.part) if p == part]
            for t in members:
                if not waits[t]:
                    streams[tasks.collective[t]].add(t, self.arrival(t, ends))
            for _ in members:
                options = [s.next(free[k]) for k, s in enumerate(streams)]
                moments = [
                    np.inf if o is None else float(np.maximum(free[k], o[1]).max()) for k, o in enumerate(options)
                ]
                k = 0 if moments[0] < moments[1] else 1
                chosen = options[k]
                assert chosen is not None
                t, arrival = chosen
                streams[k].take(t)
                start = np.maximum(free[k], arrival)
                free[k] = ends[t] = (together(start, self.groups[t]) if k else start) + tasks.seconds[t]
                order.append(t)
                for a in tasks.after[t]:
                    waits[a] -= 1
                    if not waits[a] and tasks.part[a] == part:
                        streams[tasks.collective[a]].add(a, self.arrival(a, ends))
        return (
            self.merged([t for t in order if not tasks.collective[t]], [t for t in order if tasks.collective[t]])
            or order
        )

    def arrival(self, t: int, ends: list[Floats], free: Floats | None = None) -> Floats:
        """When the operands of a task are there, and its stream is `free`."""
        found = self.zero if free is None else free
        for b in self.tasks.before[t]:
            found = np.maximum(found, ends[b])
        return together(found, self.groups[t]) if self.tasks.collective[t] else found

    def merged(self, *streams: Sequence[int]) -> list[int] | None:
        """Two sequences as one, messages as early as they can be; None where each would wait for the other."""
        part, after, waits, order = self.tasks.part, self.tasks.after, self.waits.copy(), []
        compute, messages = (iter(s) for s in streams)
        c, m = next(compute, None), next(messages, None)
        while c is not None or m is not None:
            if m is not None and not waits[m] and (c is None or part[m] <= part[c]):
                t, m = m, next(messages, None)
            elif c is not None and not waits[c]:
                t, c = c, next(compute, None)
            else:
                return None
            order.append(t)
            for a in after[t]:
                waits[a] -= 1
        return order

    def timely(self, run: _Run) -> _Run:
        """The same streams, each message where it stands in the program, or earlier if anything would wait for it: as fast, less is held, and layers
        stay alike."""
        tasks, zero = self.tasks, self.zero
        latest = [start + LEAST * run.seconds for start in self.latest_starts(run)]
        messages = deque(t for t in run.order if tasks.collective[t])
        ends, free, waits = [zero] * len(tasks), [zero, zero], self.waits.copy()
        order: list[int] = []

        def put(t: int, stream: int, start: Floats) -> None:
            free[stream] = ends[t] = start + tasks.seconds[t]
            order.append(t)
            for a in tasks.after[t]:
                waits[a] -= 1

        def launch() -> None:
            m = messages.popleft()
            put(m, 1, together(np.maximum(*free), self.groups[m]))

        for c in (t for t in run.order if not tasks.collective[t]):
            while messages and not waits[messages[0]]:
                m = messages[0]
                end = self.arrival(c, ends, free[0]) + tasks.seconds[c]
                if not (waits[c] or m < c or tasks.part[m] < tasks.part[c] or (end > latest[m]).any()):
                    break
                launch()
            put(c, 0, self.arrival(c, ends, free[0]))
        while messages:
            launch()
        made = self.run(order)
        return made if made.seconds <= run.seconds * (1 + 2 * LEAST) else run

    def latest_starts(self, run: _Run) -> list[Floats]:
        """When each task could start without the whole taking longer, in the streams of a run; float arrays [devices]."""
        tasks = self.tasks
        free = [np.full_like(self.zero, run.seconds) for _ in range(2)]
        found = [self.zero] * len(tasks)
        for t in reversed(run.order):
            stream = tasks.collective[t]
            end = free[stream]
            for a in tasks.after[t]:
                if stream or tasks.collective[a]:
                    end = np.minimum(end, found[a])
            start = end - tasks.seconds[t]
            if stream:
                start = -together(-start, self.groups[t])
            free[stream] = found[t] = start
        return found

    # -- the critical path -------------------------------------------------------------------

    def improved(self, best: _Run, floor: float) -> _Run:
        """Changes on the critical path, then of any task, as long as one gains."""
        found = True
        while found and self.left and best.seconds > floor * (1 + CLOSE):
            found, able = False, forward(self.tasks, best.order)
            for streams in chain(self.changes(best, able), able.each()):
                if not self.left:
                    return best
                order = self.merged(*streams)
                assert order is not None, "nothing was moved before what it needs"
                self.left -= 1
                made = self.run(order)
                if made.seconds < best.seconds * (1 - LEAST):
                    best, found = made, True
                    break
        return best

    def changes(self, run: _Run, able: Forward) -> Iterator[Streams]:
        """Each critical task that waits for its stream alone goes before the one it waits for; of several in a row the last one, too."""
        tasks, streams, place = self.tasks, able.streams, able.place
        t = max(range(len(tasks)), key=lambda k: (float(run.ends[k].max()), -k))
        device = int(run.ends[t].argmax())
        last: int | None = None
        while True:
            start = run.starts[t][device]
            own = streams[tasks.collective[t]]
            previous = own[place[t] - 1] if place[t] else None
            if tasks.collective[t] and start > 0:  # the device that it waits for
                device = self.latest(t, previous, run, device)
            cause = self.cause(t, previous, run, device, start)
            if cause is None:
                return
            if cause == previous and previous not in tasks.before[t]:
                for each in (t,) if last is None else (t, last):
                    if able.first[each] <= place[previous]:
                        yield able.moved(each, place[previous])
                last = t if last is None else last
            else:
                last = None
            t = cause

    def latest(self, t: int, previous: int | None, run: _Run, device: int) -> int:
        group = next(g for g in self.groups[t] if device in g)
        found = [*self.tasks.before[t], *([] if previous is None else [previous])]
        return max(group, key=lambda d: max((float(run.ends[b][d]) for b in found), default=0.0))

    def cause(self, t: int, previous: int | None, run: _Run, device: int, start: float) -> int | None:
        """What a task waits for on a device: an operand, else what its stream does before it."""
        found = [b for b in self.tasks.before[t] if run.ends[b][device] >= start > 0]
        if found:
            return max(found, key=lambda b: (float(run.ends[b][device]), b))
        return previous if previous is not None and start > 0 else None


class _Ready:
    """Tasks of one stream whose predecessors all have their times."""

    def __init__(self, rank: list[float], strict: bool) -> None:
        self.rank, self.strict = rank, strict
        self.waiting: dict[int, Floats] = {}
        self.here: list[tuple[float, int]] = []  # operands are there before the stream is free, a heap
        self.arrivals: dict[int, Floats] = {}

    def add(self, t: int, arrival: Floats) -> None:
        self.waiting[t] = self.arrivals[t] = arrival

    def next(self, free: Floats) -> tuple[int, Floats] | None:
        latest = free if self.strict else free.max()
        for t in [t for t, arrival in self.waiting.items() if (arrival <= latest).all()]:
            del self.waiting[t]
            heapq.heappush(self.here, (self.rank[t], t))
        if self.here:
            t = self.here[0][1]
        elif self.waiting:
            t = min(self.waiting, key=lambda k: (float(np.maximum(self.waiting[k] - free, 0.0).max()), self.rank[k], k))
        else:
            return None
        return t, self.arrivals[t]

    def take(self, t: int) -> None:
        if self.here and self.here[0][1] == t:
            heapq.heappop(self.here)
        else:
            del self.waiting[t]
