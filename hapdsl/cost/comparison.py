"""Programs side by side: what each device does with its time, what travels, and which lines differ by how much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hapdsl.cost.evaluate import Cost
from hapdsl.graph.program import Instruction, Program, Value
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


def anywhere(name: str) -> str:
    """A name with the turns left out: `layer.3.h` is `layer.*.h`."""
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))


def operands(graph: TrainingGraph, message: Instruction, seconds: float) -> Iterator[tuple[Value, Value, float]]:
    """(source, target, its part of the seconds by its bytes) of each operand of a collective or conversion."""
    sizes = [graph.tensors[v.tensor].bytes for v in message.inputs]
    whole = sum(sizes) or 1
    for source, target, size in zip(message.inputs, message.outputs, sizes, strict=True):
        yield source, target, seconds * size / whole


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
        for tensor, text, part in _lines(program, instruction, float(seconds.max(initial=0.0))):
            found.setdefault(tensor, []).append((text, part))
    return found


def _lines(program: Program, instruction: Instruction, seconds: float) -> Iterator[tuple[str, str, float]]:
    """(tensor, line, seconds) of an instruction; of each operand, where it is a conversion or a load of several."""
    if instruction.node is not None:
        inputs = _commas(instruction.inputs)
        yield instruction.outputs[0].tensor, f"{_commas(instruction.outputs)} = {instruction.op}({inputs})", seconds
    elif len(instruction.inputs) == len(instruction.outputs):
        method = f", method = {instruction.method}" if instruction.method is not None else ""
        method += f", dtype = {instruction.dtype}" if instruction.dtype is not None else ""
        for source, target, part in operands(program.graph, instruction, seconds):
            line = f"{_commas([target])} = {instruction.op}({_commas([source])}{method})"
            yield target.tensor, line, part
    elif not instruction.inputs:
        for value in instruction.outputs:
            yield value.tensor, f"{_commas([value])} = {instruction.op}()", 0.0


def _commas(values: Sequence[object]) -> str:
    return ", ".join("@".join([anywhere(name), at]) for name, _, at in (str(v).partition("@") for v in values))
