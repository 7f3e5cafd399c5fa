"""What the choices of a program are, whatever the shares: variables, their values, and what excludes what.

One Structure serves all shares and clusters of a search. Calls and tensors that are alike (the same operator over shapes, classes
and readers that are the same, as in each layer of a transformer) share a kind, and every table is made once per kind.
Cost: O(calls) look-ups and O(kinds × rules × offers) work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hapdsl.graph.training import Node, TrainingGraph
from hapdsl.search.eliminate import Order, order
from hapdsl.search.factors import FactorGraph
from hapdsl.search.messages import Buckets
from hapdsl.search.offers import Offer, feasible, offers, provides
from hapdsl.theory.placements import Placement, R, S
from hapdsl.theory.rules import Rule

Held = tuple[Placement, Offer]
Allow = Callable[[Node, Rule], bool]
AllowHeld = Callable[[str, Placement], bool]
LOADED_ONLY = ("input", "state", "seed")
PARAMS = ("param", "frozen", "buffer")
SHARED_MESSAGES = ("all_reduce", "reduce_scatter", "all_gather")


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


@dataclass(frozen=True)
class Gives:
    """Call `node` makes tensor `name` (its output `output`): a price over (rule, offered set), by `kind`."""

    scope: tuple[int, int]
    name: str
    kind: int
    given: tuple[Placement, ...]


class Structure:
    """Variables and exclusions of one training graph's choices (see the module).

    `base` is the factor graph without prices. `rules[k]` are the values of call k's variable `rule_variable[k]`; `offers[t]` those of
    a computed tensor, `holds[p]` the (held, offered) pairs of a parameter, in `offer_variable`. `gives`, `params` and `updates` say
    where prices of collectives belong. `messages` are the kinds of shared message whose latency is to count; each doubles tables,
    and one that weighs nothing is better left out, which only lowers the bound.
    """

    def __init__(
        self, training: TrainingGraph, restriction: Restriction | None = None, messages: tuple[str, ...] = SHARED_MESSAGES
    ) -> None:
        self.training, self.messages = training, messages
        self.restriction = restriction or Restriction()
        self.buckets = Buckets(training)
        self.base = FactorGraph()
        self.rules: list[tuple[Rule, ...]] = []
        self.rule_variable: list[int] = []
        self.node_kind: list[int] = []
        self.offers: dict[str, tuple[Offer, ...]] = {}
        self.holds: dict[str, tuple[Held, ...]] = {}
        self.offer_variable: dict[str, int] = {}
        self.gives: list[Gives] = []
        self.update_of = {node.inputs[0]: k for k, node in enumerate(training.nodes) if node.section == "update"}
        self._numbers: dict[object, int] = {}
        self._tables: dict[tuple[object, ...], np.ndarray] = {}
        self._rules_of: dict[tuple[object, ...], tuple[Rule, ...]] = {}
        self._readable: dict[object, tuple[Placement, ...]] = {}
        self.tensor_kind = {name: self._number(self._tensor_key(name)) for name in training.tensors}
        self._call_variables()
        self._tensor_variables()
        self._exclusions()
        self._messages()

    @cached_property
    def order(self) -> Order:
        """The elimination order: prices are on the same scopes, so it is the same for all shares."""
        graph = self.base.copy()
        for give in self.gives:
            graph.factor(give.scope, np.zeros([self.base.sizes[v] for v in give.scope]))
        return order(graph)

    # -- kinds -----------------------------------------------------------------------

    def _number(self, key: object) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _tensor_key(self, name: str) -> tuple[object, ...]:
        tensor = self.training.tensors[name]
        return ("tensor", tensor.shape, tensor.dtype, tensor.classes, tensor.kind, self.buckets.joins(name))

    def _call_key(self, node: Node) -> tuple[object, ...]:
        instance = node.instance
        same = tuple(node.inputs.index(t) for t in node.inputs)  # which operands are one tensor
        kinds = tuple(self.tensor_kind[t] for t in (*node.inputs, *node.outputs))
        plain = tuple((k, str(v)) for k, v in instance.attributes.items() if k != "key")
        return (node.op, plain, tuple(g.operand for g in instance.given), kinds, same, node.section)

    # -- variables -------------------------------------------------------------------

    def _call_variables(self) -> None:
        for node in self.training.nodes:
            key = self._call_key(node)
            possible = self._rules_of.get(key)
            if possible is None:
                possible = self._rules_of[key] = tuple(r for r in node.rules if self._possible(node, r))
            rules = tuple(r for r in possible if self.restriction.allow(node, r)) or possible[:1]
            self.rules.append(rules)
            self.node_kind.append(self._number((key, rules)))
            self.rule_variable.append(self.base.variable(f"rule {node.outputs[0]}", len(rules)))

    def _possible(self, node: Node, rule: Rule) -> bool:
        """Every shard in whole units of its class; what is loaded as it can be loaded."""
        loaded = (*LOADED_ONLY, *PARAMS)
        for names, placements in ((node.inputs, rule.inputs), (node.outputs, rule.outputs)):
            for name, p in zip(names, placements, strict=True):
                tensor = self.training.tensors[name]
                if p.kind == "S":
                    cls = tensor.classes[p.dim]
                    if cls is None or self.training.classes[cls].units == 1:
                        return False
                if p.kind == "P" and tensor.kind in loaded and names is node.inputs:
                    return False
        return True

    def _tensor_variables(self) -> None:
        training = self.training
        for name, tensor in training.tensors.items():
            readers = training.readers[name]
            if not readers or tensor.kind in LOADED_ONLY:
                continue
            found = offers(self._read_as(name, readers), len(readers))
            if tensor.kind in PARAMS:
                held = [p for p in (R, *(S(d) for d in training.shardable(name))) if self.restriction.allow_held(name, p)]
                self.holds[name] = tuple((h, o) for h in held for o in found if feasible(h, o))
                self.offer_variable[name] = self.base.variable(f"held {name}", len(self.holds[name]))
            else:
                self.offers[name] = found
                self.offer_variable[name] = self.base.variable(f"offer {name}", len(found))

    def _read_as(self, name: str, readers: tuple[int, ...]) -> tuple[Placement, ...]:
        """All placements that some reader's rule takes, sorted."""
        key = tuple((self.node_kind[k], self.places(k, name)) for k in readers)
        found = self._readable.get(key)
        if found is None:
            taken = {r.inputs[i] for k in readers for r in self.rules[k] for i in self.places(k, name)}
            found = self._readable[key] = tuple(sorted(taken))
        return found

    def places(self, k: int, name: str) -> tuple[int, ...]:
        """The operand positions at which call k reads a tensor."""
        return tuple(i for i, t in enumerate(self.training.nodes[k].inputs) if t == name)

    # -- exclusions ------------------------------------------------------------------

    def table(self, key: tuple[object, ...], make: Callable[[], np.ndarray]) -> np.ndarray:
        """A read-only table, made once per key."""
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = make()
            found.flags.writeable = False
        return found

    def _exclusions(self) -> None:
        """A rule reads only what is offered; and where prices of what it gives will stand."""
        for k, node in enumerate(self.training.nodes):
            variable = self.rule_variable[k]
            for name in dict.fromkeys(node.inputs):
                if name in self.offer_variable:
                    offered = self.offers.get(name) or tuple(o for _, o in self.holds[name])
                    places = self.places(k, name)
                    key = ("reads", self.node_kind[k], places, offered)
                    table = self.table(key, lambda k=k, places=places, offered=offered: self._reads(k, places, offered))  # type: ignore[misc]
                    self.base.factor((variable, self.offer_variable[name]), table)
            for j, name in enumerate(node.outputs):
                if name in self.offers:
                    kind = self._number(("gives", self.node_kind[k], j, self.offers[name], self.tensor_kind[name]))
                    given = tuple(r.outputs[j] for r in self.rules[k])
                    self.gives.append(Gives((variable, self.offer_variable[name]), name, kind, given))

    def _reads(self, k: int, places: tuple[int, ...], offered: tuple[Offer, ...]) -> np.ndarray:
        return np.array(
            [[0.0 if all(provides(o, r.inputs[i]) for i in places) else np.inf for o in offered] for r in self.rules[k]]
        )

    # -- messages that must be sent at all ---------------------------------------------

    def _messages(self) -> None:
        """One flag per kind of shared message: whoever can't do without such a message needs the flag, whose price is its latency.

        Without flags, the latency of grouped collectives would be missing from the bound altogether.
        """
        self.flags: dict[str, int] = {}
        parts = {
            "all_reduce": self.buckets.gradients,
            "reduce_scatter": self.buckets.gradients,
            "all_gather": self.buckets.params | self.buckets.updated,
        }
        for kind in self.messages:
            for scope, table in self._needs(kind, parts[kind]):
                if not table.any():
                    continue
                if kind not in self.flags:
                    self.flags[kind] = self.base.variable(f"message {kind}", 2)
                key = ("flag", table.shape, table.tobytes())
                masked = self.table(key, lambda t=table: np.stack([np.where(t, np.inf, 0.0), np.zeros(t.shape)], axis=-1))  # type: ignore[misc]
                self.base.factor((*scope, self.flags[kind]), masked)

    def _needs(self, kind: str, tensors: set[str]) -> list[tuple[tuple[int, ...], np.ndarray]]:
        """Where the choices of some variables can't do without a message of `kind`: (variables, bool table)."""
        found: list[tuple[tuple[int, ...], np.ndarray]] = []
        for give in self.gives:
            if give.name in tensors:
                offered = self.offers[give.name]
                table = self.table(
                    ("needs", kind, give.kind),
                    lambda give=give, offered=offered: np.array([[_needed(kind, p, o) for o in offered] for p in give.given]),  # type: ignore[misc]
                )
                found.append((give.scope, table))
        for name, pairs in self.holds.items():
            if name in tensors:
                table = self.table(("needs held", kind, pairs), lambda pairs=pairs: np.array([_needed(kind, h, o) for h, o in pairs]))  # type: ignore[misc]
                found.append(((self.offer_variable[name],), table))
                update = self.update_of.get(name)
                if update is not None:
                    rules = self.rules[update]
                    table = self.table(
                        ("needs new", kind, pairs, rules),
                        lambda pairs=pairs, rules=rules: np.array([[_needed(kind, r.outputs[0], (h,)) for h, _ in pairs] for r in rules]),  # type: ignore[misc]
                    )
                    found.append(((self.rule_variable[update], self.offer_variable[name]), table))
        return found

    # -- reading an assignment ----------------------------------------------------------

    def choice(self, assignment: tuple[int, ...]) -> Choice:
        """The choices that an assignment stands for."""
        rules = tuple(rules[assignment[v]] for rules, v in zip(self.rules, self.rule_variable, strict=True))
        offered = {n: os[assignment[self.offer_variable[n]]] for n, os in self.offers.items()}
        held = {}
        for name, pairs in self.holds.items():
            held[name], offered[name] = pairs[assignment[self.offer_variable[name]]]
        return Choice(rules, offered, held)


def _needed(kind: str, source: Placement, offer: Offer) -> bool:
    """Can `offer` be made from `source`, but not without a message of `kind`?"""
    return feasible(source, offer) and not feasible(source, offer, without=kind)

