"""What a kernel is told about its call: global extents, this device's piece, the seed and the step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch

from hapdsl.theory.dtypes import FLOATS
from hapdsl.theory.instance import Dim, Instance

DTYPES: Mapping[str, torch.dtype] = {
    "f64": torch.float64,
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i8": torch.int8,
    "bool": torch.bool,
}
NAMES: Mapping[torch.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}


def dtypes_at(precision: torch.dtype | None) -> Mapping[str, torch.dtype]:
    """The torch dtypes of hapdsl's dtype names; with a `precision` all floating ones become that."""
    if precision is None:
        return DTYPES
    return {name: precision if name in FLOATS else dtype for name, dtype in DTYPES.items()}


class Range(NamedTuple):
    """A device's piece of one dim, in elements: `offset` to `offset + length` of a dim of length `extent`."""

    extent: int
    offset: int
    length: int


Ranges = tuple[Range, ...]


def whole(shape: Sequence[int]) -> Ranges:
    """The piece that is everything."""
    return tuple(Range(n, 0, n) for n in shape)


@dataclass
class Clock:
    """The seed of a run, the step it is at (from 1) and the turn of a `microbatch` block (from 0); all contexts of a run share one.

    `skipped` steps before this one have changed nothing, because gradients in f16 were infinite.
    """

    seed: int = 0
    step: int = 1
    turn: int = 0
    skipped: int = 0


@dataclass
class Context:
    """One operator call on one device. `operands[k][d]` and `results[k][d]` are the device's ranges of each dim, within a turn
    where the batch is taken in turns (`turned`: the index that is, and in how many).

    What kernels ask for is global: `extent` (a mean divides by it, whatever is held here), `span` and `linear_index`.
    """

    instance: Instance
    operands: tuple[Ranges, ...]
    results: tuple[Ranges, ...]
    clock: Clock = field(default_factory=Clock)
    dtypes: Mapping[str, torch.dtype] = field(default_factory=lambda: DTYPES)
    turned: tuple[str, int] | None = None
    kept: dict[str, Any] = field(default_factory=dict)  # what a kernel has worked out for this call once

    @property
    def seed(self) -> int:
        return self.clock.seed

    @property
    def step(self) -> int:
        return self.clock.step

    @property
    def updates(self) -> int:
        """Which update of the parameters this is, from 1."""
        return self.clock.step - self.clock.skipped

    def extent(self, index: str) -> int:
        """The global extent of an index; of a star, the product over the dims it stands for."""
        members = self.instance.stars.get(index, (index,))
        turns = self.turned[1] if self.turned is not None and self.turned[0] in members else 1
        return math.prod(self.instance.extents[m] for m in members) * turns

    def span(self, operand: int, dim: int) -> Range:
        """This device's range of one dim of one operand, in the whole batch."""
        return self.within(self.operands[operand][dim], self.instance.operands[operand][dim])

    def spans(self, result: int = 0) -> Ranges:
        """This device's range of each dim of one output, in the whole batch."""
        return tuple(map(self.within, self.results[result], self.instance.results[result]))

    def within(self, here: Range, dim: Dim) -> Range:
        """A range of this turn as one of the whole batch."""
        if self.turned is None or not dim or self.instance.major(dim) != self.turned[0]:
            return here
        return Range(here.extent * self.turned[1], here.extent * self.clock.turn + here.offset, here.length)

    def result_shape(self, result: int = 0) -> tuple[int, ...]:
        """The local shape of an output."""
        return tuple(r.length for r in self.results[result])

    def dtype(self, name: str) -> torch.dtype:
        """The torch dtype of a dtype's name, at the precision of this run."""
        return self.dtypes[name]

    @cached_property
    def lengths(self) -> Mapping[str, int]:
        """The local length of every index: of a merged dim the major index is the one that is cut."""
        found = dict(self.instance.extents)
        sides = [
            *zip(self.operands, self.instance.operands, strict=True),
            *zip(self.results, self.instance.results, strict=True),
        ]
        for ranges, dims in sides:
            for here, dim in zip(ranges, dims, strict=True):
                if dim and here.length < here.extent:
                    found[self.instance.major(dim)] = here.length // self.instance.minor(dim)
        return found

    @cached_property
    def is_empty(self) -> bool:
        """Does an index of the call have nothing on this device? Then each output is zeros, and no kernel is called."""
        return any(n == 0 for n in self.lengths.values())

    def linear_index(self, result: int, device: torch.device) -> torch.Tensor:
        """i64, local shape: the global row-major element number of each element of an output."""
        ranges = self.spans(result)
        found = torch.zeros((), dtype=torch.int64, device=device)
        stride = 1
        for d in reversed(range(len(ranges))):
            here = ranges[d]
            along = torch.arange(here.offset, here.offset + here.length, dtype=torch.int64, device=device) * stride
            found = found + along.reshape([-1] + [1] * (len(ranges) - 1 - d))
            stride *= here.extent
        return found.expand([r.length for r in ranges])
