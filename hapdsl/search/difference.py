"""Two programs of one graph, told apart by what takes time in one and not in the other.

A message of several operands is looked at operand by operand, each with its part of the seconds by its bytes, so that a
bucket which lost one gradient isn't another bucket. Equal differences in the turns of a repeat are one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hapdsl.cost.pricing import Line
from hapdsl.graph.program import Instruction
from hapdsl.graph.training import TrainingGraph

LEAST = 1e-9  # of the programs' seconds: what differs by less is the same


@dataclass(frozen=True)
class Change:
    """One instruction, or the same one in several turns: `delta_s` more seconds of it in the second program, in all.

    `kind` is "communication" or "compute", `how` "more" (only the second has it), "less" (only the first) or "other"
    (both have it, at another price). `tensors` are its outputs, the turns' own.
    """

    kind: str
    how: str
    text: str
    tensors: tuple[str, ...]
    delta_s: float


def written(instruction: Instruction) -> str:
    """An instruction as a line: `h@S(0) = relu(u@S(0))`."""
    method = [f"method = {instruction.method}"] if instruction.method in ("padded", "grouped", "pairwise") else []
    args = ", ".join([*map(str, instruction.inputs), *method])
    return f"{', '.join(map(str, instruction.outputs))} = {instruction.op}({args})"


def anywhere(name: str) -> str:
    """A tensor's name with the turns left out: `layer.3.h` is `layer.*.h`."""
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))


def differences(training: TrainingGraph, before: Sequence[Line], after: Sequence[Line]) -> list[Change]:
    """What the lines of two programs differ in, the most seconds first."""
    # A scheduler makes equal lines once, so most of them are the same object in both.
    common = Counter(map(id, before)) & Counter(map(id, after))
    first, second = _parts(training, _without(before, common)), _parts(training, _without(after, common))
    least = LEAST * (sum(s for s, _ in first.values()) + sum(s for s, _ in second.values()))
    groups: dict[tuple[str, str, str], tuple[float, list[str]]] = {}
    for key in dict.fromkeys((*first, *second)):
        old, new = first.get(key), second.get(key)
        delta = (new[0] if new else 0.0) - (old[0] if old else 0.0)
        if abs(delta) > least:
            how = "other" if old and new else "more" if new else "less"
            shown = (new or old or (0.0, ""))[1]
            seconds, tensors = groups.setdefault((key[0], how, shown), (0.0, []))
            tensors.append(key[1])
            groups[key[0], how, shown] = (seconds + delta, tensors)
    found = [Change(kind, how, text, tuple(names), s) for (kind, how, text), (s, names) in groups.items()]
    return sorted(found, key=lambda c: (-abs(c.delta_s), c.text))


def _without(lines: Iterable[Line], common: Counter[int]) -> list[Line]:
    left = Counter(common)
    found = []
    for line in lines:
        if left[id(line)] > 0:
            left[id(line)] -= 1
        else:
            found.append(line)
    return found


def _parts(training: TrainingGraph, lines: Iterable[Line]) -> dict[tuple[str, str, str], tuple[float, str]]:
    """Seconds (of the slowest device) by kind, output and line; and the line with the turns left out."""
    found: dict[tuple[str, str, str], tuple[float, str]] = {}
    for line in lines:
        seconds, instruction = float(line.price.seconds.max(initial=0.0)), line.instruction
        if not seconds:
            continue
        if instruction.is_collective:
            sizes = [training.tensors[v.tensor].bytes for v in instruction.inputs]
            whole = sum(sizes) or 1
            for source, target, size in zip(instruction.inputs, instruction.outputs, sizes, strict=True):
                text = f"{anywhere(target.tensor)}@{target.placement[0]} = {instruction.op}(@{source.placement[0]})"
                key = ("communication", target.tensor, text)
                found[key] = (found.get(key, (0.0, ""))[0] + seconds * size / whole, text)
        else:
            plain = written(instruction)
            for value in (*instruction.inputs, *instruction.outputs):
                plain = plain.replace(f"{value.tensor}@", f"{anywhere(value.tensor)}@")
            key = ("compute", instruction.outputs[0].tensor, plain)
            found[key] = (found.get(key, (0.0, ""))[0] + seconds, plain)
    return found
