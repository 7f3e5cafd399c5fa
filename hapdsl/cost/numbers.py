"""Numbers for values and for kinds of instructions: what doesn't change with shares, worked out once per graph.

Two values are one *shape* if they have the same sizes, dtype, placement and cut classes; two instructions are one *kind* if they
are the same operator or collective over the same shapes. Whatever is priced under some shares is priced once per kind.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from hapdsl.graph.program import Instruction, Value
from hapdsl.graph.training import Node, TrainingGraph


@dataclass(frozen=True, slots=True)
class Draft:
    """An instruction whose values and kind are numbered: a line without a price. `kind` is -1 for what costs nothing."""

    instruction: Instruction
    inputs: list[int]
    outputs: list[int]
    kind: int


class Numbers:
    """Slots (values), shapes and kinds of one graph's programs, in the order they were first met.

    `shape_of[slot]` is a value's shape, `samples[shape]` a value of it, `examples[kind]` an instruction of a kind.
    """

    def __init__(self, graph: TrainingGraph) -> None:
        self.graph = graph
        self.shape_of: list[int] = []
        self.samples: list[Value] = []
        self.examples: list[Draft] = []
        self._slots: dict[Value, int] = {}
        self._shapes: dict[tuple[object, ...], int] = {}
        self._kinds: dict[tuple[object, ...], int] = {}
        self._calls: dict[int, tuple[Node, int]] = {}  # by id; holding the node keeps its id from being reused
        self._call_numbers: dict[tuple[object, ...], int] = {}
        self._kept: dict[Hashable, Draft] = {}

    def slot(self, value: Value) -> int:
        """The number of a value; equal values have one number."""
        found = self._slots.get(value)
        if found is None:
            found = self._slots[value] = len(self.shape_of)
            self.shape_of.append(self._shape(value))
        return found

    def _shape(self, value: Value) -> int:
        tensor = self.graph.tensors[value.tensor]
        classes = tensor.classes
        cut = tuple(classes[p.dim] if p.kind == "S" and p.dim < len(classes) else None for p in value.placement)
        number = self._shapes.setdefault((tensor.shape, tensor.dtype, value.placement, cut), len(self.samples))
        if number == len(self.samples):
            self.samples.append(value)
        return number

    def draft(self, instruction: Instruction) -> Draft:
        """An instruction with its numbers."""
        inputs, outputs = [self.slot(v) for v in instruction.inputs], [self.slot(v) for v in instruction.outputs]
        if instruction.node is None and not instruction.is_collective:
            return Draft(instruction, inputs, outputs, -1)
        shapes = self.shape_of
        what: object = instruction.op if instruction.node is None else self._call(instruction.node)
        key = (
            what, instruction.method, instruction.axis, self.graph.times(instruction.section), instruction.dtype,
            tuple([shapes[s] for s in inputs]), tuple([shapes[s] for s in outputs]),
        )  # fmt: skip
        kind = self._kinds.setdefault(key, len(self.examples))
        draft = Draft(instruction, inputs, outputs, kind)
        if kind == len(self.examples):
            self.examples.append(draft)
        return draft

    def kept(self, key: Hashable, make: Callable[[], Instruction]) -> Draft:
        """The draft that was made under a key of the caller's, or a new one."""
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = self.draft(make())
        return found

    def _call(self, node: Node) -> int:
        """A number that two calls share if they are the same operator with the same attributes and operands."""
        found = self._calls.get(id(node))
        if found is None:
            instance = node.instance
            key = (node.op, tuple(g.operand for g in instance.given), str(instance.attributes))
            number = self._call_numbers.setdefault(key, len(self._call_numbers))
            found = self._calls[id(node)] = (node, number)
        return found[1]
