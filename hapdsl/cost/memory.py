"""What each device holds while a program runs, in bytes of tensors (not of the process).

- Parameters, buffers, optimizer state and inputs are held from the first instruction to the last, in the
  placements they are loaded in.
- Any other value lives from the instruction that makes it to the last one that reads it. A value that is made again
  lives twice: up to the last reader of the first one, and from the second one on.
- `.new` replaces what it updates only at the end of the step, so both are held until then; so are the loss, outputs
  and metrics.
- Where the batch is taken in turns, the lines are those of one turn; inputs of all turns are held, and so are the sums over turns, from
  the first line to the one that reads them.
- While a collective runs it may need a buffer (`hapdsl.cost.pricing`). Workspace inside kernels isn't counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hapdsl.cost.pricing import Line, Pricer
from hapdsl.graph.program import LOADS, Value, summed
from hapdsl.graph.training import TURN, TrainingGraph

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Memory:
    """`live[k]` are the bytes on each device while instruction k runs, int array [instructions, devices].

    `values[r]` lives from `first[r]` to `last[r]` (instruction numbers, inclusive) and takes `sizes[r]` bytes per
    device; `buffers[k]` are the bytes of instruction k's buffer.
    """

    live: Ints
    values: tuple[Value, ...]
    first: Ints
    last: Ints
    sizes: Ints
    buffers: Ints

    @property
    def peak(self) -> Ints:
        """The most that each device holds, int array [devices]."""
        if not len(self.live):
            return np.zeros(self.live.shape[1], dtype=np.int64)
        return np.asarray(self.live.max(axis=0))

    def peak_instruction(self, device: int) -> int:
        """The first instruction at which a device holds the most; -1 in an empty program."""
        return int(self.live[:, device].argmax()) if len(self.live) else -1

    def holders(self, device: int, most: int = 20) -> list[tuple[str, int]]:
        """(value, bytes) of the largest values that a device holds at its peak; "(buffer)" is a collective's."""
        k = self.peak_instruction(device)
        if k < 0:
            return []
        alive = np.flatnonzero((self.first <= k) & (self.last >= k) & (self.sizes[:, device] > 0))
        found = [(str(self.values[r]), int(self.sizes[r, device])) for r in alive]
        if self.buffers[k, device]:
            found.append(("(buffer)", int(self.buffers[k, device])))
        return sorted(found, key=lambda f: -f[1])[:most]


def measure(graph: TrainingGraph, lines: Sequence[Line], pricer: Pricer) -> Memory:
    """The memory of a program's lines, as numbered and priced by `pricer`."""
    n = len(lines)
    slots, first, last, values = [], [], [], []
    open_: dict[int, int] = {}  # slot -> the range it lives in now
    held: dict[int, Value] = {}

    def begin(slot: int, value: Value, start: int, end: int) -> int:
        slots.append(slot)
        values.append(value)
        first.append(start)
        last.append(end)
        return len(slots) - 1

    for k, line in enumerate(lines):
        instruction = line.instruction
        for slot, value in zip(line.inputs, instruction.inputs, strict=True):
            r = open_.get(slot)
            if r is None:  # nobody made it (an unfinished program): it was there from the start
                r = open_[slot] = begin(slot, value, 0, k)
            last[r] = max(last[r], k)
        if instruction.node is None and instruction.op == "free":
            for slot in line.inputs:
                if slot not in held:
                    open_.pop(slot, None)
            continue
        load = instruction.node is None and instruction.op in LOADS
        for slot, value in zip(line.outputs, instruction.outputs, strict=True):
            if not load:
                open_[slot] = begin(slot, value, k, k)
            elif slot not in held:
                held[slot] = value
                open_[slot] = begin(slot, value, 0, n - 1)
    for r in _kept(graph, values, held):
        last[r] = n - 1

    one_of, alike = pricer.alike
    sizes = pricer.table(slots)[:, one_of]
    added = _turns(graph, lines, values, first, sizes)
    first_, last_ = np.array(first, dtype=np.int64), np.array(last, dtype=np.int64)
    buffers = np.stack([line.price.buffer for line in lines]) if n else np.zeros((0, len(alike)), dtype=np.int64)
    live = _running(first_, sizes, np.arange(n), "right") - _running(last_, sizes, np.arange(n), "left")
    for k, r in added.items():
        buffers[k] += sizes[r][alike]
    return Memory(live[:, alike] + buffers, tuple(values), first_, last_, sizes[:, alike], buffers)


def _turns(graph: TrainingGraph, lines: Sequence[Line], values: Sequence[Value], first: list[int], sizes: Ints) -> dict[int, int]:
    """What a `microbatch` block adds: inputs are there for all turns, and sums over turns from the first line on.

    Changes `first` and `sizes`; returns, by the line that makes a turn's part of a sum, the range of that sum: the part is there beside it.
    """
    if graph.turns == 1:
        return {}
    sums = summed(line.instruction for line in lines)
    found: dict[int, int] = {}
    for r, value in enumerate(values):
        if graph.tensors[value.tensor].kind == "input" and value.tensor in graph.turned:
            sizes[r] *= graph.turns
        if value in sums and lines[first[r]].instruction.section in TURN:
            found[first[r]], first[r] = r, 0
    return found


def _kept(graph: TrainingGraph, values: Sequence[Value], held: dict[int, Value]) -> list[int]:
    """The ranges that live to the end: `.new` in the placement that the old value is held in, else as it was made last;
    loss, outputs and metrics as they were made last."""
    placements: dict[str, set[object]] = {}
    for value in held.values():
        placements.setdefault(value.tensor, set()).add(value.placement)
    wanted: dict[str, set[object]] = {new: placements.get(old, set()) for old, new in graph.updates.items()}
    for name in (graph.loss, *graph.outputs, *graph.metrics):
        if name is not None:
            wanted.setdefault(graph.resolve(name), set())
    latest: dict[str, int] = {}
    matching: dict[tuple[str, object], int] = {}
    for r, value in enumerate(values):
        if value.tensor in wanted:
            latest[value.tensor] = r
            if value.placement in wanted[value.tensor]:
                matching[value.tensor, value.placement] = r
    found = list(matching.values())
    named = {name for name, _ in matching}
    return found + [r for name, r in latest.items() if name not in named]


def _running(times: Ints, sizes: Ints, at: Ints, side: str) -> Ints:
    """The sum of `sizes` whose time is at most (`right`) or before (`left`) each of `at`: int array [at, devices]."""
    order = np.argsort(times, kind="stable")
    sums = np.concatenate([np.zeros((1, sizes.shape[1]), dtype=np.int64), np.cumsum(sizes[order], axis=0)])
    upto = np.searchsorted(times[order], at, side="right" if side == "right" else "left")
    return np.asarray(sums[upto])
