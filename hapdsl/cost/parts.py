"""Instructions as pieces that programs are compared by: what each makes of one tensor, as a line, with its seconds.

A message of several operands is looked at operand by operand, each with its part of the seconds by its bytes, so that a
bucket which lost one gradient isn't another bucket. Placements are those on all axes of the mesh.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from hapdsl.graph.program import Instruction, Value
from hapdsl.graph.training import TrainingGraph
from hapdsl.theory.placements import show


@dataclass(frozen=True)
class Part:
    """A piece of a program that takes `seconds`; `at` is its result's placement, `key` what two programs may both have.

    `kind` is "compute", "communication" or, of what costs nothing, "". `line` is the whole line, `text` the line without its method and dtype, `short` its gist,
    all with the turns left out; `tensor` is the turn's own.
    """

    kind: str
    tensor: str
    at: str
    line: str
    text: str
    short: str
    key: Hashable
    seconds: float


def parts(graph: TrainingGraph, instruction: Instruction, seconds: float) -> Iterator[Part]:
    """An instruction's pieces: a call is one, a conversion or a load one for each operand; `free` has none."""
    op = instruction.op
    if instruction.node is not None:
        made, at = instruction.outputs[0], show(instruction.outputs[0].placement)
        line = f"{_listed(instruction.outputs)} = {op}({_listed(instruction.inputs)})"
        short = f"{op} {anywhere(made.tensor)}@{at}"
        yield Part("compute", made.tensor, at, line, line, short, made.tensor, seconds)
    elif len(instruction.inputs) == len(instruction.outputs):
        how = f", method = {instruction.method}" if instruction.method is not None else ""
        how += f", dtype = {instruction.dtype}" if instruction.dtype is not None else ""
        kind = "communication" if instruction.is_collective else ""
        for source, target, each in operands(graph, instruction, seconds):
            name, before, at = anywhere(target.tensor), show(source.placement), show(target.placement)
            line, text = (f"{name}@{at} = {op}({name}@{before}{more})" for more in (how, ""))
            key = (target.tensor, source.placement, target.placement, instruction.section)
            yield Part(kind, target.tensor, at, line, text, f"{op} {name}@{before} -> {at}", key, each)
    elif not instruction.inputs:
        for value in instruction.outputs:
            line = f"{_listed([value])} = {op}()"
            yield Part("", value.tensor, show(value.placement), line, line, line, (value, op), 0.0)


def operands(graph: TrainingGraph, message: Instruction, seconds: float) -> Iterator[tuple[Value, Value, float]]:
    """(source, target, its part of the seconds by its bytes) of each operand of a collective or conversion."""
    sizes = [graph.tensors[v.tensor].bytes for v in message.inputs]
    whole = sum(sizes) or 1
    for source, target, size in zip(message.inputs, message.outputs, sizes, strict=True):
        yield source, target, seconds * size / whole


def anywhere(name: str) -> str:
    """A name with the turns left out: `layer.3.h` is `layer.*.h`."""
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))


def written(instruction: Instruction) -> str:
    """An instruction as a line: `h@S(0) = relu(u@S(0))`."""
    method = [f"method = {instruction.said_method}"] if instruction.said_method is not None else []
    args = ", ".join([*map(str, instruction.inputs), *method])
    return f"{', '.join(map(str, instruction.outputs))} = {instruction.op}({args})"


def _listed(values: Sequence[Value]) -> str:
    return ", ".join(f"{anywhere(v.tensor)}@{show(v.placement)}" for v in values)
