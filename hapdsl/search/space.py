"""The choices of a program as a factor graph: a rule per operator call, an offered set per tensor.

Variables and their values:

- for each call, the rule it runs under;
- for each computed tensor that something reads, the offered set (`offers`);
- for each parameter, how it is held and what it is offered as, together.

All prices sit in unary and pairwise factors: the seconds of a call under a rule, per device (priced by the search);
whether an offered set provides what a rule reads; what it costs to make an offered set from what a rule gives. Data is loaded
in any placement for free; optimizer state is held as its update runs.

The sum of all factors, under any prices of the devices that add up to one, is never above the synchronous cost of
the scheduled program: a stage lasts as long as its slowest device, and collectives that the scheduler may put into one message are
priced here without latency, at the share of one device. Cost: O(calls × rules² + tensors × offers²).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.collectives import best_method
from hapdsl.cost.pricing import Pricer
from hapdsl.graph.program import Instruction, Layout, Value, conversion
from hapdsl.graph.training import Node, TrainingGraph
from hapdsl.search.factors import FactorGraph
from hapdsl.search.messages import Buckets, frictionless
from hapdsl.search.offers import Offer, offers, provides, steps
from hapdsl.theory.placements import Placement, R, S
from hapdsl.theory.rules import Rule

Held = tuple[Placement, Offer]
Allow = Callable[[Node, Rule], bool]
AllowHeld = Callable[[str, Placement], bool]


@dataclass(frozen=True)
class Choice:
    """One value per variable, spelled out: what the scheduler turns into a program.

    `rules[k]` is the rule of call k, `offered[t]` the set a tensor is offered as, `held[p]` a parameter's placement.
    """

    rules: tuple[Rule, ...]
    offered: Mapping[str, Offer]
    held: Mapping[str, Placement]


@dataclass
class Restriction:
    """A part of the space: `allow(call, rule)`, `allow_held(param, placement)`, both True everywhere by default."""

    allow: Allow = lambda node, rule: True
    allow_held: AllowHeld = lambda param, placement: True


class Space:
    """The choices of one training graph under given shares on one cluster (one mesh axis).

    `graph` is the factor graph; `choice(assignment)` reads an assignment. Devices with equal speeds and shares
    are one component of the prices; `groups[k]` lists the devices of component k. Under the overlapped objective communication
    is one more component: a step takes at least as long as any device computes, and as all collectives take together, so at least
    any mean of these.
    """

    def __init__(
        self,
        training: TrainingGraph,
        layout: Layout,
        cluster: Cluster,
        restriction: Restriction | None = None,
        objective: str = "sync",
    ) -> None:
        self.training, self.layout, self.cluster, self.objective = training, layout, cluster, objective
        self.restriction = restriction or Restriction()
        self.pricer = Pricer(training, layout, cluster)
        self.buckets = Buckets(training)
        self.light = frictionless(cluster)
        self.biggest = int(np.sum([self._shares(c) for c in training.classes], axis=0).argmax()) if training.classes else 0
        self.groups = self._alike()
        self.graph = FactorGraph()
        self.rules: list[tuple[Rule, ...]] = []
        self.offers: dict[str, tuple[Offer, ...]] = {}
        self.holds: dict[str, tuple[Held, ...]] = {}
        self._prices: dict[tuple[object, ...], float] = {}
        self._tables: dict[tuple[object, ...], np.ndarray] = {}
        self._build()

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

    # -- variables -------------------------------------------------------------------

    def _build(self) -> None:
        training = self.training
        self.rule_variable: list[int] = []
        self.offer_variable: dict[str, int] = {}
        self.update_of = {node.inputs[0]: k for k, node in enumerate(training.nodes) if node.section == "update"}
        for k, node in enumerate(training.nodes):
            rules = tuple(r for r in node.rules if self._possible(node, r) and self.restriction.allow(node, r))
            self.rules.append(rules or node.rules[:1])
            self.rule_variable.append(self.graph.variable(f"rule {node.outputs[0]}", len(self.rules[k])))
        for name, tensor in training.tensors.items():
            readers = training.readers[name]
            if not readers or tensor.kind in ("input", "state", "seed"):
                continue
            readable = tuple(sorted({r.inputs[i] for k in readers for r in self.rules[k] for i in self._places(k, name)}))
            found = offers(readable, len(readers))
            if tensor.kind in ("param", "frozen", "buffer"):
                held = [p for p in (R, *(S(d) for d in training.shardable(name))) if self.restriction.allow_held(name, p)]
                pairs = tuple((h, o) for h in held for o in found if steps(h, o, lambda a, b: 0.0) is not None)
                self.holds[name] = pairs
                self.offer_variable[name] = self.graph.variable(f"held {name}", len(pairs))
            else:
                self.offers[name] = found
                self.offer_variable[name] = self.graph.variable(f"offer {name}", len(found))
        for k in range(len(training.nodes)):
            self._node(k)
        for name in self.holds:
            self._param(name)
        self._messages()

    def _places(self, k: int, name: str) -> list[int]:
        return [i for i, t in enumerate(self.training.nodes[k].inputs) if t == name]

    def _possible(self, node: Node, rule: Rule) -> bool:
        """Every shard in whole units of its class; data as it can be loaded; the seed replicated."""
        for names, placements in ((node.inputs, rule.inputs), (node.outputs, rule.outputs)):
            for name, p in zip(names, placements, strict=True):
                tensor = self.training.tensors[name]
                if p.kind == "S":
                    cls = tensor.classes[p.dim]
                    if cls is None or self.training.classes[cls].units == 1:
                        return False
                if p.kind == "P" and tensor.kind in ("input", "state", "seed", "param", "frozen", "buffer") and names is node.inputs:
                    return False
        return True

    # -- factors ---------------------------------------------------------------------

    def _node(self, k: int) -> None:
        node = self.training.nodes[k]
        variable = self.rule_variable[k]
        self.graph.priced_factor((variable,), self._with_communication(self._compute(k)))
        for name in dict.fromkeys(node.inputs):
            if name in self.offer_variable:
                offered = self.offers.get(name) or tuple(o for _, o in self.holds[name])
                places = self._places(k, name)
                wanted = tuple(tuple(r.inputs[i] for i in places) for r in self.rules[k])
                self._add((variable, self.offer_variable[name]), ("reads", wanted, offered), self._reads)
        for j, name in enumerate(node.outputs):
            if name in self.offers:
                given = tuple(r.outputs[j] for r in self.rules[k])
                key = ("gives", given, self.offers[name], self._shape(name), self.buckets.joins(name))
                self._add((variable, self.offer_variable[name]), key, self._gives_for(name))

    def _add(self, scope: tuple[int, int], key: tuple, make: Callable[[tuple], np.ndarray]) -> None:
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = make(key)
            table.flags.writeable = False
        if key[0] == "gives":
            self._communicate(scope, table)
        else:
            self.graph.factor(scope, table)

    def _communicate(self, scope: tuple[int, ...], table: np.ndarray) -> None:
        """Seconds of collectives: they add to the synchronous cost; under overlap they are a component of their own."""
        if self.objective == "sync":
            self.graph.factor(scope, table)
        else:
            forbidden = np.where(np.isinf(table), np.inf, 0.0)
            self.graph.priced_factor(scope, np.stack([*[forbidden] * len(self.groups), table]))

    def _with_communication(self, seconds: np.ndarray) -> np.ndarray:
        return seconds if self.objective == "sync" else np.concatenate([seconds, np.zeros((1, *seconds.shape[1:]))])

    def _compute(self, k: int) -> np.ndarray:
        node = self.training.nodes[k]
        first = [group[0] for group in self.groups]
        return np.stack([self.pricer.price(self.instruction(node, r)).seconds[first] for r in self.rules[k]], axis=1)

    @staticmethod
    def instruction(node: Node, rule: Rule) -> Instruction:
        """The compute instruction of a call under a rule."""
        inputs = tuple(Value(n, (p,)) for n, p in zip(node.inputs, rule.inputs, strict=True))
        outputs = tuple(Value(n, (p,)) for n, p in zip(node.outputs, rule.outputs, strict=True))
        return Instruction(node.op, inputs, outputs, node.section, node, repeat=node.repeat)

    @staticmethod
    def _reads(key: tuple) -> np.ndarray:
        _, wanted, offered = key
        return np.array([[0.0 if all(provides(o, p) for p in ps) else np.inf for o in offered] for ps in wanted])

    def _gives_for(self, name: str) -> Callable[[tuple], np.ndarray]:
        return lambda key: self._gives(key[1], key[2], name)

    def _gives(self, given: Sequence[Placement], offered: Sequence[Offer], name: str) -> np.ndarray:
        table = np.full((len(given), len(offered)), np.inf)
        for a, source in enumerate(given):
            for b, offer in enumerate(offered):
                found = steps(source, offer, lambda p, q: self.step_seconds(name, p, q))
                if found is not None:
                    table[a, b] = found[0]
        return table

    def _param(self, name: str) -> None:
        variable = self.offer_variable[name]
        pairs = self.holds[name]
        costs = [steps(h, o, lambda p, q: self.step_seconds(name, p, q)) for h, o in pairs]
        self._communicate((variable,), np.array([c[0] if c else np.inf for c in costs]))
        update = self.update_of.get(name)
        if update is not None:
            new = self.training.updates[name]
            table = np.full((len(self.rules[update]), len(pairs)), np.inf)
            for a, rule in enumerate(self.rules[update]):
                for b, (held, _) in enumerate(pairs):
                    found = steps(rule.outputs[0], (held,), lambda p, q: self.step_seconds(new, p, q))
                    if found is not None:
                        table[a, b] = found[0]
            self._communicate((self.rule_variable[update], variable), table)

    # -- messages that must be sent at all -------------------------------------------

    def _messages(self) -> None:
        """One flag per kind of shared message: whoever needs such a message needs the flag, and the flag costs its latency once.

        Without them, the latency of grouped collectives would be missing from the bound altogether.
        """
        for kind, tensors in (
            ("all_reduce", self.buckets.gradients),
            ("reduce_scatter", self.buckets.gradients),
            ("all_gather", self.buckets.params | self.buckets.updated),
        ):
            latency = self._latency(kind)
            if latency <= 0.0:
                continue
            flag: int | None = None
            for scope, table in self._needs(kind, tensors):
                if table.any():
                    if flag is None:
                        flag = self.graph.variable(f"message {kind}", 2)
                        self._communicate((flag,), np.array([0.0, latency]))
                    masked = np.stack([np.where(table, np.inf, 0.0), np.zeros(table.shape)], axis=-1)
                    self.graph.factor((*scope, flag), masked)

    def _latency(self, kind: str) -> float:
        """Seconds of an empty message; 0 where a measured curve takes the formula's place."""
        if any(name.startswith(kind) for name in self.cluster.measured):
            return 0.0
        return best_method(kind, np.zeros(len(self.cluster)), 0.0, self.cluster)[1]

    def _needs(self, kind: str, tensors: set[str]) -> list[tuple[tuple[int, ...], np.ndarray]]:
        """Where the choices of some variables can't do without a message of `kind`: (variables, bool table)."""

        def needed(source: Placement, offer: Offer) -> bool:
            allowed = steps(source, offer, lambda p, q: 0.0)
            without = steps(source, offer, lambda p, q: np.inf if conversion(p, q) == kind else 0.0)
            return allowed is not None and (without is None or without[0] == np.inf)

        found: list[tuple[tuple[int, ...], np.ndarray]] = []
        for name in sorted(tensors):
            if name in self.offers:
                k = self.training.producer[name]
                j = self.training.nodes[k].outputs.index(name)
                table = [[needed(r.outputs[j], o) for o in self.offers[name]] for r in self.rules[k]]
                found.append(((self.rule_variable[k], self.offer_variable[name]), np.array(table)))
            if name in self.holds:
                pairs = self.holds[name]
                found.append(((self.offer_variable[name],), np.array([needed(h, o) for h, o in pairs])))
                update = self.update_of.get(name)
                if update is not None:
                    rows = [[needed(r.outputs[0], (h,)) for h, _ in pairs] for r in self.rules[update]]
                    found.append(((self.rule_variable[update], self.offer_variable[name]), np.array(rows)))
        return found

    # -- prices of collectives ---------------------------------------------------------

    def _shape(self, name: str) -> tuple[object, ...]:
        tensor = self.training.tensors[name]
        return (tensor.shape, tensor.dtype, tensor.classes)

    def step_seconds(self, name: str, source: Placement, target: Placement) -> float:
        """Seconds of one collective, by its cheapest method; without latency where it may share a message."""
        joins = self.buckets.joins(name)
        key = (self._shape(name), source, target, joins)
        found = self._prices.get(key)
        if found is None:
            kind = conversion(source, target)
            assert kind is not None
            before, after = (self.pricer.slot_bytes(self.pricer.slot(Value(name, (p,)))) for p in (source, target))
            shares = {"reduce_scatter": after, "all_to_all": np.maximum(before, after)}.get(kind, before)
            total = float(shares.max() if kind == "all_reduce" else shares.sum())
            if joins:  # what shares a message is priced at the largest share of all, which is one device's
                shares = np.full_like(shares, shares[self.biggest])
            found = self._prices[key] = self.cheapest(kind, shares, total, joins)
        return found

    def cheapest(self, kind: str, shares: np.ndarray, total: float, joins: bool) -> float:
        """Seconds by the cheapest method; `joins`: without latency."""
        return best_method(kind, shares, total, self.light if joins else self.cluster)[1]

    # -- reading an assignment ----------------------------------------------------------

    def choice(self, assignment: Sequence[int]) -> Choice:
        """The choices that an assignment stands for."""
        rules = tuple(self.rules[k][assignment[v]] for k, v in enumerate(self.rule_variable))
        offered = {n: os[assignment[self.offer_variable[n]]] for n, os in self.offers.items()}
        held = {}
        for name, pairs in self.holds.items():
            held[name], offered[name] = pairs[assignment[self.offer_variable[name]]]
        return Choice(rules, offered, held)
