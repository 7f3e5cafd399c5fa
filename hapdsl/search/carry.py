"""How the backward pass comes by what the forward pass made or gathered: kept, made again, or recomputed.

A tensor that is kept is offered to both passes alike. One that is made "again" leaves only the placement it was made (or is held) in, and
is gathered or exchanged once more before its first reader in the backward pass; so a parameter that is held in shards and
gathered for each pass is FSDP. One that is "recomputed" leaves nothing: its call runs a second time, under the same rule, which needs its
operands in the backward pass, so these are carried in their turn.

In time alone keeping is always best: it costs nothing, the others cost what they repeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hapdsl.graph.training import Node, TrainingGraph

KEPT, AGAIN, RECOMPUTED = "kept", "again", "recomputed"
MADE_AGAIN = (AGAIN, RECOMPUTED)


@dataclass(frozen=True)
class Again:
    """`needed[t]`: tensors that the backward pass may read, and whether it does in any case (else only a call that runs a second time
    does). `calls` are the tensors whose call may run twice."""

    needed: Mapping[str, bool]
    calls: frozenset[str]


NEVER = Again({}, frozenset())


def again(training: TrainingGraph) -> Again:
    """What may be carried. Calls of one output run twice if what they make may be needed; a call of several makes all of them once.

    Cost: O(calls).
    """
    needed: dict[str, bool] = {}
    calls = set()
    for node in reversed(training.nodes):
        if node.section != "forward":
            needed.update((n, True) for n in node.inputs if is_late(training, node, n))
        elif len(node.outputs) == 1 and node.outputs[0] in needed:
            calls.add(node.outputs[0])
            for name in node.inputs:
                needed.setdefault(name, False)
    early = {t for node in training.nodes if node.section == "forward" for t in (*node.inputs, *node.outputs)}
    return Again({n: sure for n, sure in needed.items() if n in early}, frozenset(calls))


def is_late(training: TrainingGraph, node: Node, name: str) -> bool:
    """Does a call read a tensor after the forward pass? An update finds its parameter as that is held, whatever it was offered as."""
    return node.section == "backward" or (node.section == "update" and name not in training.updates)
