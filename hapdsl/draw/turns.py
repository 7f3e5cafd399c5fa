"""In which turn of a repeat an instruction stands."""

from __future__ import annotations

from collections.abc import Sequence

from hapdsl.draw.fold import Turn
from hapdsl.graph.program import Instruction, Value
from hapdsl.graph.training import TrainingGraph


def turn_of(instruction: Instruction, outputs: Sequence[Value], graph: TrainingGraph) -> Turn:
    """The turn that all of an instruction belongs to: its call's, or that of the tensors it loads or moves."""
    if instruction.node is not None:
        return instruction.node.repeat
    turns = {_turn_of_tensor(v.tensor, graph) for v in outputs}
    return next(iter(turns)) if len(turns) == 1 else ()


def _turn_of_tensor(name: str, graph: TrainingGraph) -> Turn:
    made = graph.producer.get(name)
    if made is not None:
        return graph.nodes[made].repeat
    found: list[tuple[str, int]] = []
    parts = name.split(".")
    for n in range(1, len(parts)):
        path = ".".join(parts[:n])
        if path in graph.repeats and parts[n].isdigit():
            found.append((path, int(parts[n])))
    return tuple(found)
