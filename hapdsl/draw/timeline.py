"""When each instruction runs on each device: as the event simulation says, or stage by stage."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hapdsl.cost.evaluate import Cost
from hapdsl.graph.program import Program

Floats = NDArray[np.float64]
KINDS = ("overlap", "sync")


def timeline(program: Program, cost: Cost, kind: str = "overlap") -> tuple[Floats, Floats]:
    """(starts, ends) in seconds, float arrays [instructions, devices].

    "overlap": communication beside compute, the cost's own simulation. "sync": the paper's stages: all devices wait for each other at each
    collective, and compute one instruction after another in between.
    """
    if kind == "overlap":
        return cost.starts_s, cost.ends_s
    starts, ends = np.zeros_like(cost.starts_s), np.zeros_like(cost.ends_s)
    now = np.zeros(program.layout.devices)
    for k, (instruction, seconds) in enumerate(zip(program.instructions, cost.per_instruction_s, strict=True)):
        if instruction.is_collective:
            now = np.full_like(now, now.max())
            starts[k], ends[k] = now, now + seconds
            now = np.full_like(now, ends[k].max())
        else:
            starts[k], ends[k] = now, now + seconds
            now = ends[k]
    return starts, ends
