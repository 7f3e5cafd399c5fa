"""What each device holds while a program runs, in bytes of tensors (not of the process).

- Parameters, buffers, optimizer state and inputs are held from the first instruction to the last, in the
  placements they are loaded in.
- Any other value lives from the instruction that makes it to the last one that reads it. A value that is made again
  lives twice: up to the last reader of the first one, and from the second one on.
- `.new` is written over what it replaces where `hapdsl.graph.inplace` lets it: it takes no memory of its own. (Where a view of the old one is
  still wanted, the runner makes room for it; that isn't counted.) Any other one replaces what it updates only at the end of the step, so both
  are held until then; so are the loss, outputs and metrics.
- Where the batch is taken in turns, the lines are those of one turn; inputs of all turns are held, and so are the sums over turns, from
  the first line to the one that reads them.
- While a collective runs it may need a buffer (`hapdsl.cost.pricing`). Operands that nothing reads any more end when they are packed, before
  there is room for what arrives: of both only the larger counts. Workspace inside kernels isn't counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hapdsl.cost.columns import Columns
from hapdsl.cost.pricing import Line, Pricer
from hapdsl.graph.program import Value, summed
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
    return measured(graph, Columns(lines, pricer))


def measured(graph: TrainingGraph, columns: Columns) -> Memory:
    """The memory of a program in columns. Cost: O((lines + operands) × sorts of devices)."""
    n, pricer = len(columns), columns.pricer
    slots, first, last = _lifetimes(columns)
    ends = np.where(columns.loads[first] & np.isin(slots, columns.writes[columns.loads[columns.writers]]), n, last)
    kept = _kept(columns, slots)
    last[kept], ends[kept] = n - 1, n
    if (over := _overwriting(columns, slots, first, kept)).any():
        slots, first, last, ends = slots[~over], first[~over], last[~over], ends[~over]
    values = [pricer.numbers.values[s] for s in slots.tolist()]
    one_of, alike = pricer.alike
    sizes = pricer.table(slots, one_of)
    buffers = np.maximum(columns.buffers - _one_after_another(columns, first, ends, sizes)[:, alike], 0)
    added = _turns(graph, columns, values, first, sizes)
    live = _running(first, sizes, np.arange(n), "right") - _running(last, sizes, np.arange(n), "left")
    for k, r in added:
        buffers[k] += sizes[r][alike]
    return Memory(live[:, alike] + buffers, tuple(values), first, last, sizes[:, alike], buffers)


def _lifetimes(columns: Columns) -> tuple[Ints, Ints, Ints]:
    """(slot, first line, last line) of every stretch in which a value lives, int arrays [values], in the order they begin to be known.

    A stretch begins where a line makes a value (of loads: the first one), and goes on to the last reader before the next one begins; `free`
    ends it, unless the value is held. What nobody made (in an unfinished program) was there from the start.
    """
    n = len(columns)
    loaded, at = np.unique(columns.writes[columns.loads[columns.writers]], return_index=True)
    load_writes = np.flatnonzero(columns.loads[columns.writers])
    held = np.full(len(columns.numbers.values), n, dtype=np.int64)  # by slot: the line that loads it
    held[loaded] = columns.writers[load_writes[at]]
    begins = np.sort(np.concatenate([np.flatnonzero(~columns.loads[columns.writers]), load_writes[at]]))
    slots, starts = columns.writes[begins], columns.writers[begins]
    ends = np.flatnonzero(columns.frees[columns.readers] & (held[columns.reads] >= columns.readers))
    # What happens to a slot, sorted by slot and time: reads see what happened in earlier lines only.
    happens = np.concatenate([slots * n + starts, columns.reads[ends] * n + columns.readers[ends]])
    order = np.argsort(happens, kind="stable")
    before = np.searchsorted(happens[order], columns.reads * n + columns.readers) - 1
    what = order[before] if len(order) else np.zeros(len(before), dtype=np.int64)
    made = (before >= 0) & (what < len(begins))
    made[made] = slots[what[made]] == columns.reads[made]
    # Reads of what isn't there: one stretch from the start for those that nothing separates.
    lost = np.flatnonzero(~made)
    _, first_of, which = np.unique(
        columns.reads[lost] * (len(order) + 1) + before[lost] + 1, return_index=True, return_inverse=True
    )
    unknown = lost[first_of]
    stretch = np.empty(len(before), dtype=np.int64)
    stretch[made] = what[made]
    stretch[lost] = len(begins) + which.reshape(-1)
    last = np.concatenate([starts, np.zeros(len(unknown), dtype=np.int64)])
    np.maximum.at(last, stretch, columns.readers)
    last[: len(begins)][columns.loads[starts]] = n - 1
    known = np.concatenate([2 * starts + 1, 2 * columns.readers[unknown]])
    by_time = np.argsort(known, kind="stable")
    first = np.concatenate([np.where(columns.loads[starts], 0, starts), np.zeros(len(unknown), dtype=np.int64)])
    return np.concatenate([slots, columns.reads[unknown]])[by_time], first[by_time], last[by_time]


def _one_after_another(columns: Columns, first: Ints, ends: Ints, sizes: Ints) -> Ints:
    """Bytes that are never there at once while a collective runs: of operands that end with it, and of what it makes; int array [lines, devices].

    `ends` is the line in which a range ends, beyond all lines where it doesn't.
    """
    found = np.zeros((2, len(columns), sizes.shape[1]), dtype=np.int64)
    apart = first < ends
    for row, at, among in ((0, first, np.ones(len(first), dtype=bool)), (1, ends, apart & (ends < len(columns)))):
        chosen = np.flatnonzero(among)
        chosen = chosen[columns.in_turn[at[chosen]]]
        np.add.at(found[row], at[chosen], sizes[chosen])
    return np.asarray(found.min(axis=0))


def _turns(
    graph: TrainingGraph, columns: Columns, values: Sequence[Value], first: Ints, sizes: Ints
) -> list[tuple[int, int]]:
    """What a `microbatch` block adds: inputs are there for all turns, and sums over turns from the first line on.

    Changes `first` and `sizes`; returns (the line that makes a turn's part of a sum, the range of that sum): the part is there beside it.
    """
    if graph.turns == 1:
        return []
    sums = summed(line.instruction for line in columns.lines)
    found: list[tuple[int, int]] = []
    for r, value in enumerate(values):
        if graph.tensors[value.tensor].kind == "input" and value.tensor in graph.turned:
            sizes[r] *= graph.turns
        if value in sums and columns.lines[first[r]].instruction.section in TURN:
            found.append((int(first[r]), r))
            first[r] = 0
    return found


def _kept(columns: Columns, slots: Ints) -> Ints:
    """The ranges that live to the end: `.new` in the placement that the old value is held in, else as it was made last;
    loss, outputs and metrics as they were made last."""
    numbers = columns.numbers
    held = np.zeros(len(numbers.values) + 1, dtype=bool)  # by slot; the last entry stands for no slot
    held[columns.writes[columns.loads[columns.writers]]] = True
    result = np.array(numbers.result_of, dtype=np.int64)[slots]
    as_held = held[np.array(numbers.replaces, dtype=np.int64)[slots]]
    others = (result >= 0) & ~np.isin(result, result[as_held])
    return np.concatenate([_latest(slots, as_held), _latest(result, others)])


def _overwriting(columns: Columns, slots: Ints, first: Ints, kept: Ints) -> NDArray[np.bool_]:
    """The ranges that lie where what they replace was: made by an update that is the last to touch the old value; bool array [ranges]."""
    numbers, found = columns.numbers, np.zeros(len(slots), dtype=bool)
    if not numbers.overwrites:
        return found
    # By slot the last line that touches it; the last entry stands for no slot.
    touched = np.full(len(numbers.values) + 1, -1, dtype=np.int64)
    reads = ~columns.frees[columns.readers]
    np.maximum.at(touched, columns.reads[reads], columns.readers[reads])
    np.maximum.at(touched, columns.writes, columns.writers)
    held = np.zeros(len(touched), dtype=bool)
    held[columns.writes[columns.loads[columns.writers]]] = True
    old = np.array(numbers.replaces, dtype=np.int64)[slots[kept]]
    at = first[kept]
    found[kept] = held[old] & (touched[old] == at) & columns.overwriting[at]
    return found


def _latest(keys: Ints, among: NDArray[np.bool_]) -> Ints:
    """Of the ranges `among` those that are the last ones with their key."""
    ranges = np.flatnonzero(among)[::-1]
    return np.asarray(ranges[np.unique(keys[ranges], return_index=True)[1]])


def _running(times: Ints, sizes: Ints, at: Ints, side: str) -> Ints:
    """The sum of `sizes` whose time is at most (`right`) or before (`left`) each of `at`: int array [at, devices]."""
    order = np.argsort(times, kind="stable")
    sums = np.concatenate([np.zeros((1, sizes.shape[1]), dtype=np.int64), np.cumsum(sizes[order], axis=0)])
    upto = np.searchsorted(times[order], at, side="right" if side == "right" else "left")
    return np.asarray(sums[upto])
