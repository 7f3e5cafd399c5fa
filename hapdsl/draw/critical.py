"""What a step waits for: the chain of instructions without a gap that ends last (overlapped timeline)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hapdsl.cost.evaluate import Cost
from hapdsl.graph.program import Program

Floats = NDArray[np.float64]
Numbers = NDArray[np.intp]
TOUCH = 1e-9  # of the whole step: ends and starts that are closer are the same moment


def critical_path(program: Program, cost: Cost) -> list[int]:
    """The numbers of the instructions of a critical path, in the order they run.

    From the one that ends last back to one that has just ended when it starts: on the same device, or an operand's maker; of several the one that
    lasted longest. Cost: a sort of the instructions per device that is met, and two look-ups an instruction of the path.
    """
    starts, ends = cost.starts_s, cost.ends_s
    longest = np.array([seconds.max(initial=0.0) for seconds in cost.per_instruction_s])
    lasting = np.flatnonzero(longest > 0)
    if not len(lasting):
        return []
    every = ends.max(axis=1)
    touch = TOUCH * float(ends.max())
    sorted_ends: dict[int | None, tuple[Floats, Numbers]] = {}

    def ending(at: float, device: int | None) -> Numbers:
        """What lasts and ends then on a device, or on the last of all (None), by number."""
        if device not in sorted_ends:
            own = (every if device is None else ends[:, device])[lasting]
            order = own.argsort()
            sorted_ends[device] = own[order], lasting[order]
        own, numbers = sorted_ends[device]
        return np.sort(numbers[own.searchsorted(at - touch) : own.searchsorted(at + touch, "right")])

    last = int(lasting[every[lasting].argmax()])
    device = int(ends[last].argmax())
    path = [last]
    while float(starts[path[-1]][device]) > touch:
        k = path[-1]
        begun = float(starts[k][device])
        found = ending(begun, device)
        if program.instructions[k].is_collective:
            # It waits for the last of all; behind a message that computing made late, for its device's own part of that.
            found = np.union1d(found, ending(begun, None))
        found = found[found < k]
        if not len(found):
            break
        path.append(int(found[longest[found].argmax()]))
        if abs(float(ends[path[-1]][device]) - begun) > touch:
            device = int(ends[path[-1]].argmax())
    return path[::-1]
