"""Prices of virtual devices: what a node does for each line of a program over nodes, its own synchronisation included.

A program over nodes is expanded over nodes × devices in the end (`hapdsl.check.expand`). Here each of its lines is expanded by itself, from
the placements in which its operands lie within a node between lines, back to such placements: pieces of the batch, the whole of what has no
batch, and sums still to be added of what the nodes are still to add up. The line costs what its expansion costs: the slowest device of each node
for calls, the messages within and across nodes for collectives. That isn't quite the expanded program's price: there a value that two lines read is made whole once,
messages within nodes are shared where lines wait for each other, and they cut stages. Plans are priced by their expansions in the end (`hapdsl.virtual`).

What a value takes up is what its largest piece on a device of the node takes up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from hapdsl.check.expand import Between, spread_layout
from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.numbers import Numbered, Numbers
from hapdsl.cost.pricing import Floats, Ints, Price, Pricer
from hapdsl.graph.program import METHODS, Instruction, Layout, Value
from hapdsl.graph.training import TrainingGraph
from hapdsl.search.messages import Buckets, Split


def pricer_of(graph: TrainingGraph, layout: Layout, cluster: Cluster, numbers: Numbers | None = None) -> Pricer:
    """What prices programs of one axis on a cluster: over nodes where it is `Cluster.outer()` of another."""
    if cluster.within is None:
        return Pricer(graph, layout, cluster, numbers)
    return NodePricer(graph, layout, cluster, numbers)


class _Lines:
    """The expansions of single lines of one graph's programs, by kind; they don't depend on shares."""

    def __init__(self, numbers: Numbers) -> None:
        self.graph = numbers.graph
        self.numbers = Numbers(self.graph)
        self._found: dict[int, list[list[Numbered]]] = {}

    @cached_property
    def buckets(self) -> Buckets:
        """What may travel together."""
        return Buckets(self.graph)

    def of(self, kind: int, instruction: Instruction, between: Between) -> list[list[Numbered]]:
        """The lines of an instruction's expansion, numbered; a collective once for each of its methods."""
        found = self._found.get(kind)
        if found is None:
            found = self._found[kind] = self.expanded(instruction, between)
        return found

    def expanded(self, instruction: Instruction, between: Between) -> list[list[Numbered]]:
        # How often a section is done isn't a line's own price.
        once = replace(instruction, section="forward", repeat=())
        return [
            [self.numbers.number(replace(i, method=m)) for m in METHODS[i.op]]
            if i.is_collective
            else [self.numbers.number(i)]
            for i in between.lines(once)
        ]


_LINES: WeakKeyDictionary[Numbers, _Lines] = WeakKeyDictionary()


class NodePricer(Pricer):
    """Prices lines over the virtual devices of `cluster`, which is the outer side of `cluster.within`."""

    def __init__(self, graph: TrainingGraph, layout: Layout, cluster: Cluster, numbers: Numbers | None = None) -> None:
        super().__init__(graph, layout, cluster, numbers)
        assert cluster.within is not None
        self.whole = cluster.within
        self.lines = _LINES.get(self.numbers) or _LINES.setdefault(self.numbers, _Lines(self.numbers))
        self.inner_layout = spread_layout(graph, layout, self.whole.node_speeds())
        self.between = Between(graph, self.inner_layout)
        self.inner = Pricer(graph, self.inner_layout, self.whole, self.lines.numbers)

    @cached_property
    def light(self) -> Pricer:
        """The same prices without what a message takes however short it is: latencies, and of measured curves all but a rate."""
        buckets = self.lines.buckets
        light = Split(self.whole, buckets.smallest, buckets.usual).light
        return Pricer(self.graph, self.inner_layout, light, self.lines.numbers)

    def by_node(self, each: Floats | Ints) -> Floats:
        """The largest of each node's devices, [nodes]."""
        return np.asarray(each).reshape(len(self.cluster), -1).max(axis=1)

    def _shape_bytes(self) -> list[Ints]:
        for value in self.numbers.samples[len(self._bytes) :]:
            inner = self.inner.slot(self.between.lying(value))
            self._bytes.append(np.asarray(self.by_node(self.inner.slot_bytes(inner)), dtype=np.int64))
        return self._bytes

    def sent(self, value: Value) -> Ints:
        """What a node has of a value, whatever its devices hold of that."""
        return np.asarray(self._geometry.local_bytes(value), dtype=np.int64)

    def alone(
        self, kind: str, source: Value, target: Value, cluster: Cluster, sizes: tuple[Floats | Ints, float]
    ) -> float:
        """As the lines say; of a shared message's part without latencies, and each line at the mean of what devices have of it.

        A shared message is as long as the largest sum of its parts on a device, and parts are largest on different devices: their largest ones may add up
        to more than that, their means can't. (Nor may a part count the larger of two such prices: each adds up, the larger ones don't.)
        """
        shared = cluster is not self.cluster
        lines = self.lines.expanded(Instruction(kind, (source,), (target,)), self.between)
        return self._part(lines) if shared else float(self._seconds(lines)[0].max())

    def _part(self, lines: Sequence[Sequence[Numbered]]) -> float:
        """Seconds that a line's expansion adds at least to that of a message it is part of. Prices without latencies are in proportion to bytes."""
        seconds = 0.0
        for ways in lines:
            instruction = ways[0].instruction
            prices = [self.light.price_of(d.kind).seconds for d in ways]
            if not instruction.is_collective:
                seconds += float(prices[0].mean())
                continue
            before, after = (
                np.sum([self.inner.sent(v) for v in side], axis=0) for side in (instruction.inputs, instruction.outputs)
            )
            both = np.maximum(before, after), (before + after) / 2
            most, mean = {"reduce_scatter": (after, after), "all_to_all": both}.get(instruction.op, (before, before))
            if most.max() > 0:
                seconds += min(float(p.max()) for p in prices) * float(mean.mean() / most.max())
        return seconds

    # -- lines ---------------------------------------------------------------------

    def _compute(self, instruction: Instruction, inputs: Ints, outputs: Ints) -> Price:
        return self._line(instruction)

    def _collective(self, instruction: Instruction, inputs: Ints, outputs: Ints) -> Price:
        return self._line(instruction)

    def _line(self, instruction: Instruction) -> Price:
        kind = self.numbers.number(instruction).kind
        lines = self.lines.of(kind, instruction, self.between)
        seconds, buffer = self._seconds(lines)
        moved = 0.0
        if instruction.is_collective:
            sent = [
                self.sent(v)
                for v in (instruction.inputs if instruction.op != "reduce_scatter" else instruction.outputs)
            ]
            total = np.sum(sent, axis=0)
            moved = float(total.max() if instruction.op == "all_reduce" else total.sum())
        return Price(seconds, np.asarray(buffer, dtype=np.int64), moved)

    def _seconds(self, lines: Sequence[Sequence[Numbered]]) -> tuple[Floats, Floats]:
        """(seconds, largest buffer) of a line's expansion, by node; messages by their cheapest methods."""
        seconds, buffer = np.zeros(len(self.cluster)), np.zeros(len(self.cluster))
        work = np.zeros(len(self.whole))
        for ways in lines:
            price = min((self.inner.price_of(d.kind) for d in ways), key=lambda p: float(p.seconds.max()))
            if ways[0].instruction.is_collective:
                seconds += price.seconds.max()  # whoever is done sooner waits
            else:
                work += price.seconds
            buffer = np.maximum(buffer, self.by_node(price.buffer))
        return seconds + self.by_node(work), buffer
