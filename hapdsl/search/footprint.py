"""What choices must at least hold in memory, as factors: so that a search can pay for memory where time alone doesn't fit.

Four moments are counted, each a lower bound of a device's peak by itself; parameters and optimizer state are held in all:

- parameters are gathered: with what they are offered as, where all of them share one message;
- the backward pass begins: with every activation that it reads, in the smallest of the placements it is offered in, or in the one it was made in
  where its reader takes that as it is, or where it is made again from that, or without it where it is recomputed;
- the updates begin: with all gradients as their calls give them, where all of them share one message;
- the step ends: with what replaces parameters and state and isn't written over them (`hapdsl.graph.inplace`).

Inputs, buffers of collectives and outputs are left out, so what fits here may still be too large; the exact evaluator
decides. Unit: the memory of the device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hapdsl.graph.inplace import overwrites, scaled
from hapdsl.graph.program import Value
from hapdsl.search.carry import AGAIN, KEPT, is_late
from hapdsl.search.messages import BUCKET
from hapdsl.search.offers import Offer, provides
from hapdsl.theory.placements import Placement

if TYPE_CHECKING:
    from hapdsl.search.space import Space

Table = NDArray[np.float64]
MOMENTS = 4
BEGINS = 0.1  # what an activation weighs with which a segment of layers begins, beside the others
GRADE = 0.15  # how much more the last activation weighs than the first, where that is to tell layers apart


def tables(space: Space) -> Iterator[tuple[tuple[int, ...], Table]]:
    """(variables, float array [MOMENTS × groups, *values]), moment by moment.

    The sum of all entries of a component is above 0 only where the device can't hold what it must. In a `graded` space equal
    activations weigh differently (`_weight`): identical layers would all be carried in one way under any price.
    """
    training, buckets = space.training, space.conversions.buckets
    together = {
        what: 3 * sum(training.tensors[n].bytes for n in names) < BUCKET  # each may be converted more than once
        for what, names in (("params", buckets.params), ("gradients", buckets.gradients))
    }
    yield (), np.full(MOMENTS * len(space.groups), -1.0)
    for name, pairs in space.holds.items():
        held = np.stack([_part(space, name, h) for h, _ in pairs], axis=1)
        gathered = np.stack([_copies(space, name, h, o) for h, o in pairs], axis=1) * together["params"]
        yield (space.offer_variable[name],), np.concatenate([held + gathered, held, held, held])
        yield from _later(space, name, [(h,) for h, _ in pairs], [() if h in o else o for h, o in pairs])
        yield from _replaced(space, name, [h for h, _ in pairs])
    for name, offered in space.offers.items():
        if _crosses(space, name):
            k, j = space.structure.maker(name)
            yield from _later(space, name, [space.structure.given(k, j)] * len(offered), offered)
            if AGAIN in space.structure.carries.get(name, ()):
                source = np.stack([_part(space, name, r.outputs[j]) for r in space.rules[k]], axis=1)
                stays = _weight(space, name) * np.array([w == AGAIN for w in space.structure.carries[name]])
                yield (space.rule_variable[k], space.offer_variable[name]), _at(source[:, :, None] * stays, 1)
        elif name in buckets.gradients and together["gradients"]:
            k, j = space.structure.maker(name)
            given = np.stack([_part(space, name, r.outputs[j]) for r in space.rules[k]], axis=1)
            yield (space.rule_variable[k],), _at(given, 2)
    for k, node in enumerate(training.nodes):
        states = [(i, n) for i, n in enumerate(node.inputs) if training.tensors[n].kind == "state"]
        if states and node.section == "update":
            columns = [np.sum([_part(space, n, r.inputs[i]) for i, n in states], axis=0) for r in space.rules[k]]
            held = np.stack(columns, axis=1)
            both = 1 if _over(space, k) else 2
            yield (space.rule_variable[k],), np.concatenate([held, held, held, both * held])


def _later(
    space: Space, name: str, sources: Sequence[Offer], offered: Sequence[Offer]
) -> Iterator[tuple[tuple[int, ...], Table]]:
    """What is kept of a tensor for the backward pass, beside how it is held: by the rule of a call that reads it there, where that matters.

    `sources` are the placements that each value's tensor may be in without any conversion.
    """
    training, structure = space.training, space.structure
    kept = _kept(space, name) * _weight(space, name)
    if not np.any(kept):
        return
    late = next((k for k in training.readers[name] if is_late(training, training.nodes[k], name)), None)
    # Where only calls that run twice may read it there, no rule says whether one does: whatever is least.
    calls = training.readers[name] if late is None else (late,)
    ways = [frozenset(r.inputs[i] for i in structure.places(k, name)) for k in calls for r in space.rules[k]]
    pairs = [*zip(sources, [_least(space, name, o) for o in offered], strict=True)]
    tables = {
        way: np.stack([_needed(space, name, way, *p) for p in pairs], axis=1) * kept for way in dict.fromkeys(ways)
    }
    least = np.min([*tables.values()], axis=0)
    if late is None or all((table == least).all() for table in tables.values()):
        yield (space.offer_variable[name],), _at(least, 1)
    else:
        yield (
            (space.rule_variable[late], space.offer_variable[name]),
            _at(np.stack([tables[w] for w in ways], axis=1), 1),
        )


def _needed(space: Space, name: str, way: frozenset[Placement], sources: Offer, offered: Table) -> Table:
    """What a reader that takes a tensor in a `way` needs of it: at least what is offered, unless it was there before. How a parameter is held counts by itself."""
    if name in space.holds:
        return np.zeros_like(offered) if all(provides(sources, q) for q in way) else offered
    return np.minimum(offered, np.max([_part(space, name, q) for q in way], axis=0)) if way <= {*sources} else offered


def _replaced(space: Space, name: str, placements: list[Placement]) -> Iterator[tuple[tuple[int, ...], Table]]:
    """What replaces a parameter, in the placements that this may be held in. Where its update makes just that, it is written over the old one."""
    new = space.training.updates.get(name)
    if new is None:
        return
    there = np.stack([_part(space, new, h) for h in placements], axis=1)
    k, j = space.structure.maker(new)
    if not _over(space, k):
        yield (space.offer_variable[name],), _at(there, 3)
        return
    moved = np.array([[r.outputs[j] != h for h in placements] for r in space.rules[k]])
    if moved.any():
        yield (space.rule_variable[k], space.offer_variable[name]), _at(there[:, None, :] * moved, 3)


def _over(space: Space, k: int) -> bool:
    """May an update write over what it replaces?"""
    return overwrites(space.training.nodes[k]) and not scaled(space.training)


def _at(table: Table, moment: int) -> Table:
    """A table that counts at one moment only."""
    return np.concatenate([table if m == moment else np.zeros_like(table) for m in range(MOMENTS)])


def _part(space: Space, name: str, placement: Placement) -> Table:
    """A value's share of the memory of each group's devices, float array [groups]."""
    pricer = space.pricer
    size = pricer.slot_bytes(pricer.slot(Value(name, (placement,))))
    return np.array([size[g[0]] / space.cluster.memories[g[0]] for g in space.groups])


def _least(space: Space, name: str, offer: tuple[Placement, ...]) -> Table:
    parts = [_part(space, name, p) for p in offer]
    return np.min(parts, axis=0) if parts else np.zeros(len(space.groups))


def _copies(space: Space, name: str, held: Placement, offer: tuple[Placement, ...]) -> Table:
    """The largest copy that a parameter's first reader waits for: with all others' it is there when the last one is made."""
    if all(provides((held,), p) for p in offer):
        return np.zeros(len(space.groups))
    return np.max([_part(space, name, p) for p in offer if p != held], axis=0)


def _weight(space: Space, name: str) -> float:
    """What keeping an activation counts in a graded space: a little more the earlier it is, little where a segment begins.

    If all were recomputed, the first reader would wait for the whole forward pass; so what goes from one turn of a repeat to the next (or,
    without repeats, one call in so many that there are as many segments as calls in each) is the last to be given up.
    """
    if not space.graded or name in space.holds:
        return 1.0
    training = space.training
    made = training.producer[name]
    here = training.nodes[made].repeat
    if any(node.repeat for node in training.nodes):
        begins = any(
            training.nodes[k].section == "forward" and training.nodes[k].repeat != here for k in training.readers[name]
        )
    else:
        calls = sum(node.section == "forward" for node in training.nodes)
        begins = made % math.isqrt(calls) == 0
    return (1.0 + GRADE * (0.5 - made / len(training.nodes))) * (BEGINS if begins else 1.0)


def _kept(space: Space, name: str) -> Table | bool:
    """Per value, or for all of them: is what is offered kept until the backward pass begins?"""
    words = space.structure.carries.get(name)
    return _crosses(space, name) if words is None else np.array([float(w == KEPT) for w in words])


def _crosses(space: Space, name: str) -> bool:
    """Is a tensor there before the backward pass begins, and (perhaps) read in it?

    A parameter is gathered at its first reader, so that one must stand in the forward pass.
    """
    if name in space.structure.carries:
        return True
    nodes, readers = space.training.nodes, space.training.readers[name]
    made = space.training.producer.get(name)
    begins = nodes[made].section if made is not None else (nodes[readers[0]].section if readers else "")
    return begins == "forward" and any(nodes[k].section == "backward" for k in readers)
