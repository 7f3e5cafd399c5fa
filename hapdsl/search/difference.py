"""Two programs of one graph, told apart by what takes time in one and not in the other.

A message of several operands is looked at operand by operand, each with its part of the seconds by its bytes, so that a
bucket which lost one gradient isn't another bucket. Equal differences in the turns of a repeat are one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hapdsl.cost.comparison import anywhere, operands
from hapdsl.cost.pricing import Line
from hapdsl.graph.program import Instruction
from hapdsl.graph.training import TrainingGraph

LEAST = 1e-9  # of the programs' seconds: what differs by less is the same


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


@dataclass(frozen=True)
class _Part:
    """A piece of a program that takes `seconds` on the slowest device; `placement` is its result's."""

    kind: str
    tensor: str
    placement: str
    text: str
    short: str
    seconds: float


def written(instruction: Instruction) -> str:
    """An instruction as a line: `h@S(0) = relu(u@S(0))`."""
    method = [f"method = {instruction.method}"] if instruction.method in ("padded", "grouped", "pairwise") else []
    args = ", ".join([*map(str, instruction.inputs), *method])
    return f"{', '.join(map(str, instruction.outputs))} = {instruction.op}({args})"


def differences(training: TrainingGraph, before: Sequence[Line], after: Sequence[Line]) -> list[Change]:
    """What the lines of two programs differ in, the most seconds first. A call under another rule is one change."""
    # A scheduler makes equal lines once, so most of them are the same object in both.
    common = Counter(map(id, before)) & Counter(map(id, after))
    first, second = _parts(training, _without(before, common)), _parts(training, _without(after, common))
    least = LEAST * (sum(p.seconds for p in first.values()) + sum(p.seconds for p in second.values()))
    groups: dict[tuple[str, str, str, str], tuple[float, list[str]]] = {}
    for key in dict.fromkeys((*first, *second)):
        old, new = first.get(key), second.get(key)
        delta = (new.seconds if new else 0.0) - (old.seconds if old else 0.0)
        shown = new or old
        if abs(delta) <= least or shown is None:
            continue
        short = shown.short
        if old is not None and new is not None and old.placement != new.placement:
            short += f", not @{old.placement}"
        how = "other" if old and new else "more" if new else "less"
        seconds, tensors = groups.setdefault((shown.kind, how, shown.text, short), (0.0, []))
        tensors.append(shown.tensor)
        groups[shown.kind, how, shown.text, short] = (seconds + delta, tensors)
    found = [Change(kind, how, text, short, tuple(names), s) for (kind, how, text, short), (s, names) in groups.items()]
    return sorted(found, key=lambda c: (-abs(c.delta_s), c.text))


def same_work(before: Sequence[Line], after: Sequence[Line]) -> bool:
    """Do two programs of one scheduler make the same calls and send the same messages? What is cut from what is there doesn't count."""
    first, second = (Counter(id(x) for x in lines if x.instruction.is_compute or x.instruction.is_collective) for lines in (before, after))
    return first == second


def _without(lines: Iterable[Line], common: Counter[int]) -> list[Line]:
    left = Counter(common)
    found = []
    for line in lines:
        if left[id(line)] > 0:
            left[id(line)] -= 1
        else:
            found.append(line)
    return found


def _parts(training: TrainingGraph, lines: Iterable[Line]) -> dict[object, _Part]:
    """What takes time, by the tensor and conversion of a message, or the tensor that a call makes."""
    found: dict[object, _Part] = {}
    for line in lines:
        seconds, instruction = float(line.price.seconds.max(initial=0.0)), line.instruction
        if not seconds:
            continue
        if instruction.is_collective:
            for source, target, each in operands(training, instruction, seconds):
                name, p, q = anywhere(target.tensor), source.placement[0], target.placement[0]
                text, short = f"{name}@{q} = {instruction.op}({name}@{p})", f"{instruction.op} {name}@{p} -> {q}"
                part = _Part("communication", target.tensor, str(q), text, short, each)
                _add(found, (target.tensor, p, q, instruction.section), part)
        else:
            made, text = instruction.outputs[0], written(instruction)
            for value in (*instruction.inputs, *instruction.outputs):
                text = text.replace(f"{value.tensor}@", f"{anywhere(value.tensor)}@")
            short = f"{instruction.op} {anywhere(made.tensor)}@{made.placement[0]}"
            _add(found, made.tensor, _Part("compute", made.tensor, str(made.placement[0]), text, short, seconds))
    return found


def _add(found: dict[object, _Part], key: object, part: _Part) -> None:
    """What a program has twice is one part of it."""
    known = found.get(key)
    found[key] = part if known is None else replace(part, seconds=known.seconds + part.seconds)
