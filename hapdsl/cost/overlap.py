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

from hapdsl.cost.pricing import Line, Pricer

Floats = NDArray[np.float64]


def simulate(lines: Sequence[Line], pricer: Pricer) -> tuple[Floats, Floats]:
    """(starts, ends) in seconds, float arrays [instructions, devices]."""
    devices = len(pricer.cluster)
    zero = np.zeros(devices)
    compute_free, comm_free = zero, zero
    done: dict[int, Floats] = {}  # when a value is there, by its number
    # The same for values that come from a collective. Others come from the compute stream itself, which takes things in
    # order, so a compute instruction needn't wait for them.
    arrived: dict[int, Floats] = {}
    starts, ends = [], []
    for line in lines:
        instruction, ins, outs = line.instruction, line.inputs, line.outputs
        if instruction.node is not None:
            start = compute_free
            for slot in ins:
                wait = arrived.get(slot)
                if wait is not None:
                    start = np.maximum(start, wait)
            compute_free = end = start + line.price.seconds
            for slot in outs:
                done[slot] = end
                arrived.pop(slot, None)
        elif instruction.is_collective:
            start = comm_free
            for slot in ins:
                start = np.maximum(start, done.get(slot, zero))
            start = _together(start, pricer.groups(instruction.axis))
            comm_free = end = start + line.price.seconds
            for slot in outs:
                done[slot] = arrived[slot] = end
        else:
            start = end = zero
            for slot in ins:
                start = end = np.maximum(start, done.get(slot, zero))
            waits = any(slot in arrived for slot in ins)
            for slot in outs:
                done[slot] = end
                if waits:
                    arrived[slot] = end
                else:
                    arrived.pop(slot, None)
        starts.append(start)
        ends.append(end)
    if not starts:
        return np.zeros((0, devices)), np.zeros((0, devices))
    return np.stack(starts), np.stack(ends)


def _together(ready: Floats, groups: list[list[int]]) -> Floats:
    """The moment at which the last device of each group is ready."""
    if len(groups) == 1:
        return np.full_like(ready, ready.max())
    start = np.empty_like(ready)
    for group in groups:
        start[group] = ready[group].max()
    return start
