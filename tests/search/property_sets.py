"""HAP's own search (EuroSys '24, §4) over sets of properties, written anew as a check: no factors, no elimination, no scheduler.

A state is what of the paper's `e | I` holds: a set of (tensor, placement), and how many calls have been made. A call runs under any rule whose
inputs hold; a collective may run at any time on anything that holds. Fused as in §4.5: data is loaded in the placement that its reader wants, and
what follows for free (a slice of a whole, a part of a whole) is never a state of its own. A property that no later call can use
is dropped.

The cost is that of the last synchronisation, and each device's seconds since; a collective waits for the slowest device. Among states with one set
only those are kept that no other is before on every device. Dijkstra by the slowest device's clock. Exponential: for a handful of calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from hapdsl.cluster import Cluster
from hapdsl.cost.pricing import Pricer
from hapdsl.graph.program import METHODS, Instruction, Layout, Value
from hapdsl.graph.training import Node, TrainingGraph
from hapdsl.search.possible import possible
from hapdsl.theory.placements import Placement, R, S
from hapdsl.theory.rules import Rule

from .clocks import Clock, earliest

COLLECTIVES = {
    ("P", "R"): "all_reduce",
    ("P", "S"): "reduce_scatter",
    ("S", "R"): "all_gather",
    ("S", "S"): "all_to_all",
}

Property = tuple[str, Placement]
State = tuple[int, frozenset[Property], tuple[Property, ...]]  # calls made, what holds, how parameters are held


class PropertySets:
    """The search for one graph, layout and cluster; `cheapest()` is the synchronous cost of its best program."""

    def __init__(self, graph: TrainingGraph, layout: Layout, cluster: Cluster) -> None:
        self.graph = graph
        self.pricer = Pricer(graph, layout, cluster)
        self.devices = len(cluster)
        self.rules = [[r for r in node.rules if possible(graph, node, r)] for node in graph.nodes]
        self.popped = 0
        self._seconds: dict[tuple[object, ...], np.ndarray] = {}
        for t in graph.of_kind("state"):
            raise ValueError(f"optimizer state ({t.name}) isn't covered here")

    # -- prices --------------------------------------------------------------------

    def call(self, k: int, rule: Rule) -> np.ndarray:
        """Seconds per device of call k under a rule."""
        key = (k, rule)
        if key not in self._seconds:
            node = self.graph.nodes[k]
            line = Instruction(
                node.op, _values(node.inputs, rule.inputs), _values(node.outputs, rule.outputs), node.section, node
            )
            self._seconds[key] = self.pricer.price(line).seconds
        return self._seconds[key]

    def collective(self, tensor: str, source: Placement, target: Placement) -> float:
        """Seconds of the cheapest method of one collective on one tensor."""
        key = (tensor, source, target)
        if key not in self._seconds:
            kind = COLLECTIVES[source.kind, target.kind]
            sides = _values((tensor,), (source,)), _values((tensor,), (target,))
            lines = [Instruction(kind, *sides, method=m) for m in METHODS[kind]]
            self._seconds[key] = np.array(min(float(self.pricer.price(i).seconds.max()) for i in lines))
        return float(self._seconds[key])

    # -- what may hold ---------------------------------------------------------------

    def wanted(self, k: int, held: tuple[Property, ...]) -> dict[str, set[Placement]]:
        """Per tensor the placements that calls from k on, or the goal, can use."""
        found: dict[str, set[Placement]] = {}
        for j in range(k, len(self.graph.nodes)):
            for rule in self.rules[j]:
                for name, p in zip(self.graph.nodes[j].inputs, rule.inputs, strict=True):
                    found.setdefault(name, set()).add(p)
        for param, p in held:
            if param in self.graph.updates:
                found.setdefault(self.graph.updates[param], set()).add(p)
        return found

    def tidy(self, k: int, holds: set[Property], held: tuple[Property, ...]) -> frozenset[Property]:
        """Without what nothing can use any more, and without what follows for free from a whole."""
        wanted = self.wanted(k, held)
        return frozenset((t, p) for t, p in holds if t in wanted and (p == R or (t, R) not in holds))

    def starts(self) -> Iterator[State]:
        """Each way to hold the parameters."""
        params = [t.name for t in self.graph.of_kind("param", "frozen", "buffer")]
        ways = [[(name, R), *((name, S(d)) for d in self.graph.shardable(name))] for name in params]
        return ((0, self.tidy(0, set(held), held), held) for held in itertools.product(*ways))

    def has(self, holds: frozenset[Property], name: str, p: Placement) -> bool:
        if self.graph.tensors[name].kind in ("input", "seed"):
            return True
        return (name, p) in holds or (name, R) in holds

    def reached(self, state: State) -> bool:
        k, holds, held = state
        news = [(self.graph.updates[t], p) for t, p in held if t in self.graph.updates]
        return k == len(self.graph.nodes) and all(self.has(holds, t, p) for t, p in news)

    # -- the search --------------------------------------------------------------------

    def cheapest(self, late: Callable[[], bool] = lambda: False) -> float:
        """Seconds of the cheapest program. Raises TimeoutError once it is `late`."""
        try:
            total, self.popped = earliest(self.starts(), self.devices, self.moves, self.reached, late)
        except TimeoutError as stopped:
            (self.popped,) = stopped.args
            raise
        return total

    def moves(self, state: State, clock: Clock) -> list[tuple[State, Clock]]:
        k, holds, held = state
        found: list[tuple[State, Clock]] = []
        if k < len(self.graph.nodes):
            node: Node = self.graph.nodes[k]
            for rule in self.rules[k]:
                if all(self.has(holds, n, p) for n, p in zip(node.inputs, rule.inputs, strict=True)):
                    after = set(holds) | set(zip(node.outputs, rule.outputs, strict=True))
                    later = tuple((np.array(clock) + self.call(k, rule)).tolist())
                    found.append(((k + 1, self.tidy(k + 1, after, held), held), later))
        for name, targets in self.wanted(k, held).items():
            for source in [p for t, p in holds if t == name and p != R]:
                for target in {*targets, R} - {source}:
                    if target.kind == "P" or (name, target) in holds:
                        continue
                    together = max(clock) + self.collective(name, source, target)
                    after = {*holds, (name, target)}
                    found.append(((k, self.tidy(k, after, held), held), (together,) * self.devices))
        return found


def _values(names: tuple[str, ...], placements: tuple[Placement, ...]) -> tuple[Value, ...]:
    return tuple(Value(n, (p,)) for n, p in zip(names, placements, strict=True))
