"""The canonical scheduler: one order of instructions for any set of choices.

Calls keep the order of the training graph. A parameter is loaded just before its first reader and gathered there,
together with the parameters that are read next, up to a bucket. A computed tensor is converted as soon as it is made.
Gradients on their way to an update wait until a bucket is full or the backward pass ends, and so do updated parameters on their way back.
What "optimal" refers to is this order; it is deterministic. Cost: linear in instructions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.collectives import best_method
from hapdsl.cost.pricing import Pricer
from hapdsl.graph.program import COLLECTIVES, Instruction, Layout, Program, Value, conversion
from hapdsl.graph.training import LOADED, Node, TrainingGraph
from hapdsl.search.messages import BUCKET, Buckets
from hapdsl.search.offers import Offer, provides, steps
from hapdsl.search.space import Space
from hapdsl.search.structure import Choice
from hapdsl.theory.placements import Placement, R

Turn = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class _Waiting:
    """A conversion that waits to share a message."""

    source: Value
    target: Value
    bytes: int


@dataclass
class Scheduler:
    """Turns choices into programs for one graph, layout and cluster; keeps its prices between calls."""

    training: TrainingGraph
    layout: Layout
    cluster: Cluster
    pricer: Pricer
    bucket: int = BUCKET
    buckets: Buckets = field(init=False)

    def __post_init__(self) -> None:
        self.buckets = Buckets(self.training)

    def program(self, choice: Choice, name: str = "plan") -> Program:
        """The program of these choices in canonical order."""
        instructions = _Run(self, choice).run()
        return Program(name, self.training, self.layout, instructions, self.cluster.name, dict(self.training.parameters))

    def bytes(self, value: Value) -> np.ndarray:
        return self.pricer.slot_bytes(self.pricer.slot(value))

    def method(self, op: str, sources: tuple[Value, ...], targets: tuple[Value, ...]) -> str | None:
        """The cheapest method of one message."""
        if op not in COLLECTIVES:
            return None
        before = sum(self.bytes(v) for v in sources)
        after = sum(self.bytes(v) for v in targets)
        shares = {"reduce_scatter": after, "all_to_all": np.maximum(before, after)}.get(op, before)
        total = float(np.max(shares) if op == "all_reduce" else np.sum(shares))
        return best_method(op, shares, total, self.cluster)[0]


class _Run:
    """One scheduling run: what has been emitted, what values are at hand, what waits."""

    def __init__(self, scheduler: Scheduler, choice: Choice) -> None:
        self.s, self.choice = scheduler, choice
        self.training = scheduler.training
        self.out: list[Instruction] = []
        self.have: dict[str, list[Placement]] = {}
        self.gradients: list[_Waiting] = []
        self.updated: list[_Waiting] = []
        self.gathers = self._gathers()

    def run(self) -> list[Instruction]:
        section = "forward"
        for k, node in enumerate(self.training.nodes):
            if node.section != section:
                self.flush(self.gradients, section)
                section = node.section
            self.node(k, node)
        self.flush(self.gradients, section)
        self.flush(self.updated, "update")
        for tensor in self.training.tensors.values():  # a parameter that nothing reads is still loaded
            if tensor.kind in ("param", "state") and tensor.name not in self.have and tensor.name in self.training.updates:
                self.load(tensor.name, R, "forward", ())
        return self.out

    # -- loads ------------------------------------------------------------------------

    def _gathers(self) -> list[str]:
        """Parameters that must be converted before they are read, in the order of their first readers."""
        found: dict[str, None] = {}
        for node in self.training.nodes:
            for name in node.inputs:
                held = self.choice.held.get(name)
                if held is not None and any(not provides((held,), p) for p in self.choice.offered[name]):
                    found.setdefault(name)
        return list(found)

    def load(self, name: str, placement: Placement, section: str, repeat: Turn) -> None:
        if placement in self.have.get(name, ()):
            return
        kind = LOADED[self.training.tensors[name].kind]
        self.out.append(Instruction(kind, (), (Value(name, (placement,)),), section, repeat=self.turn(name, repeat)))
        self.have.setdefault(name, []).append(placement)

    def turn(self, name: str, repeat: Turn) -> Turn:
        """A load stands in the turn its tensor belongs to, if that is the turn at hand."""
        return repeat if repeat and name.startswith(f"{repeat[-1][0]}.{repeat[-1][1]}.") else ()

    def param(self, name: str, section: str, repeat: Turn) -> None:
        """Load a parameter and make what it is offered as; gathers of those that come next join the message."""
        self.load(name, self.choice.held[name], section, repeat)
        if name not in self.gathers:
            return
        group: list[_Waiting] = []
        size = 0
        while self.gathers and (not group or size < self.s.bucket):
            following = self.gathers[0]
            self.load(following, self.choice.held[following], section, repeat)
            for wait in self.waits(following, self.choice.held[following], self.choice.offered[following]):
                group.append(wait)
                size += wait.bytes
            self.gathers.pop(0)
        self.flush(group, section, repeat)

    # -- calls ------------------------------------------------------------------------

    def node(self, k: int, node: Node) -> None:
        rule = self.choice.rules[k]
        for name, placement in zip(node.inputs, rule.inputs, strict=True):
            self.read(name, placement, node)
        self.out.append(Space.instruction(node, rule))
        for name, placement in zip(node.outputs, rule.outputs, strict=True):
            self.have.setdefault(name, []).append(placement)
            self.made(name, placement, node)

    def read(self, name: str, placement: Placement, node: Node) -> None:
        """See that a value is at hand: load it, or cut it from what is offered."""
        kind = self.training.tensors[name].kind
        if kind in ("input", "state", "seed"):
            self.load(name, placement, node.section, node.repeat)
        elif name in self.choice.held and name not in self.have:
            self.param(name, node.section, node.repeat)
        if placement not in self.have[name]:
            self.convert((_Waiting(Value(name, (R,)), Value(name, (placement,)), 0),), node.section, node.repeat)

    def made(self, name: str, placement: Placement, node: Node) -> None:
        offer = self.choice.offered.get(name)
        if name in self.s.buckets.updated:
            old = node.inputs[0]
            self.updated += self.waits(name, placement, (self.choice.held[old],))
        elif offer is not None and name in self.s.buckets.gradients:
            self.gradients += self.waits(name, placement, offer)
            if sum(w.bytes for w in self.gradients) >= self.s.bucket:
                self.flush(self.gradients, node.section, node.repeat)
        elif offer is not None:
            for wait in self.waits(name, placement, offer):
                self.convert((wait,), node.section, node.repeat)

    # -- conversions ------------------------------------------------------------------

    def waits(self, name: str, source: Placement, offer: Offer) -> list[_Waiting]:
        found = steps(source, offer, lambda p, q: self.seconds(name, p, q))
        assert found is not None, f"{name}: {offer} can't be made from {source}"
        size = self.training.tensors[name].bytes
        return [_Waiting(Value(name, (p,)), Value(name, (q,)), size) for p, q in found[1]]

    def seconds(self, name: str, source: Placement, target: Placement) -> float:
        kind = conversion(source, target)
        assert kind is not None
        return float(self.s.pricer.price(_message(kind, [_Waiting(Value(name, (source,)), Value(name, (target,)), 0)])).seconds.max())

    def flush(self, waiting: list[_Waiting], section: str, repeat: Turn = ()) -> None:
        """Send what waits: one message per kind of conversion, in the order of first appearance."""
        rest = list(waiting)
        waiting.clear()
        while rest:
            ready = [w for w in rest if w.source.placement[0] in self.have.get(w.source.tensor, ())]
            kind = _kind(ready[0])
            group = [w for w in ready if _kind(w) == kind]
            self.convert(tuple(group), section, repeat)
            rest = [w for w in rest if w not in group]

    def convert(self, group: tuple[_Waiting, ...], section: str, repeat: Turn) -> None:
        kind = _kind(group[0])
        sources, targets = tuple(w.source for w in group), tuple(w.target for w in group)
        method = self.s.method(kind, sources, targets)
        self.out.append(Instruction(kind, sources, targets, section, method=method, repeat=repeat))
        for w in group:
            self.have.setdefault(w.target.tensor, []).append(w.target.placement[0])


def _kind(wait: _Waiting) -> str:
    kind = conversion(wait.source.placement[0], wait.target.placement[0])
    assert kind is not None
    return kind


def _message(kind: str, group: list[_Waiting]) -> Instruction:
    return Instruction(kind, tuple(w.source for w in group), tuple(w.target for w in group))

