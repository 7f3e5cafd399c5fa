"""The overlapped total: an event simulation with a compute and a communication stream per device.

Both streams of a device take instructions in program order. A compute instruction starts when its stream is free and
its inputs are there; a collective when every device of its group has computed whatever stands before it, and its stream is free: that
is how torch.distributed launches them, on CPUs by the thread that computes, on GPUs behind what was launched before. Loads and local
conversions take no time and no stream. While a device computes beside a message of its own, both go on as much slower as its `interference` says;
each device has its part of a message that much later, and its next ones.

Every instruction starts no later than in the synchronous reading, where all wait for each other at each collective, and
nothing is done slower than if computing stood still as long as a message lasts; so the overlapped total is never above the synchronous one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hapdsl.cost.columns import Columns
from hapdsl.cost.pricing import Line, Pricer

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def simulate(lines: Sequence[Line], pricer: Pricer, early: bool = False) -> tuple[Floats, Floats]:
    """(starts, ends) in seconds, float arrays [instructions, devices].

    `early`: in the order in which each collective stands right behind what makes its operands, and behind the collective before it.
    """
    return simulated(Columns(lines, pricer), early)


def simulated(columns: Columns, early: bool = False) -> tuple[Floats, Floats]:
    """The same of a program in columns.

    A compute stream goes on without a gap but where an instruction reads what comes from elsewhere, and of those that read it only the first
    can wait for it; so runs between such instructions are sums, and only these and what is no compute are looked at one by one.
    """
    n, devices = len(columns), len(columns.pricer.cluster)
    seconds = columns.seconds
    makers, origin = _origins(columns)
    after = np.flatnonzero(columns.frees)
    starts, ends = np.zeros((n, devices)), np.zeros((n, devices))
    waits = _waits(columns, makers)
    looked_at = columns.collective | (columns.local & (origin == np.arange(n)))
    looked_at[list(waits)] = True
    events = np.flatnonzero(looked_at).tolist()
    # The compute stream, packed: its lines, its seconds, and how many of its lines stand before each event.
    stream = np.flatnonzero(columns.compute)
    work, done = seconds[stream], 0
    begun, ended = np.empty_like(work), np.empty_like(work)
    compute_free = comm_free = np.zeros(devices)
    beside = Beside(columns.pricer.cluster.interferences)
    first_read = np.searchsorted(columns.readers, np.arange(n + 1)).tolist()

    def ready(k: int) -> Floats:
        found = np.zeros(devices)
        for maker in makers[first_read[k] : first_read[k + 1]].tolist():
            if maker >= 0:
                np.maximum(found, ends[maker], out=found)
        return found

    def there(maker: int) -> Floats:
        """When what a line makes is there, by what is known now: messages that it is made of may have become later."""
        if beside.delays and columns.local[maker]:
            for source in makers[first_read[maker] : first_read[maker + 1]].tolist():
                if source >= 0:
                    there(source)
            starts[maker] = ends[maker] = ready(maker)
        return ends[maker]

    def places() -> list[tuple[int, int]]:
        """Each event, and how many lines of the compute stream stand before it."""
        standing = list(zip(events, np.searchsorted(stream, events).tolist(), strict=True))
        if not early:
            return standing
        behind = np.where(columns.compute, np.searchsorted(stream, np.arange(n), side="right"), 0).tolist()
        last, found = 0, []
        for k, upto in standing:
            if k not in waits:
                own = makers[first_read[k] : first_read[k + 1]].tolist()
                upto = max((behind[m] for m in own if m >= 0), default=0)
                if columns.collective[k]:
                    upto = last = max(last, upto)
                behind[k] = upto
            found.append((upto, k in waits, k))
        return [(k, upto) for upto, _, k in sorted(found)]

    for k, upto in places():
        if upto > done:
            compute_free = _run(work, begun, ended, done, upto, compute_free, beside)
            ends[stream[done:upto]] = ended[done:upto]
            done = upto
        own = waits.get(k)
        if own is not None:
            for maker in own:
                compute_free = np.maximum(compute_free, there(maker))
        elif columns.kinds[k] < 0:
            starts[k] = ends[k] = ready(k)
        else:
            instruction = columns.lines[k].instruction
            starts[k] = together(np.maximum(comm_free, compute_free), columns.pricer.groups(instruction.axis))
            ends[k] = starts[k] + seconds[k]
            comm_free = ends[k]
            beside.sent(starts[k], ends[k])
    if len(stream) > done:
        _run(work, begun, ended, done, len(stream), compute_free, beside)
    starts[stream], ends[stream] = begun, ended
    if beside.delays:
        for k in events:
            if columns.local[k]:
                there(k)
    passed_on = np.flatnonzero(origin != np.arange(n))
    starts[passed_on] = ends[passed_on] = ends[origin[passed_on]]
    for k in after.tolist():
        starts[k] = ends[k] = ready(k)
    return starts, ends


def _origins(columns: Columns) -> tuple[Ints, Ints]:
    """(makers, origin): who makes what each read reads, local conversions of one value left out: those hand on when their source was there.

    int arrays [operands] (-1 where nobody does) and [lines] (every other line is its own origin).
    """
    makers = columns.makers.copy()
    origin = np.arange(len(columns))
    reads = np.flatnonzero(columns.local[columns.readers])
    alone = np.bincount(columns.readers[reads], minlength=len(columns)) == 1
    for read in reads[alone[columns.readers[reads]] & (makers[reads] >= 0)].tolist():
        origin[columns.readers[read]] = origin[makers[read]]
    made = makers >= 0
    makers[made] = origin[makers[made]]
    return makers, origin


def _waits(columns: Columns, makers: Ints) -> dict[int, list[int]]:
    """For compute lines that may have to wait: the lines that make what they wait for, each at its first reader only."""
    elsewhere = columns.collective | columns.local
    reads = np.flatnonzero((makers >= 0) & columns.compute[columns.readers] & elsewhere[makers])
    _, first = np.unique(makers[reads], return_index=True)
    found: dict[int, list[int]] = {}
    for reader, maker in zip(columns.readers[reads[first]].tolist(), makers[reads[first]].tolist(), strict=True):
        found.setdefault(reader, []).append(maker)
    return found


def _run(work: Floats, begun: Floats, ended: Floats, first: int, after: int, free: Floats, beside: Beside) -> Floats:
    """Compute instructions `first` up to `after` one behind the other, from `free` on; returns when the last one ends."""
    own = ended[first:after]
    own[:] = work[first:after]
    own[0] += free
    np.add.accumulate(own, axis=0, out=own)
    beside.slow(free, own)
    begun[first] = free
    begun[first + 1 : after] = own[:-1]
    return own[-1]


class Beside:
    """Messages that were launched and may still be on their way: how much later computing ends for them, and they for computing.

    Of a second in which a device computes beside a message of its own, it does 1 - c seconds' work of the one and 1 - s of the other, c and s being its
    `interference` (float array [devices, 2]). Messages of a device follow one another, and computing goes forward in time.
    """

    def __init__(self, interference: Floats) -> None:
        self.compute, self.message = interference.T
        self.slows = bool(interference.any())
        self.delays = bool(self.message.any())
        # What computing beside a message takes longer, in terms of what it would take alone; a message beside computing, as a factor.
        self.rate = self.compute / np.maximum(1 - self.compute, 1e-12)
        self.stretch = 1 / np.maximum(1 - self.message, 1e-12)
        self.messages: list[tuple[Floats, Floats]] = []

    def sent(self, start: Floats, end: Floats) -> None:
        """A message from `start` to `end`, seconds, float arrays [devices]: both become later, in place, as its devices compute beside it, or beside
        those before it."""
        if self.slows:
            self.messages.append((start, end))

    def slow(self, start: Floats, ends: Floats) -> None:
        """Add to `ends`, float array [..., devices], of computing from `start` on, what messages cost it, and to messages what that costs them."""
        self.messages = [(s, e) for s, e in self.messages if (e > start).any()]
        free: Floats | None = None  # where the message before it ends
        for begin, end in self.messages:
            if free is not None:
                later = np.maximum(free - begin, 0.0)
                begin += later
                end += later
            first = np.maximum(begin, start)
            longest = np.maximum(end - first, 0.0) * self.stretch
            ends += np.clip((ends - first) * self.rate, 0.0, self.compute * longest)
            if self.delays:
                last = ends if ends.ndim == 1 else ends[-1]
                end += self.message * np.clip(last - first, 0.0, longest)
                free = end


def together(ready: Floats, groups: list[list[int]]) -> Floats:
    """The moment at which the last device of each group is ready: float array [devices], as `ready` is."""
    if len(groups) == 1:
        return np.full_like(ready, ready.max())
    start = np.empty_like(ready)
    for group in groups:
        start[group] = ready[group].max()
    return start
