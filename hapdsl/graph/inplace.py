"""Which updates may write over what they replace: the one rule, for those that run programs and those that predict what they hold.

An update operator of ours reads its parameter and state element by element, so a new value may lie where the old one was, if

- it replaces a value that is held, in the placement it is held in (the same pieces, shape and dtype), and
- nothing reads the old one behind the update.

Gradients in f16 are scaled, and a step in which one is infinite changes nothing: there the old values must outlive the updates.
"""

from __future__ import annotations

from hapdsl.graph.training import TURN, Node, TrainingGraph

OVERWRITES = frozenset(f"hapdsl.{name}" for name in ("sgd", "momentum", "adam", "adamw"))


def overwrites(node: Node) -> bool:
    """Does the kernel of a call write over its parameter and state? Those that the language's user brings along make new tensors."""
    return node.instance.decl.torch in OVERWRITES and node.section not in TURN


def scaled(graph: TrainingGraph) -> bool:
    """Is a gradient in f16, so that updates may have to be taken back?"""
    made = {name for node in graph.nodes if node.section == "backward" for name in node.outputs}
    return any(t.dtype == "f16" and (t.kind == "seed" or t.name in made) for t in graph.tensors.values())
