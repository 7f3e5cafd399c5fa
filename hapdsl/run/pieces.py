"""Where a value's local pieces lie in its tensor, and what moves between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from hapdsl.graph.program import Layout, Program, Value
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.diagnostics import error
from hapdsl.run.context import Range, Ranges
from hapdsl.theory.placements import Placements

Slices = tuple[slice, ...]


def ranges(program: Program, value: Value, device: int) -> Ranges:
    """The piece of `value` that a device holds."""
    offsets, lengths = program.piece(value)
    shape = program.graph.tensors[value.tensor].shape
    return tuple(Range(n, int(offsets[device, d]), int(lengths[device, d])) for d, n in enumerate(shape))


def sizes(piece: Ranges) -> tuple[int, ...]:
    """The local shape of a piece."""
    return tuple(r.length for r in piece)


def slices(piece: Ranges, within: Ranges | None = None) -> Slices:
    """The index that takes `piece` out of its tensor, or out of another piece that holds it."""
    if within is None:
        return tuple(slice(r.offset, r.offset + r.length) for r in piece)
    starts = [r.offset - w.offset for r, w in zip(piece, within, strict=True)]
    return tuple(slice(s, s + r.length) for s, r in zip(starts, piece, strict=True))


def overlap(a: Ranges, b: Ranges) -> Ranges | None:
    """What two pieces of one tensor share, None where that is nothing."""
    found = []
    for x, y in zip(a, b, strict=True):
        start, stop = max(x.offset, y.offset), min(x.offset + x.length, y.offset + y.length)
        if stop <= start:
            return None
        found.append(Range(x.extent, start, stop - start))
    return tuple(found)


def volume(piece: Ranges | None) -> int:
    """Elements of a piece."""
    return 0 if piece is None else int(np.prod([r.length for r in piece], dtype=np.int64))


def keeps_partial(program: Program, value: Value, device: int) -> bool:
    """Does this device hold the whole value where a replicated one becomes partial sums? One per P axis does: the first."""
    coordinate = program.layout.coordinates[device]
    return all(coordinate[a] == 0 for a, p in enumerate(value.placement) if p.kind == "P")


def counts(program: Program, value: Value, device: int) -> bool:
    """Is what this device holds to be added up with the others', or a replica of what counts elsewhere?"""
    coordinate = program.layout.coordinates[device]
    return all(coordinate[a] == 0 for a, p in enumerate(value.placement) if p.kind == "R")


def given(value: Value, tensors: Mapping[str, Tensor]) -> Tensor:
    """The global tensor of a value; asked for once, since a mapping may make it then. Raises HapError HAP706."""
    try:
        return tensors[value.tensor]
    except KeyError:
        raise error("HAP706", f"no value is given for '{value.tensor}'") from None


def firsts(layout: Layout, placement: Placements) -> list[int]:
    """For each device the one whose replica holds for its own: the first along the axes over which `placement` replicates."""
    index = {tuple(map(int, row)): device for device, row in enumerate(layout.coordinates)}
    kinds = [p.kind for p in placement]
    return [
        index[tuple(0 if k == "R" else int(c) for k, c in zip(kinds, row, strict=True))] for row in layout.coordinates
    ]


def cut(program: Program, value: Value, device: int, tensor: Tensor, dtypes: Mapping[str, torch.dtype]) -> Tensor:
    """A device's share of a global tensor as `value` places it, in memory of its own.

    Raises HapError HAP706 for a tensor of another shape.
    """
    declared = program.graph.tensors[value.tensor]
    if tuple(tensor.shape) != declared.shape:
        raise error(
            "HAP706", f"'{value.tensor}' has shape {list(tensor.shape)}, expected {list(declared.shape)}", declared.span
        )
    local = tensor[slices(ranges(program, value, device))].to(dtypes[declared.dtype])
    return (
        local.clone(memory_format=torch.contiguous_format)
        if keeps_partial(program, value, device)
        else torch.zeros_like(local)
    )


def of_turn(graph: TrainingGraph, tensor: str, inputs: Mapping[str, Tensor], turn: int) -> dict[str, Tensor]:
    """What a turn takes of the inputs of a whole batch for one of its own, under its name; nothing where it isn't given."""
    source = graph.sources.get(tensor, tensor)
    if source not in inputs:
        return {}
    whole, dim = inputs[source], graph.turned.get(tensor)
    if dim is None:
        return {tensor: whole}
    if tuple(whole.shape) != graph.undivided.tensors[source].shape:
        raise error(
            "HAP706",
            f"'{source}' has shape {list(whole.shape)}, expected {list(graph.undivided.tensors[source].shape)}",
        )
    length = graph.tensors[tensor].shape[dim]
    return {tensor: whole.narrow(dim, turn * length, length)}


def assemble(program: Program, value: Value, locals: Sequence[Tensor], tolerance: float = 0.0) -> Tensor:
    """The global tensor of a value from what every device holds: shards are joined, partial sums are added.

    `locals[device]`. Replicas may differ by `tolerance` (absolute, plus relative to their size).
    Raises HapError HAP708 for replicas that differ, HAP705 for a local tensor of another shape.
    """
    whole = locals[0].new_zeros(program.graph.tensors[value.tensor].shape)
    for device, first in enumerate(firsts(program.layout, value.placement)):
        piece = ranges(program, value, device)
        local = locals[device]
        if tuple(local.shape) != sizes(piece):
            raise error(
                "HAP705", f"device {device} holds {list(local.shape)} of {value}, expected {list(sizes(piece))}"
            )
        if first != device:
            if not torch.allclose(local, locals[first], rtol=tolerance, atol=tolerance, equal_nan=True):
                raise error("HAP708", f"devices {first} and {device} hold different replicas of {value}", status=1)
        elif local.numel():
            target = whole[slices(piece)] if piece else whole
            target.copy_(local if local.dtype == torch.bool else target + local)
    return whole


@dataclass(frozen=True)
class Transfer:
    """One operand of a collective within one group: what each member holds before and after.

    Members are numbered by their place in the group.
    """

    value: Value
    sources: tuple[Ranges, ...]
    targets: tuple[Ranges, ...]
    reduces: bool

    def block(self, source: int, target: int) -> Ranges | None:
        """What `source` passes to `target` (also to itself), None where that is nothing."""
        return overlap(self.sources[source], self.targets[target])

    @cached_property
    def uniform(self) -> bool:
        """Do all members hold the same piece afterwards?"""
        return all(t == self.targets[0] for t in self.targets)

    def verify(self) -> None:
        """Raises HapError HAP707 where the members' pieces don't make up what is wanted."""
        for j, target in enumerate(self.targets):
            volumes = [volume(self.block(i, j)) for i in range(len(self.sources))]
            fits = all(v == volume(target) for v in volumes) if self.reduces else sum(volumes) == volume(target)
            if not fits:
                raise error(
                    "HAP707",
                    f"the pieces of {self.value} don't make up what member {j} of the group is to hold",
                    status=1,
                )
        if self.reduces and any(s != self.sources[0] for s in self.sources):
            raise error("HAP707", f"the partial sums of {self.value} aren't of one piece", status=1)


def transfer(program: Program, source: Value, target: Value, group: Sequence[int], reduces: bool) -> Transfer:
    """The verified transfer of one operand between the devices of a group."""
    found = Transfer(
        source,
        tuple(ranges(program, source, d) for d in group),
        tuple(ranges(program, target, d) for d in group),
        reduces,
    )
    found.verify()
    return found


def largest_gap(made: Tensor, wanted: Tensor, relative: bool = True) -> float:
    """The largest difference of an element, `relative` where numbers are large; infinite where shapes differ, or only one is a number or finite."""
    if made.shape != wanted.shape:
        return float("inf")
    if not made.numel():
        return 0.0
    a, b = made.double(), wanted.double()
    same = (a == b) | (a.isnan() & b.isnan())
    gap = (a - b).abs() / (1 + b.abs() if relative else 1)
    return float(torch.where(same, 0, gap).nan_to_num(nan=math.inf, posinf=math.inf).max())
