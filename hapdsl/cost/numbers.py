"""Numbers for values and for kinds of instructions: what doesn't change with shares, worked out once per graph.

Two values are one *shape* if they have the same sizes, dtype, placement and cut classes; two instructions are one *kind* if they
are the same operator or collective over the same shapes. Whatever is priced under some shares is priced once per kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hapdsl.graph.inplace import scaled
from hapdsl.graph.program import LOADS, Instruction, Value
from hapdsl.graph.training import Node, TrainingGraph

# Kinds of what costs nothing.
LOCAL, FREE, LOAD = -1, -2, -3


@dataclass(frozen=True, slots=True)
class Numbered:
    """An instruction whose values and kind are numbered: a line without a price. `kind` is LOCAL, FREE or LOAD for what costs nothing."""

    instruction: Instruction
    inputs: list[int]
    outputs: list[int]
    kind: int


class Numbers:
    """Slots (values), shapes and kinds of one graph's programs, in the order they were first met.

    `values[slot]` is a value, `shape_of[slot]` its shape, `samples[shape]` a value of it, `examples[kind]` an instruction of a kind.
    `result_of[slot]` numbers the result of a step that a value may be (a parameter's or state's new value, the loss, an output, a metric), -1 for all
    others; `replaces[slot]` is the slot of what a new value replaces in the same placement, -1 where it replaces nothing. `overwrites` says whether
    updates may write over what they replace at all.
    """

    def __init__(self, graph: TrainingGraph) -> None:
        self.graph = graph
        self.values: list[Value] = []
        self.shape_of: list[int] = []
        self.samples: list[Value] = []
        self.examples: list[Numbered] = []
        self.result_of: list[int] = []
        self.replaces: list[int] = []
        results = [graph.resolve(n) for n in (graph.loss, *graph.outputs, *graph.metrics) if n is not None]
        self._results = {name: k for k, name in enumerate(dict.fromkeys((*graph.updates.values(), *results)))}
        self.overwrites = not scaled(graph)
        self._replaced = {new: old for old, new in graph.updates.items()}
        self._slots: dict[tuple[object, ...], int] = {}
        # By tensor: a number of its sizes and dtype, and its classes.
        self._looks: dict[str, tuple[int, tuple[str | None, ...]]] = {}
        self._look_numbers: dict[tuple[object, ...], int] = {}
        self._shapes: dict[tuple[object, ...], int] = {}
        self._kinds: dict[tuple[object, ...], int] = {}
        self._calls: dict[int, tuple[Node, int]] = {}  # by id; holding the node keeps its id from being reused
        self._call_numbers: dict[tuple[object, ...], int] = {}

    def slot(self, value: Value) -> int:
        """The number of a value; equal values have one number."""
        # Plain words and numbers: Python hashes these many times faster than nested objects.
        placement = value.placement
        if len(placement) == 1:
            flat: tuple[str | int, ...] = (placement[0].kind, placement[0].dim)
        else:
            flat = tuple([x for p in placement for x in (p.kind, p.dim)])
        key = (value.tensor, flat)
        found = self._slots.get(key)
        if found is None:
            found = self._slots[key] = len(self.shape_of)
            self.values.append(value)
            self.shape_of.append(self._shape(value, flat))
            self.result_of.append(self._results.get(value.tensor, -1))
            self.replaces.append(-1)
            old = self._replaced.get(value.tensor)
            if old is not None:
                self.replaces[found] = self.slot(Value(old, value.placement))
        return found

    def _shape(self, value: Value, flat: tuple[str | int, ...]) -> int:
        look, classes = self._looks.get(value.tensor) or self._look(value.tensor)
        cut = [classes[p.dim] if p.kind == "S" and p.dim < len(classes) else None for p in value.placement]
        number = self._shapes.setdefault((look, flat, *cut), len(self.samples))
        if number == len(self.samples):
            self.samples.append(value)
        return number

    def _look(self, name: str) -> tuple[int, tuple[str | None, ...]]:
        tensor = self.graph.tensors[name]
        # Which dim is the batch's, too: within nodes that are virtual devices a tensor lies by that (`hapdsl.search.inside`).
        batch = tensor.classes.index(self.graph.batch) if self.graph.batch in tensor.classes else -1
        number = self._look_numbers.setdefault((tensor.shape, tensor.dtype, batch), len(self._look_numbers))
        found = self._looks[name] = (number, tensor.classes)
        return found

    def number(self, instruction: Instruction) -> Numbered:
        """An instruction with its numbers."""
        return self._numbered(
            instruction, [self.slot(v) for v in instruction.inputs], [self.slot(v) for v in instruction.outputs]
        )

    def number_all(self, instructions: Sequence[Instruction]) -> list[Numbered]:
        """The instructions of a program with their numbers. Values are first looked up as objects, which most programs share between their instructions."""
        slots: dict[int, int] = {}
        found = []
        for instruction in instructions:
            sides = []
            for values in (instruction.inputs, instruction.outputs):
                side = []
                for value in values:
                    slot = slots.get(id(value))
                    if slot is None:
                        slot = slots[id(value)] = self.slot(value)
                    side.append(slot)
                sides.append(side)
            found.append(self._numbered(instruction, *sides))
        return found

    def _numbered(self, instruction: Instruction, inputs: list[int], outputs: list[int]) -> Numbered:
        node = instruction.node
        if node is None and not instruction.is_collective:
            kind = LOAD if instruction.op in LOADS else FREE if instruction.op == "free" else LOCAL
            return Numbered(instruction, inputs, outputs, kind)
        shapes = self.shape_of
        key = (
            instruction.op if node is None else self._call(node),
            instruction.method, instruction.axis, self.graph.times(instruction.section), instruction.dtype,
            tuple([shapes[s] for s in inputs]), tuple([shapes[s] for s in outputs]),
        )  # fmt: skip
        kind = self._kinds.setdefault(key, len(self.examples))
        numbered = Numbered(instruction, inputs, outputs, kind)
        if kind == len(self.examples):
            self.examples.append(numbered)
        return numbered

    def _call(self, node: Node) -> int:
        """A number that two calls share if they are the same operator with the same attributes and operands."""
        found = self._calls.get(id(node))
        if found is None:
            instance = node.instance
            key = (
                node.op,
                tuple([g.operand for g in instance.given]),
                str(instance.attributes) if instance.attributes else "",
            )
            number = self._call_numbers.setdefault(key, len(self._call_numbers))
            found = self._calls[id(node)] = (node, number)
        return found[1]
