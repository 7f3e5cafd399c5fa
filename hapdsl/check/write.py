"""A program back to text: instructions become lines, equal turns of a repeat become one block.

`verify(write(p))` gives `p` again. Turns are rolled wherever the layers got the same choices, so that a plan for 96 layers
reads in one page; `unroll` writes every line. Cost: linear in instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from hapdsl.check.split import split_of
from hapdsl.graph.program import LOADS, Instruction, Layout, Program, Value
from hapdsl.graph.training import SECTIONS, SUMS, TrainingGraph
from hapdsl.lang import nodes
from hapdsl.theory.dtypes import DTYPE_BYTES
from hapdsl.theory.placements import show, to_nodes

LOADS_WIDTH = 90  # characters of values that are loaded on one line
Turn = tuple[str, int]


def write(program: Program, unroll: bool = False) -> nodes.Program:
    """The tree of a program, ready for `hapdsl.lang.print.to_text`."""
    sections: list[nodes.Statement] = [
        nodes.Section(kind, tuple(_body(own, program.graph, unroll))) for kind, own in _sections(program.instructions)
    ]
    if program.graph.turns > 1:
        turn = tuple(s for s in sections if isinstance(s, nodes.Section) and s.kind != "update")
        sections = [nodes.Microbatch(nodes.Number(program.graph.turns), turn), *sections[len(turn) :]]
    parameters = dict(program.model_args)
    args = tuple(nodes.Arg(k, literal(v)) for k, v in parameters.items())
    head: list[nodes.Statement] = [nodes.Fingerprint(f"1:{program.graph.fingerprint}")]
    if len(program.layout.mesh) > 1:
        head.append(nodes.Mesh(program.layout.mesh))
    head += shares(program)
    return nodes.Program(program.name, program.graph.model, args, program.cluster, (*head, *sections))


def _sections(instructions: Sequence[Instruction]) -> list[tuple[str, list[Instruction]]]:
    """Instructions by section, in their order: what stands behind a section's first line can't go back to an earlier one."""
    found: dict[str, list[Instruction]] = {}
    latest = 0
    for instruction in instructions:
        latest = max(latest, SECTIONS.index("update" if instruction.section == SUMS else instruction.section))
        found.setdefault(SECTIONS[latest], []).append(instruction)
    return list(found.items())


def literal(value: object) -> nodes.Expr:
    """A parameter's value as text has it."""
    if isinstance(value, bool):
        return nodes.Bool(value)
    if isinstance(value, int | float):
        return nodes.Number(value) if value >= 0 else nodes.Negate(nodes.Number(-value))
    return nodes.Name(str(value)) if value in DTYPE_BYTES else nodes.Text(str(value))


# -- shares ------------------------------------------------------------------------


def shares(program: Program) -> list[nodes.Shares]:
    """Share statements of the classes that the program cuts, in the graph's order."""
    layout = program.layout
    used: dict[str, set[tuple[int, ...]]] = {}
    for instruction in program.instructions:
        for value in (*instruction.inputs, *instruction.outputs):
            classes = program.graph.tensors[value.tensor].classes
            for d in {p.dim for p in value.placement if p.kind == "S"}:
                cls = classes[d]
                axes = tuple(a for a, p in enumerate(value.placement) if p.kind == "S" and p.dim == d)
                assert cls is not None, "what can be cut has a class"
                used.setdefault(cls, set()).add(axes)
    return [s for cls in program.graph.classes if cls in used for s in _class_shares(cls, used[cls], layout)]


def _class_shares(cls: str, used: set[tuple[int, ...]], layout: Layout) -> list[nodes.Shares]:
    own, layers = split_of(cls)
    found = []
    if (0, 1) in used:
        table = layout.shares[cls][(0, 1)].reshape(layout.mesh[0][1], layout.mesh[1][1])
        found.append(nodes.Shares(own, nodes.Items(tuple(_items(row.tolist()) for row in table)), layers=layers))
        used = used - {(0, 1), (0,)}  # rows say how the outer axis cuts
    for (axis,) in sorted(used):
        inner = int(np.prod([size for _, size in layout.mesh[axis + 1 :]]))
        size = layout.mesh[axis][1]
        values = [int(layout.shares[cls][(axis,)][k * inner]) for k in range(size)]
        name = layout.mesh[axis][0] if len(layout.mesh) > 1 else None
        found.append(nodes.Shares(own, _items(values), name, layers))
    return found


def _items(values: Sequence[int] | np.ndarray) -> nodes.Items:
    """`[76, 76, 26]`; long runs of one number are written `5 * 26`."""
    items: list[nodes.Expr] = []
    for value, run in groupby(int(v) for v in values):
        count = len(list(run))
        if count >= 5:
            items.append(nodes.Binary("*", nodes.Number(count), nodes.Number(value)))
        else:
            items += [nodes.Number(value)] * count
    return nodes.Items(tuple(items))


# -- lines -------------------------------------------------------------------------


def _body(instructions: list[Instruction], graph: TrainingGraph, unroll: bool) -> list[nodes.Statement]:
    runs = [
        (turn, list(run))
        for turn, run in groupby(instructions, key=lambda i: i.repeat[-1] if i.repeat and not unroll else None)
    ]
    found: list[nodes.Statement] = []
    k = 0
    while k < len(runs):
        turn, run = runs[k]
        lines = _lines(run, graph, turn)
        count = 1
        step = 0
        if turn is not None:
            while k + count < len(runs):
                following, other = runs[k + count]
                if following is None or following[0] != turn[0]:
                    break
                stride = following[1] - turn[1] - step * (count - 1) if step else following[1] - turn[1]
                if stride not in (1, -1) or (step and stride != step) or _lines(other, graph, following) != lines:
                    break
                step = stride
                count += 1
        if turn is None or (count == 1 and graph.repeats[turn[0]] > 1):
            found += _lines(run, graph, None)
        else:
            last = turn[1] + (step or 1) * (count - 1)
            low, high = min(turn[1], last), max(turn[1], last)
            found.append(nodes.Turns(turn[0], low, high + 1, step < 0, tuple(lines)))
        k += count
    return found


def _lines(run: list[Instruction], graph: TrainingGraph, turn: Turn | None) -> list[nodes.Statement]:
    lines: list[nodes.Statement] = []
    for instruction in _grouped_loads(run, graph, turn):
        outputs = tuple(_value(v, graph, turn) for v in instruction.outputs)
        inputs = tuple(_value(v, graph, turn) for v in instruction.inputs)
        if instruction.op == "free":
            lines.append(nodes.Free(inputs))
            continue
        args = [nodes.Arg(None, v) for v in inputs]
        if instruction.said_method is not None:
            args.append(nodes.Arg("method", nodes.Name(instruction.said_method)))
        if instruction.dtype is not None:
            args.append(nodes.Arg("dtype", nodes.Name(instruction.dtype)))
        lines.append(nodes.Line(outputs, instruction.op, tuple(args)))
    return lines


def _grouped_loads(run: list[Instruction], graph: TrainingGraph, turn: Turn | None) -> list[Instruction]:
    """Loads that follow each other share a line."""
    found: list[Instruction] = []
    width = 0
    for instruction in run:
        last = found[-1] if found else None
        own = sum(len(_name(v.tensor, graph, turn)) + len(show(v.placement)) + 3 for v in instruction.outputs)
        if (
            last is not None
            and _is_load(instruction)
            and _is_load(last)
            and last.op == instruction.op
            and width + own <= LOADS_WIDTH
        ):
            found[-1] = Instruction(last.op, (), last.outputs + instruction.outputs, last.section, repeat=last.repeat)
            width += own
        else:
            found.append(instruction)
            width = own
    return found


def _is_load(instruction: Instruction) -> bool:
    return instruction.node is None and instruction.op in LOADS


def _value(value: Value, graph: TrainingGraph, turn: Turn | None) -> nodes.Value:
    return nodes.Value(_name(value.tensor, graph, turn), to_nodes(value.placement))


def _name(tensor: str, graph: TrainingGraph, turn: Turn | None) -> str:
    """Relative to the turn where the tensor belongs to it or to the next one.

    After the last turn the next one's names are plain (`x` for what would be `layer.12.x`); only names that an
    earlier turn has too are written so, or a tensor that merely stands outside would look like one of the repeat's.
    What a repeat finds or leaves under another name (an input, what the next repeat begins with) is an alias of the graph.
    """
    if turn is None:
        return tensor
    path, number = turn
    own, following = f"{path}.{number}.", f"{path}.{number + 1}."
    if tensor.startswith(own):
        return "." + tensor[len(own) :]
    if tensor.startswith(following):
        return ".next." + tensor[len(following) :]
    if number + 1 == graph.repeats[path]:
        outer = path.rpartition(".")[0]
        prefix = f"{outer}." if outer else ""
        rest = tensor[len(prefix) :]
        if tensor.startswith(prefix) and _carried(rest, path, graph):
            return f".next.{rest}"
        left = _alias(tensor, following, graph)
        if left is not None:
            return f".next.{left}"
    found = _alias(tensor, own, graph, True) if number == 0 else None
    return tensor if found is None else f".{found}"


def _alias(tensor: str, turn: str, graph: TrainingGraph, whole: bool = False) -> str | None:
    """What a turn (`layer.12.`) calls a tensor, or one named after it (`x.grad`; not with `whole`), of the world around its repeat."""
    for held, own in graph.handed.get(turn, ()):
        if tensor == held or (not whole and tensor.startswith(f"{held}.")):
            return own + tensor[len(held) :]
    return None


def _carried(rest: str, path: str, graph: TrainingGraph) -> bool:
    return graph.resolve(f"{path}.0.{rest}") in graph.tensors and graph.resolve(f"{path}.0.{rest}") != rest
