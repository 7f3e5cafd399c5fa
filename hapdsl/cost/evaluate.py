"""The cost of a whole program on a cluster: two totals, its stages, and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.columns import Columns
from hapdsl.cost.memory import Memory, measured
from hapdsl.cost.overlap import simulated
from hapdsl.cost.pricing import Line, Pricer
from hapdsl.graph.program import Instruction, Program

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Stage:
    """A collective and the compute up to the next one; the first stage may have no collective.

    `tensors` are those the collective moves and `bytes` the size of its message: the whole tensors, in the largest
    group where a mesh has several. `compute_s` is a float array [devices]. `first` and `last` number its
    instructions, both inclusive.
    """

    collective: str | None
    method: str | None
    tensors: tuple[str, ...]
    bytes: float
    comm_s: float
    compute_s: Floats
    first: int
    last: int

    @property
    def seconds(self) -> float:
        """What the stage adds to the synchronous total: the collective, then the slowest device."""
        return self.comm_s + float(self.compute_s.max())


@dataclass(frozen=True)
class Cost:
    """What one step of a program costs.

    `sync_s` is the paper's total (sum over stages of the collective and the slowest device), `overlap_s` that of the
    event simulation; `starts_s` and `ends_s` are its timeline, float arrays [instructions, devices].
    `per_instruction_s[k]` are the seconds of instruction k on each device. `capacity_bytes` is the devices' memory.
    """

    sync_s: float
    overlap_s: float
    stages: list[Stage]
    per_instruction_s: list[Floats]
    memory: Memory
    capacity_bytes: Floats
    starts_s: Floats
    ends_s: Floats

    def seconds(self, objective: str) -> float:
        """The total of an objective, "sync" or "overlap"."""
        return self.sync_s if objective == "sync" else self.overlap_s

    @property
    def memory_bytes(self) -> Ints:
        """Peak bytes per device, int array [devices]."""
        return self.memory.peak

    @property
    def memory_holders(self) -> list[list[tuple[str, int]]]:
        """For each device the largest values (name, bytes) that it holds at its peak."""
        return [self.memory.holders(d) for d in range(len(self.capacity_bytes))]

    @property
    def fits(self) -> bool:
        """Does every device's peak fit into its memory?"""
        return bool((self.memory_bytes <= self.capacity_bytes).all())

    def as_json(self) -> dict[str, Any]:
        """The object of `hapdsl cost --json`, in plain numbers."""
        return {
            "sync_s": self.sync_s,
            "overlap_s": self.overlap_s,
            "memory_bytes": [int(b) for b in self.memory_bytes],
            "fits": self.fits,
            "stages": [
                {
                    "collective": s.collective,
                    "method": s.method,
                    "tensors": list(s.tensors),
                    "bytes": s.bytes,
                    "comm_s": s.comm_s,
                    "compute_s": [float(c) for c in s.compute_s],
                    "first": s.first,
                    "last": s.last,
                }
                for s in self.stages
            ],
        }


def evaluate(program: Program, cluster: Cluster, pricer: Pricer | None = None) -> Cost:
    """Price a complete program on a cluster.

    `pricer`, made for the same graph, layout and cluster, makes repeated calls cheaper. Raises HAP420 where program and
    cluster differ in their number of devices, ValueError for a pricer of something else.
    Cost: O(instructions × devices); docs/performance.md has measured seconds.
    """
    if pricer is None:
        pricer = Pricer(program.graph, program.layout, cluster)
    elif not pricer.fits(program, cluster):
        raise ValueError("this pricer was made for another graph, layout or cluster")
    columns = Columns(pricer.numbered(program.instructions), pricer)
    starts, ends = simulated(columns)
    stages = _stages(columns)
    return Cost(
        sync_s=float(sum(s.seconds for s in stages)),
        overlap_s=float(ends.max(initial=0.0)),
        stages=stages,
        per_instruction_s=[price.seconds for price in columns.prices],
        memory=measured(program.graph, columns),
        capacity_bytes=cluster.memories,
        starts_s=starts,
        ends_s=ends,
    )


def stages_of(lines: Sequence[Line]) -> list[Stage]:
    """Cut a program at its collectives (HAP paper §3.2)."""
    if not lines:
        return []
    begins = [k for k, line in enumerate(lines) if line.instruction.is_collective]
    return _cut(
        [line.price.moved for line in lines],
        [line.instruction for line in lines],
        begins,
        np.stack([line.price.seconds for line in lines]),
    )


def sync_seconds(columns: Columns) -> float:
    """The synchronous total of a program in columns, without making its stages."""
    if not len(columns):
        return 0.0
    begins = np.flatnonzero(columns.collective)
    cuts, comm, worked = _worked(begins, columns.seconds.copy())
    stages = worked.max(axis=1)
    stages[len(cuts) - len(begins) :] += comm
    return float(sum(stages.tolist()))


def _stages(columns: Columns) -> list[Stage]:
    instructions = [line.instruction for line in columns.lines]
    begins = np.flatnonzero(columns.collective).tolist()
    return _cut([price.moved for price in columns.prices], instructions, begins, columns.seconds.copy())


def _cut(
    moved: Sequence[float], instructions: Sequence[Instruction], begins: list[int], seconds: Floats
) -> list[Stage]:
    """The stages of instructions, of which those that `begins` numbers are collectives; spends `seconds`, float array [instructions, devices]."""
    if not instructions:
        return []
    cuts, comm, sums = _worked(np.array(begins, dtype=np.int64), seconds)
    stages = []
    collectives = dict(zip(begins, comm.tolist(), strict=True))
    for first, after, worked in zip(cuts.tolist(), [*cuts[1:].tolist(), len(instructions)], sums, strict=True):
        head = instructions[first]
        if first in collectives:
            tensors = tuple(v.tensor for v in head.inputs)
            stages.append(
                Stage(head.op, head.method, tensors, moved[first], collectives[first], worked, first, after - 1)
            )
        else:
            stages.append(Stage(None, None, (), 0.0, 0.0, worked, first, after - 1))
    return stages


def _worked(begins: Ints, seconds: Floats) -> tuple[Ints, Floats, Floats]:
    """Of at least one instruction: where stages begin, how long each of the collectives that `begins` numbers takes, and how long each device computes
    in each stage. Spends `seconds`, float array [instructions, devices]."""
    cuts = begins if len(begins) and begins[0] == 0 else np.concatenate([[0], begins])
    comm = seconds[begins].max(axis=1)
    seconds[begins] = 0.0
    return cuts, comm, np.add.reduceat(seconds, cuts, axis=0)
