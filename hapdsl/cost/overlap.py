"""The overlapped total: an event simulation with a compute and a communication stream per device.

Both streams of a device take instructions in program order. A compute instruction starts when its stream is free and
its inputs are there; a collective when that holds on every device of its group. Loads and local conversions take no
time and no stream. Nothing slows anything down by running beside it.

Every instruction starts no later than in the synchronous reading, where all wait for each other at each collective;
so the overlapped total is never above the synchronous one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hapdsl.cost.columns import Columns
from hapdsl.cost.pricing import Line, Pricer

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def simulate(lines: Sequence[Line], pricer: Pricer) -> tuple[Floats, Floats]:
    """(starts, ends) in seconds, float arrays [instructions, devices]."""
    return simulated(Columns(lines, pricer))


def simulated(columns: Columns) -> tuple[Floats, Floats]:
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
    events = np.flatnonzero(looked_at)
    # The compute stream, packed: its lines, its seconds, and how many of its lines stand before each event.
    stream = np.flatnonzero(columns.compute)
    work, done = seconds[stream], 0
    begun, ended = np.empty_like(work), np.empty_like(work)
    compute_free = comm_free = np.zeros(devices)
    first_read = np.searchsorted(columns.readers, np.arange(n + 1)).tolist()

    def ready(k: int) -> Floats:
        found = np.zeros(devices)
        for maker in makers[first_read[k] : first_read[k + 1]].tolist():
            if maker >= 0:
                np.maximum(found, ends[maker], out=found)
        return found

    for k, upto in zip(events.tolist(), np.searchsorted(stream, events).tolist(), strict=True):
        if upto > done:
            compute_free = _run(work, begun, ended, done, upto, compute_free)
            ends[stream[done:upto]] = ended[done:upto]
            done = upto
        own = waits.get(k)
        if own is not None:
            for maker in own:
                compute_free = np.maximum(compute_free, ends[maker])
        elif columns.kinds[k] < 0:
            starts[k] = ends[k] = ready(k)
        else:
            instruction = columns.lines[k].instruction
            starts[k] = together(np.maximum(comm_free, ready(k)), columns.pricer.groups(instruction.axis))
            comm_free = ends[k] = starts[k] + seconds[k]
    if len(stream) > done:
        _run(work, begun, ended, done, len(stream), compute_free)
    starts[stream], ends[stream] = begun, ended
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


def _run(work: Floats, begun: Floats, ended: Floats, first: int, after: int, free: Floats) -> Floats:
    """Compute instructions `first` up to `after` one behind the other, from `free` on; returns when the last one ends."""
    own = ended[first:after]
    own[:] = work[first:after]
    own[0] += free
    np.add.accumulate(own, axis=0, out=own)
    begun[first] = free
    begun[first + 1 : after] = own[:-1]
    return own[-1]


def together(ready: Floats, groups: list[list[int]]) -> Floats:
    """The moment at which the last device of each group is ready: float array [devices], as `ready` is."""
    if len(groups) == 1:
        return np.full_like(ready, ready.max())
    start = np.empty_like(ready)
    for group in groups:
        start[group] = ready[group].max()
    return start
