"""What the choices of a program are, whatever the shares: variables, their values, and what excludes what.

One Structure serves all shares and clusters of a search. Calls and tensors that are alike (the same operator over the same shapes and
classes, of tensors that travel alike, as in each layer of a transformer) share a kind, and every table is made once per kind.
Cost: O(calls) look-ups and O(kinds × rules × offers) work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np

from hapdsl.cost.numbers import Numbers
from hapdsl.graph.training import Node, TrainingGraph
from hapdsl.search.carry import AGAIN, KEPT, NEVER, RECOMPUTED, again, is_late
from hapdsl.search.choices import Choice, cheapest_assignment, choice_of
from hapdsl.search.drawn import Drawn
from hapdsl.search.factors import Assignment, FactorGraph
from hapdsl.search.flags import Need, needs, unless_sent
from hapdsl.search.messages import LOADED_ONLY, PARAMS, Buckets
from hapdsl.search.moves import Gives, Move, moves
from hapdsl.search.offers import Offer, feasible, offers, provides
from hapdsl.search.possible import possible
from hapdsl.search.removal import Order, narrowest, width
from hapdsl.search.restriction import NOTHING, Restriction, Wish
from hapdsl.search.serial import Pass
from hapdsl.theory.placements import Placement, R, S
from hapdsl.theory.rules import Rule

Held = tuple[Placement, Offer]


class Structure:
    """Variables and exclusions of one training graph's choices (see the module).

    `base` is the factor graph without prices. `rules[k]` are the values of call k's variable `rule_variable[k]`;
    `offers[t]` those of a computed tensor, `holds[p]` the (held, offered) pairs of a parameter, in `offer_variable`.
    `gives` says where prices of collectives belong. `messages` are the shared messages (of SHARED) whose latency is to
    count by a flag; each doubles tables, and one that weighs nothing is better left out, which only lowers the bound.
    With `carry`, each tensor that is there before the backward pass and may be read in it also says how it gets there: `carries[t]` has a
    word of `hapdsl.search.carry` per value ("" where it isn't needed any more), `twice[k]` says of each value whether call k runs a second
    time. That makes tables larger and never a step shorter, so it is for where memory is short.
    `impossible` names the calls and tensors for which the restriction leaves nothing: then nothing is allowed at all.
    `like` is another structure of the same graph, whose kinds, tables and (where it has the same variables) order are used again.
    `drawn` has lines of the same graph that were made already; they are a large part of what a search holds.
    """

    def __init__(
        self,
        training: TrainingGraph,
        restriction: Restriction | None = None,
        messages: tuple[str, ...] | None = None,
        carry: bool = False,
        like: Structure | None = None,
        drawn: Drawn | None = None,
    ) -> None:
        self.training = training
        self.restriction = restriction or Restriction()
        self.drawn: Drawn = drawn or (Drawn(Numbers(training)) if like is None else like.drawn)
        self.numbers: Numbers = self.drawn.numbers
        self.buckets: Buckets = Buckets(training) if like is None else like.buckets
        self.messages = self.buckets.flagged if messages is None else messages
        self.base = FactorGraph()
        self.rules: list[tuple[Rule, ...]] = []
        self.rule_variable: list[int] = []
        self.twice: list[tuple[bool, ...]] = []
        self.carries: dict[str, tuple[str, ...]] = {}
        self.again = again(training) if carry else NEVER
        self.node_kind: list[int] = []
        self.offers: dict[str, tuple[Offer, ...]] = {}
        self.holds: dict[str, tuple[Held, ...]] = {}
        self.offer_variable: dict[str, int] = {}
        self.gives: list[Gives] = []
        self.impossible: list[str] = []
        self._numbers: dict[object, int] = {} if like is None else like._numbers
        self._tables: dict[tuple[object, ...], np.ndarray] = {} if like is None else like._tables
        self._rules_of: dict[tuple[object, ...], tuple[Rule, ...]] = {} if like is None else like._rules_of
        self._readable: dict[object, tuple[Placement, ...]] = {} if like is None else like._readable
        self.passes: dict[tuple[float, ...], list[Pass]] = {} if like is None else like.passes  # by the calls' seconds
        self.wider: dict[tuple[float, ...], Order] = {}  # orders of the graph with what readers wait for, likewise
        self._known_order = () if like is None or "order" not in like.__dict__ else like.order.variables
        self.tensor_kind = {name: self.number(self._tensor_key(name)) for name in training.tensors}
        self._call_variables()
        self._tensor_variables()
        self._exclusions()
        self._messages()

    @cached_property
    def order(self) -> Order:
        """The elimination order, the narrowest found (`narrowest`): greedy, folding backward onto forward, or with the flags in the end.

        Prices are on the same scopes, so it is the same for all shares.
        """
        graph = self.base.copy()
        for give in self.gives:
            graph.factor(give.scope, np.zeros([self.base.sizes[v] for v in give.scope]))
        if len(self._known_order) == len(graph.sizes):
            return width(graph, self._known_order)
        return self.narrowest(graph)

    def narrowest(self, graph: FactorGraph) -> Order:
        """The narrowest order found for a graph over these variables."""
        return narrowest(graph, self._blocks(), self.flags.values())

    @cached_property
    def moves(self) -> list[Move]:
        return moves(self)

    def _blocks(self) -> list[int]:
        """For each variable the turn of a repeat that it belongs to, forward and backward alike; what is in none comes last."""
        training = self.training
        turns: dict[object, int] = {}
        for node in training.nodes:
            if node.section == "forward" and node.repeat:
                turns.setdefault(node.repeat, len(turns))
        found = [len(turns)] * len(self.base.sizes)
        for k, node in enumerate(training.nodes):
            found[self.rule_variable[k]] = turns.get(node.repeat, len(turns))
        for name, variable in self.offer_variable.items():
            first = next(iter(training.readers[name]), None)
            near = training.producer.get(name, first)
            if near is not None:
                found[variable] = found[self.rule_variable[near]]
        return found

    # -- kinds -----------------------------------------------------------------------

    def number(self, key: object) -> int:
        """The number of a kind: equal keys have one, in all structures that are `like` each other."""
        return self._numbers.setdefault(key, len(self._numbers))

    def converted_in(self, name: str) -> str:
        """The section in which a tensor is converted, in each of its turns: where it is made, or first read if it is loaded. What replaces a
        parameter waits for the end of the step."""
        training = self.training
        if name in self.buckets.updated:
            return "update"
        k = training.producer.get(name, next(iter(training.readers[name]), None))
        return "forward" if k is None else training.nodes[k].section

    def _tensor_key(self, name: str) -> tuple[object, ...]:
        tensor = self.training.tensors[name]
        own = (name, self.wish(name).key()) if name in self.restriction.wishes else None
        return (
            "tensor",
            tensor.shape,
            tensor.dtype,
            tensor.classes,
            tensor.kind,
            self.buckets.group(name),
            self.training.times(self.converted_in(name)),
            own,
        )

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
            every = self._rules_of.get(key)
            if every is None:
                every = self._rules_of[key] = tuple(r for r in node.rules if possible(self.training, node, r))
            allowed = tuple(r for r in every if self.restriction.allow(node, r))
            rules = allowed or every[:1]
            times = (False, True) if allowed and node.outputs[0] in self.again.calls else (False,)
            self.rules.append(rules * len(times))
            self.twice.append(tuple(t for t in times for _ in rules))
            self.node_kind.append(self.number((key, self.rules[-1], len(times))))
            self.rule_variable.append(self._variable("rule", node.outputs[0], len(allowed) * len(times)))

    def _variable(self, what: str, name: str, size: int) -> int:
        """A variable; one that has no value left gets one that is forbidden."""
        variable = self.base.variable(f"{what} {name}", max(1, size))
        if not size:
            self.impossible.append(name)
            self.base.factor((variable,), [np.inf])
        return variable

    def wish(self, name: str) -> Wish:
        return self.restriction.wishes.get(name, NOTHING)

    def _tensor_variables(self) -> None:
        training = self.training
        for name, tensor in training.tensors.items():
            readers, wish = training.readers[name], self.wish(name)
            if tensor.kind in LOADED_ONLY or name in self.buckets.updated or not (readers or wish.made or wish.wanted):
                continue
            operands = sum(len(self.places(k, name)) for k in readers)
            found = offers(self._read_as(name, readers), operands, wish.made, wish.wanted)
            if tensor.kind in PARAMS:
                held = (p for p in (R, *map(S, training.shardable(name))) if self.restriction.allow_held(name, p))
                pairs = tuple((h, o) for h in held for o in found if feasible(h, o) and wish.granted(h, o))
                words = self._words(name, recomputed=False) if pairs else (KEPT,)
                self.holds[name] = (pairs or ((R, (R,)),)) * len(words)
                self.offer_variable[name] = self._variable("held", name, len(pairs) * len(words))
            else:
                words = self._words(name, recomputed=name in self.again.calls)
                self.offers[name] = found * len(words)
                self.offer_variable[name] = self._variable("offer", name, len(found) * len(words))
            if name in self.again.needed:
                count = len(found) if name in self.offers else len(self.holds[name]) // len(words)
                self.carries[name] = tuple(w for w in words for _ in range(count))

    def _words(self, name: str, recomputed: bool) -> tuple[str, ...]:
        """The ways in which a tensor may reach the backward pass, the one that costs nothing first."""
        if name not in self.again.needed:
            return (KEPT,)
        words = (KEPT, AGAIN, RECOMPUTED) if recomputed else (KEPT, AGAIN)
        return words if self.again.needed[name] else ("", *words)

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
            for name in dict.fromkeys(node.inputs):
                if name in self.offer_variable:
                    self._read(k, name)
            for j, name in enumerate(node.outputs):
                if name in self.offers:
                    self._give(k, j, name)
        for name, pairs in self.holds.items():
            new = self.training.updates.get(name)
            if new is not None and self.wish(new) is not NOTHING:
                k, j = self.maker(new)
                held = tuple((h,) for h, _ in pairs)
                self._grant((self.rule_variable[k], self.offer_variable[name]), new, self.given(k, j), held)

    def _read(self, k: int, name: str) -> None:
        offered = self.offers.get(name) or tuple(o for _, o in self.holds[name])
        places, words = self.places(k, name), self.carries.get(name, ())
        late = is_late(self.training, self.training.nodes[k], name)
        # Without `late`: calls of one kind are of one section.
        key = ("reads", self.node_kind[k], places, offered, words)
        table = self.table(key, partial(self._reads, k, places, offered, words, late))
        self.base.factor((self.rule_variable[k], self.offer_variable[name]), table)

    def _give(self, k: int, j: int, name: str) -> None:
        offered, words, given = self.offers[name], self.carries.get(name, ()), self.given(k, j)
        scope = (self.rule_variable[k], self.offer_variable[name])
        kind = self.number(("gives", self.node_kind[k], j, offered, words, self.tensor_kind[name]))
        self.gives.append(Gives(scope, name, kind, given))
        if name in self.again.calls:
            self.base.factor(scope, self.table(("twice", kind), partial(self._runs_twice, k, words)))
        if self.wish(name) is not NOTHING:
            self._grant(scope, name, given, offered)

    def _grant(
        self, scope: tuple[int, int], name: str, given: tuple[Placement, ...], offered: tuple[Offer, ...]
    ) -> None:
        wish = self.wish(name)
        self.base.factor(scope, [[0.0 if wish.granted(p, o) else np.inf for o in offered] for p in given])

    def maker(self, name: str) -> tuple[int, int]:
        """The call that makes a tensor, and which of its outputs it is."""
        k = self.training.producer[name]
        return k, self.training.nodes[k].outputs.index(name)

    def given(self, k: int, j: int) -> tuple[Placement, ...]:
        """What call k gives its j-th output in, under each of its rules."""
        return tuple(r.outputs[j] for r in self.rules[k])

    def _reads(
        self, k: int, places: tuple[int, ...], offered: tuple[Offer, ...], words: tuple[str, ...], late: bool
    ) -> np.ndarray:
        """What is offered must provide what a rule reads, and be there in the backward pass if that is when it is read."""
        fits = np.array([[all(provides(o, r.inputs[i]) for i in places) for o in offered] for r in self.rules[k]])
        if words:
            there = np.array([w != "" for w in words])
            fits &= ~(np.array(self.twice[k]) | late)[:, None] | there
        return np.where(fits, 0.0, np.inf)

    def _runs_twice(self, k: int, words: tuple[str, ...]) -> np.ndarray:
        """A call runs twice if and only if what it makes is recomputed."""
        recomputed = np.array([w == RECOMPUTED for w in words])
        return np.where(np.array(self.twice[k])[:, None] == recomputed, 0.0, np.inf)

    # -- messages that must be sent at all ---------------------------------------------

    def _messages(self) -> None:
        """One flag per shared message: whoever can't do without such a message needs the flag, whose price is its latency.

        Of a message without a flag each operand pays a part of the latency (`hapdsl.search.messages.Parts`), small ones next to nothing.
        """
        self.flags: dict[str, int] = {}
        self.needs: dict[str, list[Need]] = {}
        for kind in self.messages:
            self.needs[kind] = [(scope, table) for scope, table in needs(self, kind) if table.any()]
            for scope, table in self.needs[kind]:
                if kind not in self.flags:
                    self.flags[kind] = self.base.variable(f"message {kind}", 2)
                key = ("flag", table.shape, table.tobytes())
                masked = self.table(key, partial(unless_sent, table))
                self.base.factor((*scope, self.flags[kind]), masked)

    # -- assignments -------------------------------------------------------------------

    def choice(self, assignment: Assignment) -> Choice:
        """The choices that an assignment stands for."""
        return choice_of(self, assignment)

    def assignment(self, choice: Choice) -> Assignment:
        """The cheapest assignment that stands for some choices. Raises ValueError where they lie outside this space."""
        return cheapest_assignment(self, choice)

    def spare(self, assignment: Assignment) -> bool:
        """Does it pay for a message, or for making something again, that nothing needs? Tables allow that, but it is another assignment's program once more."""
        return bool(self.flags or self.carries) and self.assignment(self.choice(assignment)) != assignment
