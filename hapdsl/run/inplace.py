"""Which operands each step of a program may write over: worked out once, from who reads what until when, and who may share whose memory.

Parameters and state belong to whoever holds them between steps (`Rank.held`). A kernel that writes may have an old value's memory if the program
gives it up there (`hapdsl.graph.inplace`) and nothing else that is still wanted lies in it: a view, or the same tensor under another name. That is
decided for the worst case, by what a kernel might return; where it may not, the kernel is given a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from hapdsl.graph.inplace import overwrites
from hapdsl.graph.ties import Ties
from hapdsl.graph.training import Node
from hapdsl.run.lower import Compute, Convert, Exchange, Lowered, Step
from hapdsl.theory.library import standard

# Kernels that may return an operand as it is, or a view of it. All others of ours make new tensors (tests/run/test_inplace.py).
PASSES = frozenset((
    "hapdsl.accumulate", "hapdsl.cast", "hapdsl.cast_like", "hapdsl.max", "hapdsl.rearrange", "hapdsl.slice",
    "hapdsl.spread", "hapdsl.sum", "hapdsl.transpose", "torch.detach",
))  # fmt: skip


def passes(node: Node) -> bool:
    """May an output of a call lie in the memory of an operand? Of functions that the standard theory doesn't name nothing is known.

    An einsum of one operand permutes it; a product is new.
    """
    name = node.instance.decl.torch
    if name == "hapdsl.einsum":
        return len(node.inputs) == 1
    return name in PASSES or not ((name or "").startswith("hapdsl.") or name in _known())


@cache
def _known() -> frozenset[str]:
    return frozenset(d.torch for d in standard().values() if d.torch is not None)


def written(lowered: Lowered, device: int) -> Mapping[int, frozenset[int]]:
    """By step the places among its inputs that its kernel may write over, on a device whose steps are never taken back.

    Cost: O(steps × operands).
    """
    touched = {slot: k for k, step in enumerate(lowered.steps) for slot in (*step.inputs, *step.outputs)}
    shared = _shared(lowered, device)
    kept = {lowered.slots[v] for v in lowered.goals.values}
    kept |= {lowered.slots[v] for v in lowered.held if v not in lowered.goals.updated}
    replaced = {lowered.slots[new]: lowered.slots[old] for old, new in lowered.goals.updated.items()}
    after = set(lowered.after if lowered.turns > 1 else range(len(lowered.steps)))
    found: dict[int, frozenset[int]] = {}
    for k, step in enumerate(lowered.steps):
        node = step.instruction.node
        if node is None or k not in after or not overwrites(node):
            continue
        for new in step.outputs:
            old = replaced.get(new)
            if old is None or step.inputs.count(old) != 1 or old not in step.drops or touched[old] != k:
                continue
            others = shared.get(old, {old}) - {old, new}
            if all(slot not in kept and touched[slot] < k for slot in others):
                found[k] = found.get(k, frozenset()) | {step.inputs.index(old)}
    return found


def _shared(lowered: Lowered, device: int) -> dict[int, set[int]]:
    """By slot all that may lie in the same memory, those of them that aren't alone. A new value may do so in the next step, under the old one's name."""
    ties: Ties[int] = Ties()
    for old, new in lowered.goals.updated.items():
        ties.tie(lowered.slots[old], lowered.slots[new])
    dtypes = {slot: lowered.dtype_of(value) for value, slot in lowered.slots.items()}
    for step in lowered.steps:
        for source, target in _ways(step, device):
            if dtypes[source] == dtypes[target]:
                ties.tie(source, target)
    return {slot: members for members in map(set, ties.sets()) for slot in members}


def _ways(step: Step, device: int) -> Iterable[tuple[int, int]]:
    """(slot, slot) of inputs and outputs that may share memory."""
    pairs: Iterator[tuple[int, int]] = zip(step.inputs, step.outputs, strict=False)
    match step.work:
        case Convert():
            return pairs
        case Exchange(groups=groups):
            return pairs if any(len(g) == 1 and device in g for g in groups) else ()
        case Compute() if step.instruction.node is not None and passes(step.instruction.node):
            return ((source, target) for target in step.outputs for source in step.inputs)
    return ()
