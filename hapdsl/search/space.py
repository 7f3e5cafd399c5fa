"""The choices of a program as a factor graph: a rule per operator call, an offered set per tensor.

Variables and their values:

- for each call, the rule it runs under;
- for each computed tensor that something reads, the offered set (`offers`);
- for each parameter, how it is held and what it is offered as, together;
- for each kind of message that the scheduler may share, whether one is sent at all.

All prices sit in unary and pairwise factors: the seconds of a call under a rule, per device (priced by the search);
whether an offered set provides what a rule reads; what it costs to make an offered set from what a rule gives. Data is loaded
in any placement for free; optimizer state is held as its update runs.

The sum of all factors, under any prices of the devices that add up to one, is never above the synchronous cost of
the scheduled program: a stage lasts as long as its slowest device, and collectives that may share a message are
priced by their bytes alone, at the share of one device, with the latency of one message of each kind on top.
Cost: O(calls) look-ups and O(kinds of calls and tensors × rules × offers) work.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.collectives import best_method
from hapdsl.cost.pricing import Pricer
from hapdsl.graph.program import Instruction, Layout, Value, conversion
from hapdsl.graph.training import Node, TrainingGraph
from hapdsl.search.messages import frictionless
from hapdsl.search.offers import steps
from hapdsl.search.structure import Choice, Restriction, Structure
from hapdsl.theory.placements import Placement
from hapdsl.theory.rules import Rule


class Space:
    """The choices of one training graph under given shares on one cluster (one mesh axis).

    `graph` is the factor graph; `choice(assignment)` reads an assignment. Devices with equal speeds and shares
    are one component of the prices; `groups[k]` lists the devices of component k. Under the overlapped objective communication
    is one more component: a step takes at least as long as any device computes, and as all collectives take together, so at least
    any mean of these. `structure` may be passed on from another space of the same graph and restriction.
    """

    def __init__(
        self,
        training: TrainingGraph,
        layout: Layout,
        cluster: Cluster,
        restriction: Restriction | None = None,
        objective: str = "sync",
        structure: Structure | None = None,
    ) -> None:
        self.training, self.layout, self.cluster, self.objective = training, layout, cluster, objective
        self.structure = structure or Structure(training, restriction)
        self.pricer = Pricer(training, layout, cluster)
        self.buckets = self.structure.buckets
        self.rules, self.offers, self.holds = self.structure.rules, self.structure.offers, self.structure.holds
        self.rule_variable, self.offer_variable = self.structure.rule_variable, self.structure.offer_variable
        self.light = frictionless(cluster)
        self.biggest = int(np.sum([self._shares(c) for c in training.classes], axis=0).argmax()) if training.classes else 0
        self.groups = self._alike()
        self.graph = self.structure.base.copy()
        self._seconds: dict[tuple[object, ...], float] = {}
        self._tables: dict[object, np.ndarray] = {}
        self._price()

    def _shares(self, cls: str) -> np.ndarray:
        shares = self.layout.shares[cls][(0,)]
        return shares / max(1, int(shares.sum()))

    def _alike(self) -> list[list[int]]:
        kind = {d: k for k, kind in enumerate(self.cluster.kinds()) for d in kind}
        found: dict[tuple[object, ...], list[int]] = {}
        for device in range(len(self.cluster)):
            key = (kind[device], *(int(s[(0,)][device]) for s in self.layout.shares.values()))
            found.setdefault(key, []).append(device)
        return list(found.values())

    # -- factors ---------------------------------------------------------------------

    def _price(self) -> None:
        for k, variable in enumerate(self.rule_variable):
            kind = ("compute", self.structure.node_kind[k])
            if kind not in self._tables:
                self._tables[kind] = self._frozen(self._with_communication(self._compute(k)))
            self.graph.priced_factor((variable,), self._tables[kind])
        for give in self.structure.gives:
            if give.kind not in self._tables:
                costs = [[self._made(give.name, p, o) for o in self.offers[give.name]] for p in give.given]
                self._tables[give.kind] = self._frozen(self._communication(np.array(costs)))
            self._communicate(give.scope, self._tables[give.kind])
        for name in self.holds:
            self._param(name)
        for kind, flag in self.structure.flags.items():
            self._communicate((flag,), self._communication(np.array([0.0, self._latency(kind)])))

    @staticmethod
    def _frozen(table: np.ndarray) -> np.ndarray:
        table = np.ascontiguousarray(table)
        table.flags.writeable = False
        return table

    def _communication(self, seconds: np.ndarray) -> np.ndarray:
        """Seconds of collectives add to the synchronous cost; under overlap they are a component of their own."""
        if self.objective == "sync":
            return seconds
        forbidden = np.where(np.isinf(seconds), np.inf, 0.0)
        return np.stack([*[forbidden] * len(self.groups), seconds])

    def _communicate(self, scope: tuple[int, ...], table: np.ndarray) -> None:
        if self.objective == "sync":
            self.graph.factor(scope, table)
        else:
            self.graph.priced_factor(scope, table)

    def _with_communication(self, seconds: np.ndarray) -> np.ndarray:
        return seconds if self.objective == "sync" else np.concatenate([seconds, np.zeros((1, *seconds.shape[1:]))])

    def _compute(self, k: int) -> np.ndarray:
        """Seconds of call k, float array [components, rules]."""
        node = self.training.nodes[k]
        first = [group[0] for group in self.groups]
        return np.stack([self.pricer.price(self.instruction(node, r)).seconds[first] for r in self.rules[k]], axis=1)

    @staticmethod
    def instruction(node: Node, rule: Rule) -> Instruction:
        """The compute instruction of a call under a rule."""
        inputs = tuple(Value(n, (p,)) for n, p in zip(node.inputs, rule.inputs, strict=True))
        outputs = tuple(Value(n, (p,)) for n, p in zip(node.outputs, rule.outputs, strict=True))
        return Instruction(node.op, inputs, outputs, node.section, node, repeat=node.repeat)

    def _made(self, name: str, source: Placement, offer: tuple[Placement, ...]) -> float:
        found = steps(source, offer, lambda p, q: self.step_seconds(name, p, q))
        return np.inf if found is None else found[0]

    def _param(self, name: str) -> None:
        structure = self.structure
        variable, pairs, kind = self.offer_variable[name], self.holds[name], structure.tensor_kind[name]
        key: tuple[object, ...] = ("held", kind, pairs)
        if key not in self._tables:
            self._tables[key] = self._frozen(self._communication(np.array([self._made(name, h, o) for h, o in pairs])))
        self._communicate((variable,), self._tables[key])
        update = structure.update_of.get(name)
        if update is not None:
            new, rules = self.training.updates[name], self.rules[update]
            key = ("new", kind, pairs, rules)
            if key not in self._tables:
                costs = [[self._made(new, r.outputs[0], (h,)) for h, _ in pairs] for r in rules]
                self._tables[key] = self._frozen(self._communication(np.array(costs)))
            self._communicate((self.rule_variable[update], variable), self._tables[key])

    # -- prices of collectives ---------------------------------------------------------

    def _latency(self, kind: str) -> float:
        """Seconds of an empty message; 0 where a measured curve takes the formula's place."""
        if any(name.startswith(kind) for name in self.cluster.measured):
            return 0.0
        return best_method(kind, np.zeros(len(self.cluster)), 0.0, self.cluster)[1]

    def step_seconds(self, name: str, source: Placement, target: Placement) -> float:
        """Seconds of one collective, by its cheapest method; without latency where it may share a message."""
        key = (self.structure.tensor_kind[name], source, target)
        found = self._seconds.get(key)
        if found is None:
            joins = self.buckets.joins(name)
            kind = conversion(source, target)
            assert kind is not None
            before, after = (self.pricer.slot_bytes(self.pricer.slot(Value(name, (p,)))) for p in (source, target))
            shares = {"reduce_scatter": after, "all_to_all": np.maximum(before, after)}.get(kind, before)
            total = float(shares.max() if kind == "all_reduce" else shares.sum())
            if joins:  # what shares a message is priced at the largest share of all, which is one device's
                shares = np.full_like(shares, shares[self.biggest])
            found = self._seconds[key] = self.cheapest(kind, shares, total, joins)
        return found

    def cheapest(self, kind: str, shares: np.ndarray, total: float, joins: bool) -> float:
        """Seconds by the cheapest method; `joins`: without latency."""
        return best_method(kind, shares, total, self.light if joins else self.cluster)[1]

    # -- reading an assignment ----------------------------------------------------------

    def choice(self, assignment: Sequence[int]) -> Choice:
        """The choices that an assignment stands for."""
        return self.structure.choice(tuple(assignment))

