"""A program on one axis, spread data-parallel over a second one: the two-axis programs of the tests.

Written for the tests and from the rules alone: outside, inputs lie on `S(0)`, parameters and state on `R`; every call takes the
first rule that its operands allow; partial gradients are reduced before an update reads them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hapdsl.graph.program import Instruction, Layout, Program, Value
from hapdsl.graph.training import TrainingGraph
from hapdsl.theory.placements import Placement, Placements, R, S


def across(inner: Program, outer: Mapping[str, list[int]], rows: Mapping[str, list[list[int]]]) -> Program:
    """`inner` within each of several nodes. `outer` are shares over the nodes by class; `rows` are shares over both axes."""
    nodes = len(next(iter((*outer.values(), *rows.values()))))
    size = inner.layout.devices
    mesh = (("nodes", nodes), ("devices", size))
    graph = inner.graph
    shares: dict[str, dict[tuple[int, ...], np.ndarray]] = {}
    for cls in graph.classes:
        along = outer.get(cls, Layout.even(graph.classes[cls].units, nodes))
        shares[cls] = {(0,): np.repeat(np.asarray(along), size), (1,): np.tile(inner.layout.shares[cls][(0,)], nodes)}
        if cls in rows:
            table = np.asarray(rows[cls])
            shares[cls] |= {(0, 1): table.reshape(-1), (0,): np.repeat(table.sum(axis=1), size)}
    return Program(
        inner.name, graph, Layout(mesh, shares), _Across(graph, set(rows)).run(inner), None, inner.model_args
    )


class _Across:
    def __init__(self, graph: TrainingGraph, nested: set[str]) -> None:
        self.graph = graph
        self.nested = nested  # classes that both axes may cut
        self.outside: dict[str, Placement] = {}
        self.made: list[Instruction] = []

    def run(self, inner: Program) -> list[Instruction]:
        for instruction in inner.instructions:
            if instruction.node is not None:
                self.compute(instruction)
            else:
                outputs = tuple(self.value(v, self.load(v.tensor)) for v in instruction.outputs)
                inputs = tuple(self.value(v, self.load(v.tensor)) for v in instruction.inputs)
                axis = 1 if inputs else 0
                self.made.append(
                    Instruction(
                        instruction.op, inputs, outputs, instruction.section, method=instruction.method, axis=axis
                    )
                )
        return self.made

    def load(self, tensor: str) -> Placement:
        """How a tensor lies over the nodes; decided here for what is loaded."""
        t = self.graph.tensors[tensor]
        if tensor not in self.outside:
            assert tensor not in self.graph.producer, f"{tensor} is read before it is made"
            self.outside[tensor] = S(0) if t.kind == "input" else R
        return self.outside[tensor]

    @staticmethod
    def value(inner: Value, outside: Placement) -> Value:
        placement: Placements = (outside, *inner.placement)
        return Value(inner.tensor, placement)

    def compute(self, instruction: Instruction) -> None:
        node = instruction.node
        assert node is not None
        if instruction.section == "update":
            for v in instruction.inputs:
                if self.load(v.tensor).kind == "P":
                    self.made.append(Instruction("all_reduce", (self.value(v, self.load(v.tensor)),), (self.value(v, R),), "backward", method="ring", axis=0))  # fmt: skip
                    self.outside[v.tensor] = R
        given = tuple(self.load(v.tensor) for v in instruction.inputs)
        rule = next(r for r in node.rules if r.inputs == given)
        for v, p in zip(instruction.outputs, rule.outputs, strict=True):
            self.outside[v.tensor] = p
        inputs = tuple(self.value(v, p) for v, p in zip(instruction.inputs, given, strict=True))
        outputs = tuple(self.value(v, p) for v, p in zip(instruction.outputs, rule.outputs, strict=True))
        self.made.append(Instruction(node.op, inputs, outputs, instruction.section, node))
