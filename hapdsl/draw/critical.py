"""What a step waits for: the chain of instructions without a gap that ends last (overlapped timeline)."""

from __future__ import annotations

import numpy as np

from hapdsl.cost.evaluate import Cost
from hapdsl.graph.program import Program

TOUCH = 1e-9  # of the whole step: ends and starts that are closer are the same moment


def critical_path(program: Program, cost: Cost) -> list[int]:
    """The numbers of the instructions of a critical path, in the order they run.

    From the one that ends last back to one that has just ended when it starts: on the same device, or an operand's maker; of several the one that
    lasted longest. Cost: O(instructions²) at worst by numpy rows, in practice O(path × instructions).
    """
    starts, ends = cost.starts_s, cost.ends_s
    lasting = np.array([bool((seconds > 0).any()) for seconds in cost.per_instruction_s])
    if not lasting.any():
        return []
    whole = float(ends.max())
    last = int(np.where(lasting, ends.max(axis=1), -1.0).argmax())
    device = int(ends[last].argmax())
    path = [last]
    while float(starts[path[-1]].min()) > TOUCH * whole:
        k = path[-1]
        start = float(starts[k][device])
        together = program.instructions[k].is_collective
        own = ends.max(axis=1) if together else ends[:, device]
        before = lasting & (np.abs(own - start) <= TOUCH * whole)
        before[k:] = False
        found = np.flatnonzero(before)
        if not len(found):
            break
        spent = np.array([float(cost.per_instruction_s[n].max()) for n in found])
        path.append(int(found[spent.argmax()]))
        device = int(ends[path[-1]].argmax()) if together else device
    return path[::-1]
