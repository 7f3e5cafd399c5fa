"""Programs side by side: what each device does with its time, what travels, and which lines differ by how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hapdsl.cost.evaluate import Cost
from hapdsl.cost.parts import Part, anywhere, parts
from hapdsl.cost.pricing import Line
from hapdsl.graph.program import Program
from hapdsl.graph.training import TrainingGraph

Floats = NDArray[np.float64]
LEAST = 1e-9  # of a step's seconds: what differs by less is the same


@dataclass(frozen=True)
class Volume:
    """What one way of communicating moves in a step: messages, bytes of whole tensors (in the largest group), seconds."""

    collective: str
    method: str | None
    messages: int
    bytes: float
    seconds: float


@dataclass(frozen=True)
class Difference:
    """What two programs do for one tensor, or for the same one in several turns of a `repeat` (then `*` stands for the turn).

    `a` and `b` are the lines that only one of them has, or has at another price, in order; None where it has none. `delta_s` are the seconds that
    the second one spends more, each line on its slowest device, over all `turns`. A message of several operands counts for each by
    its bytes. Devices' idle time isn't counted, so the deltas need not add up to the difference of the totals.
    """

    tensor: str
    a: str | None
    b: str | None
    delta_s: float
    turns: int = 1


def busy(program: Program, cost: Cost) -> tuple[Floats, Floats]:
    """(seconds of compute, seconds in collectives) of each device, float arrays [devices]."""
    devices = program.layout.devices
    found = np.zeros((2, devices))
    for instruction, seconds in zip(program.instructions, cost.per_instruction_s, strict=True):
        found[int(instruction.is_collective)] += seconds
    return found[0], found[1]


def volumes(program: Program, cost: Cost) -> list[Volume]:
    """What travels by each collective and method, the dearest first. What stands in a `microbatch` block counts for all its turns."""
    found: dict[tuple[str, str | None], Volume] = {}
    for stage in cost.stages:
        if stage.collective is None:
            continue
        times = program.graph.times(program.instructions[stage.first].section)
        key = (stage.collective, stage.method)
        old = found.get(key, Volume(*key, 0, 0.0, 0.0))
        found[key] = Volume(*key, old.messages + times, old.bytes + times * stage.bytes, old.seconds + stage.comm_s)
    return sorted(found.values(), key=lambda v: (-v.seconds, v.collective, v.method or ""))


def differences(first: Program, first_cost: Cost, second: Program, second_cost: Cost) -> list[Difference]:
    """The lines in which two programs differ, tensor by tensor, the largest differences first."""
    a, b = _by_tensor(first, first_cost), _by_tensor(second, second_cost)
    least = LEAST * max(first_cost.sync_s, second_cost.sync_s)
    merged: dict[tuple[str, str | None, str | None], tuple[float, int]] = {}
    for tensor in dict.fromkeys((*a, *b)):
        only_a, only_b = _apart(a.get(tensor, []), b.get(tensor, []), least)
        if not only_a and not only_b:
            continue
        name = anywhere(tensor)
        key = (name, "; ".join(t for t, _ in only_a) or None, "; ".join(t for t, _ in only_b) or None)
        delta, turns = merged.get(key, (0.0, 0))
        delta += sum(s for _, s in only_b) - sum(s for _, s in only_a)
        merged[key] = (delta, turns + 1)
    found = [Difference(name, x, y, delta, turns) for (name, x, y), (delta, turns) in merged.items()]
    return sorted(found, key=lambda d: -abs(d.delta_s))


@dataclass(frozen=True)
class Row:
    """All that two programs do for one tensor, or for the same one in several `turns`: their lines, and the seconds of these in each."""

    tensor: str
    a: tuple[str, ...]
    b: tuple[str, ...]
    a_s: float
    b_s: float
    turns: int
    same: bool


def aligned(first: Program, first_cost: Cost, second: Program, second_cost: Cost) -> list[Row]:
    """Two programs side by side, tensor by tensor in the order of the first one, then what only the second has; equal turns are one row.

    `same` rows have the same lines at the same prices.
    """
    a, b = _by_tensor(first, first_cost), _by_tensor(second, second_cost)
    least = LEAST * max(first_cost.sync_s, second_cost.sync_s)
    merged: dict[tuple[str, tuple[str, ...], tuple[str, ...], bool], tuple[float, float, int]] = {}
    for tensor in dict.fromkeys((*a, *b)):
        own, other = a.get(tensor, []), b.get(tensor, [])
        only_a, only_b = _apart(own, other, least)
        key = (anywhere(tensor), tuple(t for t, _ in own), tuple(t for t, _ in other), not only_a and not only_b)
        a_s, b_s, turns = merged.get(key, (0.0, 0.0, 0))
        merged[key] = (a_s + sum(s for _, s in own), b_s + sum(s for _, s in other), turns + 1)
    return [Row(name, x, y, a_s, b_s, turns, same) for (name, x, y, same), (a_s, b_s, turns) in merged.items()]


_Lines = list[tuple[str, float]]


def _apart(a: _Lines, b: _Lines, least: float) -> tuple[_Lines, _Lines]:
    """What only one side has: the same line at the same price is taken away from both, once each."""
    left, only_a = list(b), []
    for text, seconds in a:
        match = next((k for k, (t, s) in enumerate(left) if t == text and abs(s - seconds) <= least), None)
        if match is None:
            only_a.append((text, seconds))
        else:
            del left[match]
    return only_a, left


def _by_tensor(program: Program, cost: Cost) -> dict[str, _Lines]:
    found: dict[str, _Lines] = {}
    for instruction, seconds in zip(program.instructions, cost.per_instruction_s, strict=True):
        for part in parts(program.graph, instruction, float(seconds.max(initial=0.0))):
            found.setdefault(part.tensor, []).append((part.line, part.seconds))
    return found


# -- by what takes time ----------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """One instruction, or the same one in several turns: `delta_s` more seconds of it in the second program, in all.

    `kind` is "communication" or "compute", `how` "more" (only the second has it), "less" (only the first) or "other"
    (both have it, under another rule or at another price). `text` is the line and `short` its gist, both with the turns left out; `tensors` are its
    outputs, the turns' own.
    """

    kind: str
    how: str
    text: str
    short: str
    tensors: tuple[str, ...]
    delta_s: float


def changes(training: TrainingGraph, before: Sequence[Line], after: Sequence[Line]) -> list[Change]:
    """What takes time in one of two lists of lines and not in the other, the most seconds first. A call under another rule is one change."""
    # A scheduler makes equal instructions once, so most of them are the same object in both.
    common = Counter(map(_own, before)) & Counter(map(_own, after))
    first, second = _timed(training, _without(before, common)), _timed(training, _without(after, common))
    least = LEAST * (sum(p.seconds for p in first.values()) + sum(p.seconds for p in second.values()))
    groups: dict[tuple[str, str, str, str], tuple[float, list[str]]] = {}
    for key in dict.fromkeys((*first, *second)):
        old, new = first.get(key), second.get(key)
        delta = (new.seconds if new else 0.0) - (old.seconds if old else 0.0)
        shown = new or old
        if abs(delta) <= least or shown is None:
            continue
        short = shown.short
        if old is not None and new is not None and old.at != new.at:
            short += f", not @{old.at}"
        how = "other" if old and new else "more" if new else "less"
        seconds, tensors = groups.setdefault((shown.kind, how, shown.text, short), (0.0, []))
        tensors.append(shown.tensor)
        groups[shown.kind, how, shown.text, short] = (seconds + delta, tensors)
    found = [Change(kind, how, text, short, tuple(names), s) for (kind, how, text, short), (s, names) in groups.items()]
    return sorted(found, key=lambda c: (-abs(c.delta_s), c.text))


def same_work(before: Sequence[Line], after: Sequence[Line]) -> bool:
    """Do two programs of one scheduler make the same calls and send the same messages? What is cut from what is there doesn't count."""
    first, second = (
        Counter(_own(x) for x in lines if x.instruction.is_compute or x.instruction.is_collective)
        for lines in (before, after)
    )
    return first == second


def _own(line: Line) -> tuple[int, int]:
    """Equal for lines with the same instruction at the same price, as objects."""
    return id(line.instruction), id(line.price)


def _without(lines: Iterable[Line], common: Counter[tuple[int, int]]) -> list[Line]:
    left = Counter(common)
    found = []
    for line in lines:
        if left[_own(line)] > 0:
            left[_own(line)] -= 1
        else:
            found.append(line)
    return found


def _timed(training: TrainingGraph, lines: Iterable[Line]) -> dict[Hashable, Part]:
    """What takes time, by its key; what a program has twice is one part of it."""
    found: dict[Hashable, Part] = {}
    for line in lines:
        seconds = float(line.price.seconds.max(initial=0.0))
        for part in parts(training, line.instruction, seconds) if seconds else ():
            known = found.get(part.key)
            found[part.key] = part if known is None else replace(part, seconds=known.seconds + part.seconds)
    return found
