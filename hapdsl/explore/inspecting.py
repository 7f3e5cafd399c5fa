"""What there is to know of one line: its triple, its values, who makes and reads them, shapes, bytes, flops, where the model says it."""

from __future__ import annotations

from typing import Any

import numpy as np

from hapdsl.cost.comparison import anywhere
from hapdsl.explore.desk import Desk, Opened
from hapdsl.explore.plainly import plainly
from hapdsl.graph.program import Instruction, Value
from hapdsl.graph.training import Node

Object = dict[str, Any]
READERS = 6  # that are listed
VALUES = 8  # of one line that are looked at


class Lines:
    """A program's instructions by the line they stand in, and who reads what."""

    def __init__(self, opened: Opened) -> None:
        self.opened, self.program = opened, opened.program
        self.at: dict[int, list[int]] = {}
        self.made: dict[Value, int] = {}
        self.read: dict[Value, list[int]] = {}
        for k, instruction in enumerate(self.program.instructions):
            self.at.setdefault(instruction.span.line, []).append(k)
            for value in instruction.outputs:
                self.made.setdefault(value, k)
            for value in instruction.inputs:
                self.read.setdefault(value, []).append(k)


def lines_of(desk: Desk, opened: Opened) -> Lines:
    return desk.remember(("lines", opened.key), lambda: Lines(opened))


def inspect(desk: Desk, request: Object) -> Object:
    """What stands in the line `line` of a proven program; `found` false where no instruction does."""
    opened = desk.opened(request)
    lines = lines_of(desk, opened)
    numbers = lines.at.get(int(request["line"]), [])
    if not numbers:
        return {"line": request["line"], "found": False}
    k = numbers[0]
    instruction = opened.program.instructions[k]
    graph = opened.program.graph
    seconds = np.sum([opened.cost.per_instruction_s[n] for n in numbers], axis=0)
    values = list(dict.fromkeys((*instruction.inputs, *instruction.outputs)))
    return {
        "line": request["line"],
        "found": True,
        "turns": len(numbers),
        "times": graph.times(instruction.section),
        "op": instruction.op,
        "section": instruction.section,
        "needs": [str(v) for v in instruction.inputs],
        "gives": [str(v) for v in instruction.outputs],
        "method": instruction.method,
        "collective": instruction.is_collective,
        "seconds": [float(s) for s in seconds],
        "flops": _flops(opened, instruction),
        "devices": [d.name for d in opened.cluster.devices],
        "values": [_value(lines, v, k) for v in values[:VALUES]],
        "more": max(0, len(values) - VALUES),
        "source": _source(opened, instruction),
        "tensor": _asked_about(instruction),
        "plainly": plainly(opened, k, len(numbers)),
    }


def _asked_about(instruction: Instruction) -> str | None:
    """The tensor whose choices the alternatives of this line are about."""
    values = instruction.outputs or instruction.inputs
    return values[0].tensor if values else None


def _flops(opened: Opened, instruction: Instruction) -> list[float]:
    """Per device, in one turn; nothing for what computes nothing."""
    if instruction.node is None:
        return []
    lengths = opened.program.index_lengths(instruction)
    found = instruction.node.instance.flops(lengths)
    return [float(f) for f in np.broadcast_to(np.asarray(found, dtype=float), opened.program.layout.devices)]


def _value(lines: Lines, value: Value, here: int) -> Object:
    opened, program = lines.opened, lines.program
    tensor = program.graph.tensors[value.tensor]
    _, lengths = program.piece(value)
    made = lines.made.get(value)
    readers = [n for n in lines.read.get(value, ()) if n != here]
    shown = list(dict.fromkeys(program.instructions[n].span.line for n in readers))
    return {
        "value": str(value),
        "kind": tensor.kind,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "classes": list(tensor.classes),
        "bytes": tensor.bytes,
        "pieces": [[int(n) for n in row] for row in lengths] if tensor.shape else [],
        "piece_bytes": [int(b) for b in program.local_bytes(value)],
        "made": None if made is None or made == here else _where(program.instructions[made], value),
        "readers": [
            _where(next(program.instructions[n] for n in readers if program.instructions[n].span.line == line))
            for line in shown[:READERS]
        ],
        "more_readers": max(0, len(shown) - READERS),
        "goal": value.tensor in program.graph.updates.values()
        or value.tensor == program.graph.loss
        or value.tensor in program.graph.outputs,
        "origin": _span(opened, tensor.span),
    }


def _where(instruction: Instruction, value: Value | None = None) -> Object:
    out = str(value or (instruction.outputs[0] if instruction.outputs else ""))
    return {
        "line": instruction.span.line,
        "column": instruction.span.column,
        "op": instruction.op,
        "value": anywhere_value(out),
    }


def anywhere_value(value: str) -> str:
    """`layer.3.h@R` as `layer.*.h@R`."""
    name, at, placement = value.partition("@")
    return f"{anywhere(name)}{at}{placement}"


def _source(opened: Opened, instruction: Instruction) -> Object | None:
    """The model's line behind an instruction: of its call, else of the first tensor that it moves or loads."""
    graph = opened.program.graph
    node: Node | None = instruction.node
    if node is None:
        values = instruction.outputs or instruction.inputs
        if not values:
            return None
        name = values[0].tensor
        at = graph.producer.get(name)
        node = graph.nodes[at] if at is not None else None
        if node is None:
            return _span(opened, graph.tensors[name].span)
    return _span(opened, node.span)


def _span(opened: Opened, span: Any) -> Object | None:
    if not span.line:
        return None
    text = opened.bench.files.get(span.file)
    rows = text.split("\n") if text is not None else []
    words = rows[span.line - 1].strip() if span.line <= len(rows) else ""
    return {"file": span.file, "line": span.line, "column": span.column, "text": words}
