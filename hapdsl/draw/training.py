"""A training graph as DOT text: the same drawing on one device, coloured by the kind of tensor instead of placement."""

from __future__ import annotations

from collections.abc import Sequence

from hapdsl.draw.dot import Drawing
from hapdsl.draw.picture import to_dot
from hapdsl.graph.program import Instruction, Layout, Program, Value
from hapdsl.graph.training import LOADED, TrainingGraph
from hapdsl.lang.amounts import in_bytes
from hapdsl.theory.placements import R

KINDS = {
    "input": "#b9d7fb", "param": "#b5ebc6", "frozen": "#d5e8da", "buffer": "#d5e8da", "state": "#d9d0fb", "seed": "#f9c9e2",
    "value": "#eef0f3",
}  # fmt: skip


def graph_dot(graph: TrainingGraph) -> str:
    """The DOT text of a training graph; large ones are folded and bounded as programs are (`program_dot`)."""
    return to_dot(_GraphDrawing(_on_one_device(graph)).picture())


def _on_one_device(graph: TrainingGraph) -> Program:
    """The graph's own order of calls as a program that keeps every tensor whole."""
    instructions: list[Instruction] = []
    loaded: set[str] = set()
    for node in graph.nodes:
        for name in node.inputs:
            kind = graph.tensors[name].kind
            if kind in LOADED and name not in loaded:
                loaded.add(name)
                instructions.append(Instruction(LOADED[kind], (), (Value(name, (R,)),), node.section))
        inputs = tuple(Value(n, (R,)) for n in node.inputs)
        outputs = tuple(Value(n, (R,)) for n in node.outputs)
        instructions.append(Instruction(node.op, inputs, outputs, node.section, node, repeat=node.repeat))
    return Program("", graph, Layout((("devices", 1),)), instructions)


class _GraphDrawing(Drawing):
    def title(self) -> str:
        return self.graph.model

    def notes(self) -> tuple[str, ...]:
        params = [t for t in self.graph.tensors.values() if t.kind in ("param", "frozen")]
        count = sum(t.elements for t in params)
        parameters = ", ".join(f"{k} = {v}" for k, v in self.graph.parameters.items())
        facts = (
            f"{len(self.graph.nodes):,} operator calls · {count:,} parameters, {in_bytes(sum(t.bytes for t in params))}"
        )
        return (facts, parameters) if parameters else (facts,)

    def legend(self, drawn: Sequence[int]) -> tuple[tuple[str, str], ...]:
        kinds = {self.graph.tensors[v.tensor].kind for k in drawn for v in self.items[k].outputs}
        words = {"value": "computed", "state": "optimizer state", "seed": "seed of the backward pass"}
        return tuple((shade, words.get(kind, kind)) for kind, shade in KINDS.items() if kind in kinds)

    def colours(self, value: Value) -> tuple[str, ...]:
        return (KINDS[self.graph.tensors[value.tensor].kind],)

    def placed(self, value: Value) -> str:
        t = self.graph.tensors[value.tensor]
        return f" {t.dtype}[{', '.join(map(str, t.shape))}]"
