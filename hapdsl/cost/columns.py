"""A program as columns: its instructions' kinds and the values they read and write, as arrays that pricing works on at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hapdsl.cost.numbers import FREE, LOAD, LOCAL, Numbered, Numbers
from hapdsl.cost.pricing import Line, Price, Pricer
from hapdsl.graph.inplace import overwrites

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_Number = TypeVar("_Number", np.float64, np.int64)


class Columns:
    """The lines of one program, in order, with what `pricer` says of them.

    `kinds` int array [lines] numbers what is priced alike. `reads` are the slots that lines read, all lines after another, and `readers` the
    lines that do; `writes` and `writers` the same of what they make: int arrays [operands]. Cost: O(lines + operands).
    """

    def __init__(self, lines: Sequence[Numbered | Line], pricer: Pricer) -> None:
        self.lines, self.pricer = lines, pricer
        self.kinds: Ints = np.fromiter((line.kind for line in lines), np.int64, len(lines))

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def numbers(self) -> Numbers:
        return self.pricer.numbers

    # -- kinds and prices --------------------------------------------------------------

    @cached_property
    def _own_kinds(self) -> tuple[Ints, Ints]:
        """The kinds there are, and each line's place among them."""
        kinds, place = np.unique(self.kinds, return_inverse=True)
        return kinds, place.reshape(-1)

    @cached_property
    def prices(self) -> list[Price]:
        """The price of each line."""
        kinds, place = self._own_kinds
        own = [self.pricer.price_of(k) for k in kinds.tolist()]
        return [own[p] for p in place.tolist()]

    @cached_property
    def seconds(self) -> Floats:
        """Seconds of each line on each device, float array [lines, devices]."""
        return self._spread([self.pricer.price_of(k).seconds for k in self._own_kinds[0].tolist()], np.float64)

    @cached_property
    def buffers(self) -> Ints:
        """Bytes of each line's buffer on each device, int array [lines, devices]."""
        return self._spread([self.pricer.price_of(k).buffer for k in self._own_kinds[0].tolist()], np.int64)

    def _spread(self, rows: list[NDArray[_Number]], dtype: type[_Number]) -> NDArray[_Number]:
        if not rows:
            return np.zeros((0, len(self.pricer.cluster)), dtype=dtype)
        return np.asarray(np.stack(rows)[self._own_kinds[1]])

    @cached_property
    def collective(self) -> Bools:
        """Which lines are collectives, bool array [lines]."""
        kinds, place = self._own_kinds
        examples = self.numbers.examples
        own = np.array([k >= 0 and examples[k].instruction.is_collective for k in kinds.tolist()], dtype=bool)
        return np.asarray(own[place])

    @cached_property
    def overwriting(self) -> Bools:
        """Which lines are updates that may write over what they replace, bool array [lines]."""
        kinds, place = self._own_kinds
        nodes = [self.numbers.examples[k].instruction.node if k >= 0 else None for k in kinds.tolist()]
        own = np.array([node is not None and overwrites(node) for node in nodes], dtype=bool)
        return np.asarray(own[place])

    @cached_property
    def in_turn(self) -> Bools:
        """Which lines are collectives that take room for what arrives when their operands have ended, bool array [lines]. A tree's first message may be
        on its way before; of several operands, room for the outputs comes later still."""
        kinds, place = self._own_kinds
        examples = [self.numbers.examples[k].instruction if k >= 0 else None for k in kinds.tolist()]
        own = np.array([i is not None and i.method == "tree" and len(i.inputs) == 1 for i in examples], dtype=bool)
        return np.asarray(self.collective & ~own[place])

    @cached_property
    def compute(self) -> Bools:
        """Which lines call an operator, bool array [lines]."""
        return np.asarray((self.kinds >= 0) & ~self.collective)

    @property
    def loads(self) -> Bools:
        return np.asarray(self.kinds == LOAD)

    @property
    def frees(self) -> Bools:
        return np.asarray(self.kinds == FREE)

    @property
    def local(self) -> Bools:
        """Which lines are local conversions, bool array [lines]."""
        return np.asarray(self.kinds == LOCAL)

    # -- values ------------------------------------------------------------------------

    @cached_property
    def _reading(self) -> tuple[Ints, Ints]:
        return _flat([line.inputs for line in self.lines])

    @cached_property
    def _writing(self) -> tuple[Ints, Ints]:
        return _flat([line.outputs for line in self.lines])

    @property
    def readers(self) -> Ints:
        return self._reading[0]

    @property
    def reads(self) -> Ints:
        return self._reading[1]

    @property
    def writers(self) -> Ints:
        return self._writing[0]

    @property
    def writes(self) -> Ints:
        return self._writing[1]

    @cached_property
    def makers(self) -> Ints:
        """For each read the line that made what it reads, -1 where none did: int array [operands]."""
        n = len(self)
        if not len(self.writes):
            return np.full(len(self.reads), -1, dtype=np.int64)
        written = self.writes * n + self.writers
        order = np.argsort(written, kind="stable")
        at = np.searchsorted(written[order], self.reads * n + self.readers) - 1
        found = order[np.maximum(at, 0)]
        return np.asarray(np.where((at >= 0) & (self.writes[found] == self.reads), self.writers[found], -1))


def _flat(rows: list[list[int]]) -> tuple[Ints, Ints]:
    """(which row, entry) of all entries of ragged rows, in order."""
    counts = np.fromiter(map(len, rows), np.int64, len(rows))
    entries = np.fromiter(chain.from_iterable(rows), np.int64, int(counts.sum()))
    return np.repeat(np.arange(len(rows)), counts), entries
