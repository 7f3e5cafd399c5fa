"""Seconds and buffers of single instructions, remembered, so that identical layers are priced once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hapdsl.cluster.hardware import Cluster
from hapdsl.cluster.wiring import Wiring
from hapdsl.cost.collectives import best_method, collective_seconds
from hapdsl.cost.compute import compute_seconds
from hapdsl.cost.numbers import FREE, LOAD, LOCAL, Numbered, Numbers
from hapdsl.graph.program import Instruction, Layout, Program, Value
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.diagnostics import error
from hapdsl.theory.dtypes import DTYPE_BYTES

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Price:
    """Of one instruction: `seconds` and `buffer` (bytes that only live while it runs) per device; `moved` are the
    bytes of its message in the largest group, 0 for what is no collective."""

    seconds: Floats
    buffer: Ints
    moved: float = 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """An instruction whose values are numbered, with its price: what memory and overlap walk over."""

    instruction: Instruction
    inputs: list[int]
    outputs: list[int]
    price: Price
    kind: int


class Pricer:
    """Prices instructions of any program over one graph, one layout and one cluster.

    Keep it while these three stay the same: what it has priced once costs a look-up. `numbers` (of the same graph) may be
    shared between pricers of several layouts. Raises HAP420 where the layout and the cluster differ in their number of devices.
    """

    def __init__(self, graph: TrainingGraph, layout: Layout, cluster: Cluster, numbers: Numbers | None = None) -> None:
        if layout.devices != len(cluster):
            raise error(
                "HAP420",
                f"the program is cut over {layout.devices} devices, but cluster '{cluster.name}' has {len(cluster)}",
                help="name another cluster, or change the program's mesh and shares",
            )
        self.graph, self.layout, self.cluster = graph, layout, cluster
        self.numbers = numbers or Numbers(graph)
        self._geometry = Program("", graph, layout, [])
        self._bytes: list[Ints] = []  # local bytes by shape number
        self._prices: dict[int, Price] = {}  # by kind of instruction
        self._groups: dict[int, list[list[int]]] = {}
        zero = np.zeros(len(cluster), dtype=np.int64)
        self._prices.update(dict.fromkeys((LOCAL, FREE, LOAD), Price(np.zeros(len(cluster)), zero)))
        # The last program with its numbers, by the ids of its instructions, which this keeps alive.
        self._recent: dict[int, Numbered] = {}

    def fits(self, program: Program, cluster: Cluster) -> bool:
        """Was this pricer made for the program's graph and layout (the same objects) and for this cluster?"""
        return self.graph is program.graph and self.layout is program.layout and self.cluster is cluster

    # -- values --------------------------------------------------------------------

    def slot(self, value: Value) -> int:
        """The number of a value; equal values have one number."""
        return self.numbers.slot(value)

    def slot_bytes(self, slot: int) -> Ints:
        """Local bytes of a numbered value, int array [devices]."""
        return self._shape_bytes()[self.numbers.shape_of[slot]]

    def sent(self, value: Value) -> Ints:
        """What a message of a value is counted by, int array [devices]: its local bytes."""
        return self.slot_bytes(self.slot(value))

    def alone(
        self, kind: str, source: Value, target: Value, cluster: Cluster, sizes: tuple[Floats | Ints, float]
    ) -> float:
        """Seconds of a message of one value, by its cheapest method, where `cluster` (this one, or it without latencies) takes what `sizes`
        (shares, total) say."""
        return best_method(kind, *sizes, cluster)[1]

    def table(self, slots: Sequence[int] | Ints, devices: Ints | None = None) -> Ints:
        """Local bytes of numbered values (on some devices only), int array [values, devices]."""
        if not len(slots):
            return np.zeros((0, len(self.cluster) if devices is None else len(devices)), dtype=np.int64)
        shapes = np.stack(self._shape_bytes())
        return np.asarray((shapes if devices is None else shapes[:, devices])[np.array(self.numbers.shape_of)[slots]])

    def _shape_bytes(self) -> list[Ints]:
        for value in self.numbers.samples[len(self._bytes) :]:
            self._bytes.append(np.asarray(self._geometry.local_bytes(value), dtype=np.int64))
        return self._bytes

    @cached_property
    def alike(self) -> tuple[Ints, Ints]:
        """Devices with the same share of every class hold the same: one of each sort, and each device's sort."""
        shares = [s for by_axes in self.layout.shares.values() for s in by_axes.values()]
        if not shares:
            return np.zeros(1, dtype=np.int64), np.zeros(len(self.cluster), dtype=np.int64)
        _, first, sort = np.unique(np.stack(shares), axis=1, return_index=True, return_inverse=True)
        return first, sort.reshape(-1)

    # -- instructions ----------------------------------------------------------------

    def groups(self, axis: int) -> list[list[int]]:
        """The groups of a collective along `axis` (`Layout.groups`, remembered)."""
        found = self._groups.get(axis)
        if found is None:
            found = self._groups[axis] = self.layout.groups(axis)
        return found

    def line(self, instruction: Instruction) -> Line:
        """An instruction with its values numbered and its price."""
        return self.priced(self.numbers.number(instruction))

    def numbered(self, instructions: Iterable[Instruction]) -> list[Numbered]:
        """A whole program with its numbers; those of the instructions that the last program shared are at hand."""
        listed = list(instructions)
        recent = self._recent
        found = [recent.get(id(i)) for i in listed]
        new = iter(self.numbers.number_all([i for i, known in zip(listed, found, strict=True) if known is None]))
        numbered = [known if known is not None else next(new) for known in found]
        self._recent = dict(zip(map(id, listed), numbered, strict=True))
        return numbered

    def know(self, numbered: Sequence[Numbered]) -> None:
        """A program whose instructions will be asked for next, with their numbers."""
        self._recent = {id(line.instruction): line for line in numbered}

    def priced(self, numbered: Numbered) -> Line:
        """An instruction with this pricer's numbers, and its price."""
        return Line(
            numbered.instruction, numbered.inputs, numbered.outputs, self.price_of(numbered.kind), numbered.kind
        )

    def price_of(self, kind: int) -> Price:
        """The price of a kind of instruction."""
        found = self._prices.get(kind)
        if found is None:
            example = self.numbers.examples[kind]
            make = self._collective if example.instruction.node is None else self._compute
            dtype = example.instruction.dtype
            found = make(example.instruction, self._sum(example.inputs, dtype), self._sum(example.outputs, dtype))
            # What stands in a `microbatch` block is done in every turn.
            times = self.graph.times(example.instruction.section)
            found = self._prices[kind] = found if times == 1 else replace(found, seconds=found.seconds * times)
        return found

    def price(self, instruction: Instruction) -> Price:
        """The price of one instruction; loads, local conversions and `free` are free."""
        return self.line(instruction).price

    def _sum(self, slots: list[int], dtype: str | None) -> Ints:
        """Bytes of several values on each device, where floats are sent as `dtype`."""
        total = np.zeros(len(self.cluster), dtype=np.int64)
        for slot in slots:
            own = self.slot_bytes(slot)
            total += own if dtype is None else own * DTYPE_BYTES[dtype] // self._item(slot)
        return total

    def _item(self, slot: int) -> int:
        """Bytes of one element of a value."""
        value = self.numbers.samples[self.numbers.shape_of[slot]]
        return DTYPE_BYTES[self.graph.tensors[value.tensor].dtype]

    def _compute(self, instruction: Instruction, inputs: Ints, outputs: Ints) -> Price:
        assert instruction.node is not None
        lengths = self._geometry.index_lengths(instruction)
        for k, elements in instruction.node.instance.reads(lengths).items():
            slot = self.slot(instruction.inputs[k])
            held = self.slot_bytes(slot)
            inputs = inputs - held + np.minimum(held, np.ceil(elements * self._item(slot))).astype(np.int64)
        return Price(
            compute_seconds(instruction.node, lengths, inputs, outputs, self.cluster), self._prices[LOCAL].buffer
        )

    def _collective(self, instruction: Instruction, inputs: Ints, outputs: Ints) -> Price:
        """All groups along the axis at once, each with its own link."""
        kind, method = instruction.op, instruction.method
        shares = {"reduce_scatter": outputs, "all_to_all": np.maximum(inputs, outputs)}.get(kind, inputs)
        seconds = np.zeros(len(self.cluster))
        buffer = np.zeros(len(self.cluster), dtype=np.int64)
        moved = 0.0
        groups = self.groups(instruction.axis)
        for group, wiring in zip(groups, self.cluster.links(groups), strict=True):
            mine = shares[group]
            total = float(mine.max() if kind == "all_reduce" else mine.sum())
            seconds[group] = collective_seconds(kind, method, mine, total, self.cluster, group, wiring)
            both = (inputs + outputs)[group]
            buffer[group] = _buffer(instruction, mine, both, wiring) + (both if instruction.dtype is not None else 0)
            moved = max(moved, total)
        return Price(seconds, buffer, moved)


def _buffer(instruction: Instruction, shares: Ints, both: Ints, wiring: Wiring) -> Ints:
    """Bytes that a collective needs beside its inputs and outputs, per device of one group.

    Padded methods hold the whole tensor at n times the largest share, grouped ones every piece by itself; all_to_all packs what it sends and unpacks what
    it gets, a hierarchical one also what it hands on, where nodes have unlike numbers of devices; an all_reduce of several
    operands flattens them into one message, and one that isn't a ring receives or joins another whole one.
    """
    if len(shares) == 1:
        return np.zeros_like(shares)
    match instruction.op, instruction.method:
        case "all_gather", "grouped":
            return np.full_like(shares, int(shares.sum()))
        case "reduce_scatter", "grouped":
            return both - shares  # what it packs; its own piece is what it returns, or a copy of that
        case "all_gather" | "reduce_scatter", _:
            return np.full_like(shares, len(shares) * int(shares.max()))
        case "all_to_all", "hierarchical" if wiring.most > wiring.least:
            n = wiring.devices
            passed_on = max(s * (n - s) for s in (wiring.most, wiring.least)) / (n * wiring.least)
            return np.ceil(both * (1 + passed_on)).astype(np.int64)
        case "all_to_all", _:
            return both
    return shares * ((len(instruction.inputs) > 1) + (instruction.method not in (None, "ring")))
