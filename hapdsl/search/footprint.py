"""What choices must at least hold in memory, as factors: so that a search can pay for memory where time alone doesn't fit.

Two moments are counted, each a lower bound of a device's peak by itself:

- when the backward pass begins: parameters and optimizer state as they are held, and every activation that the backward
  pass reads, in the smallest of the placements it is offered in;
- when the step ends: parameters and state, and what replaces them.

Inputs, gradients, buffers of collectives and outputs are left out, so what fits here may still be too large; the exact
evaluator decides. Unit: the memory of the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hapdsl.graph.program import Value
from hapdsl.theory.placements import Placement

if TYPE_CHECKING:
    from hapdsl.search.space import Space

Table = NDArray[np.float64]


def tables(space: Space) -> Iterator[tuple[tuple[int, ...], Table]]:
    """(variables, float array [2 × groups, *values]): first the groups' backward moments, then their ends.

    The sum of all entries of a component is above 0 only where the device can't hold what it must.
    """
    training = space.training
    yield (), np.full(2 * len(space.groups), -1.0)
    for name, pairs in space.holds.items():
        held = np.stack([_part(space, name, h) for h, _ in pairs], axis=1)
        new = training.updates.get(name)
        after = held if new is None else held + np.stack([_part(space, new, h) for h, _ in pairs], axis=1)
        before = held
        if _crosses(space, name):
            copies = [_least(space, name, () if h in o else o) for h, o in pairs]
            before = held + np.stack(copies, axis=1)
        yield (space.offer_variable[name],), np.concatenate([before, after])
    for name, offered in space.offers.items():
        if _crosses(space, name):
            kept = np.stack([_least(space, name, o) for o in offered], axis=1)
            yield (space.offer_variable[name],), np.concatenate([kept, np.zeros_like(kept)])
    for k, node in enumerate(training.nodes):
        states = [(i, n) for i, n in enumerate(node.inputs) if training.tensors[n].kind == "state"]
        if states and node.section == "update":
            columns = [sum(_part(space, n, r.inputs[i]) for i, n in states) for r in space.rules[k]]
            held = np.stack([np.asarray(c) for c in columns], axis=1)
            yield (space.rule_variable[k],), np.concatenate([held, 2 * held])


def _part(space: Space, name: str, placement: Placement) -> Table:
    """A value's share of the memory of each group's devices, float array [groups]."""
    pricer = space.pricer
    size = pricer.slot_bytes(pricer.slot(Value(name, (placement,))))
    return np.array([size[g[0]] / space.cluster.memories[g[0]] for g in space.groups])


def _least(space: Space, name: str, offer: tuple[Placement, ...]) -> Table:
    parts = [_part(space, name, p) for p in offer]
    return np.min(parts, axis=0) if parts else np.zeros(len(space.groups))


def _crosses(space: Space, name: str) -> bool:
    """Is a tensor there before the backward pass begins, and read in it?

    A parameter is gathered at its first reader, so that one must stand in the forward pass.
    """
    nodes, readers = space.training.nodes, space.training.readers[name]
    made = space.training.producer.get(name)
    begins = nodes[made].section if made is not None else (nodes[readers[0]].section if readers else "")
    return begins == "forward" and any(nodes[k].section == "backward" for k in readers)
