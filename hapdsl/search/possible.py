"""Which of a call's rules a program may use at all. Cost: O(operands) per rule."""

from __future__ import annotations

from hapdsl.graph.training import Node, TrainingGraph
from hapdsl.theory.rules import Rule


def possible(training: TrainingGraph, node: Node, rule: Rule) -> bool:
    """Shards in whole units of a class that has several; loaded tensors as they can be; state left as it is held.

    What is loaded can be made partial sums (one device keeps), which helps only beside partial sums that were computed:
    a rule that reads nothing else as `P` costs what the replicated rule does and gives less.
    """
    for names, placements in ((node.inputs, rule.inputs), (node.outputs, rule.outputs)):
        for name, p in zip(names, placements, strict=True):
            cls = training.tensors[name].classes[p.dim] if p.kind == "S" else None
            if p.kind == "S" and (cls is None or training.classes[cls].units == 1):
                return False
    partial = {training.tensors[n].kind for n, p in zip(node.inputs, rule.inputs, strict=True) if p.kind == "P"}
    if partial & {"state", "seed"} or (partial and "value" not in partial):
        return False
    held = dict(zip(node.inputs, rule.inputs, strict=True))
    given = dict(zip(node.outputs, rule.outputs, strict=True))
    states = [n for n in node.inputs if training.tensors[n].kind == "state" and n in training.updates]
    return all(given.get(training.updates[n], held[n]) == held[n] for n in states)
