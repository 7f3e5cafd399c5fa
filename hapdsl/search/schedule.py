"""The canonical scheduler: one order of instructions for any set of choices.

Calls keep the order of the training graph. A parameter is loaded just before its first reader and gathered there,
together with the parameters that are read next, up to a bucket. A computed tensor is converted as soon as it is made.
Gradients on their way to an update wait until a bucket is full or the backward pass ends, and so do updated parameters
on their way back. What isn't kept for the backward pass is made again just before its first reader there. What "optimal" refers to is this order; it is deterministic. Cost: linear in instructions; lines
that were made once are made again by a look-up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property

import numpy as np

from hapdsl.cost.columns import Columns
from hapdsl.cost.evaluate import sync_seconds
from hapdsl.cost.memory import measured
from hapdsl.cost.numbers import Numbered
from hapdsl.cost.overlap import simulated
from hapdsl.cost.pricing import Line
from hapdsl.graph.program import COLLECTIVES, Program
from hapdsl.graph.training import Node
from hapdsl.search.carry import RECOMPUTED
from hapdsl.search.choices import Choice
from hapdsl.search.conversions import Conversions
from hapdsl.search.cuts import cheapest_method
from hapdsl.search.drawn import Message, Trace, Turn, Waiting
from hapdsl.search.messages import BUCKET, LOADED_ONLY
from hapdsl.search.offers import Offer, Step, alone, provides
from hapdsl.theory.placements import Placement, R


class Scheduler:
    """Turns choices into programs for one graph, layout and cluster (those of `conversions`); keeps lines between calls."""

    def __init__(self, conversions: Conversions, bucket: int = BUCKET) -> None:
        self.conversions, self.bucket = conversions, bucket
        self.training, self.cluster, self.pricer = conversions.training, conversions.cluster, conversions.pricer
        self.numbers = self.pricer.numbers
        self.layout, self.buckets, self.wish = conversions.layout, conversions.buckets, conversions.structure.wish
        self.drawn = conversions.structure.drawn
        # By ids; `drawn` keeps what has them, or it is kept here.
        self._waits: dict[tuple[str, int, int], tuple[Placement, Offer, tuple[Waiting, ...]]] = {}
        self._methods: dict[tuple[object, ...], str | None] = {}
        self._last: tuple[Choice, list[Numbered], Columns] | None = None

    def program(self, choice: Choice, name: str = "plan") -> Program:
        """The program of these choices in canonical order."""
        numbered = self.numbered(choice)
        self.pricer.know(numbered)
        parameters = dict(self.training.parameters)
        return Program(
            name, self.training, self.layout, [line.instruction for line in numbered], self.cluster.name, parameters
        )

    def lines(self, choice: Choice) -> list[Line]:
        """The same, line by line with prices."""
        return [self.pricer.priced(line) for line in self.numbered(choice)]

    def numbered(self, choice: Choice) -> list[Numbered]:
        """The same without prices."""
        return self._at_hand(choice)[1]

    def columns(self, choice: Choice) -> Columns:
        """The same as columns."""
        return self._at_hand(choice)[2]

    def _at_hand(self, choice: Choice) -> tuple[Choice, list[Numbered], Columns]:
        if self._last is None or self._last[0] is not choice:
            numbered = self._numbered(choice)
            self._last = (choice, numbered, Columns(numbered, self.pricer))
        return self._last

    def _numbered(self, choice: Choice) -> list[Numbered]:
        """The lines, of which shares only change the methods of messages, and the way to a set of two placements.

        Where such a choice was scheduled before, and every kind of tensor goes the same ways, only methods are looked for again. All else that a
        run looks at is in the key: the choice itself, by the ids of what was chosen, the bucket, and what a person wished.
        """
        wishes = self.conversions.structure.restriction.wishes
        key = (
            self.bucket,
            id(wishes) if wishes else 0,
            _ids(choice.rules),
            *(side for d in (choice.offered, choice.held) for side in (tuple(d), _ids(d.values()))),
            tuple(choice.carry.items()),
        )
        trace = self.drawn.trace(key)
        if trace is not None and all(self._goes(n, p, o) == steps for n, p, o, steps in trace.routes):
            numbered = trace.numbered.copy()
            for place, message in trace.messages:
                numbered[place] = self.sent(message)
            return numbered
        run = _Run(self, choice)
        numbered = run.run()
        restriction = self.conversions.structure.restriction
        self.drawn.keep(key, Trace(choice, restriction, numbered, list(run.routes.values()), run.messages))
        return numbered

    def _goes(self, name: str, source: Placement, offer: Offer) -> tuple[Step, ...]:
        route = self.conversions.route(name, source, offer)
        assert route is not None, f"{name}: {offer} can't be made from {source}"
        return route[1]

    def seconds(self, choice: Choice, objective: str) -> float:
        """What `hapdsl.cost.evaluate` says of the program of these choices, without making it; overlapped, with each message right behind what
        makes its operands: that is where `hapdsl.search.reorder` puts them."""
        columns = self.columns(choice)
        if objective == "overlap":
            return float(simulated(columns, early=True)[1].max(initial=0.0))
        return sync_seconds(columns)

    def fits(self, choice: Choice) -> bool:
        """Does every device's peak fit into its memory?"""
        if self._roomy:
            return True
        return bool((measured(self.training, self.columns(choice)).peak <= self.cluster.memories).all())

    @cached_property
    def _roomy(self) -> bool:
        """Would every device hold every tensor whole in all placements at once, and a message of them all?"""
        each = sum(t.bytes * (len(t.shape) + 3 + len(self.cluster)) for t in self.training.tensors.values())
        return each <= float(self.cluster.memories.min())

    # -- messages --------------------------------------------------------------------

    def sent(self, message: Message) -> Numbered:
        """One message (or local conversion) by its cheapest method, or the one a person wrote."""
        return self.drawn.sent(message, message.group[0].method or self._method(message))

    def _method(self, message: Message) -> str | None:
        """The cheapest method, looked for once for messages of one shape: layers that are alike send alike."""
        op = message.group[0].kind
        if op not in COLLECTIVES:
            return None
        if message.shape not in self._methods:
            self._methods[message.shape] = cheapest_method(op, message.sources, message.targets, self.pricer)
        return self._methods[message.shape]

    def waits(self, name: str, source: Placement, offer: Offer) -> tuple[Waiting, ...]:
        """The conversions that make `offer` from `source`, in order."""
        key = (name, id(source), id(offer))
        found = self._waits.get(key)
        if found is None:
            steps = self._goes(name, source, offer)
            found = self._waits[key] = (source, offer, tuple(self.wait(name, p, q) for p, q in steps))
        return found[2]

    def wait(self, name: str, source: Placement, target: Placement) -> Waiting:
        return self.drawn.wait(name, source, target, self.wish(name).methods.get(target))


def _ids(objects: Collection[object]) -> bytes:
    """The ids of objects, in a fifth of the memory that a tuple of them takes."""
    return np.fromiter(map(id, objects), np.uint64, len(objects)).tobytes()


class _Run:
    """One scheduling run: what has been emitted, what values are at hand, what waits."""

    def __init__(self, scheduler: Scheduler, choice: Choice) -> None:
        self.s, self.choice = scheduler, choice
        self.training = scheduler.training
        self.kinds = scheduler.conversions.structure.tensor_kind
        self.drawn = scheduler.drawn
        self.out: list[Numbered] = []
        self.messages: list[tuple[int, Message]] = []
        self.routes: dict[tuple[int, int, int], tuple[str, Placement, Offer, tuple[Step, ...]]] = {}
        self.have: dict[str, list[Placement]] = {}
        self.gradients: list[Waiting] = []
        self.updated: list[Waiting] = []
        self.late: set[str] = set()  # what the backward pass has yet to make again
        self.gathers = self._gathers(self.choice.held)

    def run(self) -> list[Numbered]:
        section = "forward"
        self.unread()
        for k, node in enumerate(self.training.nodes):
            if node.section != section:
                self.flush(self.gradients, section)
                if section == "forward":
                    self.let_go()
                section = node.section
            self.node(k, node, node)
        self.flush(self.gradients, section)
        self.flush(self.updated, "update")
        return self.out

    # -- loads ------------------------------------------------------------------------

    def _gathers(self, names: Iterable[str], late: bool = False) -> list[str]:
        """Which of these parameters must be converted before they are read, in the order of their first (late) readers."""
        convert = {
            name
            for name in names
            for held in [self.choice.held[name]]
            if any(p != held and (p in self.asked(name) or not provides((held,), p)) for p in self.choice.offered[name])
        }
        if not convert:
            return []
        nodes = self.training.nodes
        if late:  # what only calls that run twice read, comes last
            nodes = sorted(nodes, key=lambda n: n.section == "forward")
        return [n for n in dict.fromkeys(i for node in nodes for i in node.inputs) if n in convert]

    def asked(self, name: str) -> Offer:
        """Placements that a person wants to see made."""
        return self.s.wish(name).asked

    def load(self, name: str, placement: Placement, section: str, repeat: Turn) -> None:
        if placement not in self.have.get(name, ()):
            self.out.append(self.drawn.load(name, placement, section, self.turn(name, repeat)))
            self.have.setdefault(name, []).append(placement)

    @staticmethod
    def turn(name: str, repeat: Turn) -> Turn:
        """A load stands in the turn its tensor belongs to, if that is the turn at hand."""
        return repeat if repeat and name.startswith(f"{repeat[-1][0]}.{repeat[-1][1]}.") else ()

    def let_go(self) -> None:
        """What isn't kept for the backward pass is down to the placement that it is made again from, or gone."""
        for name, how in self.choice.carry.items():
            self.late.add(name)
            if how == RECOMPUTED:
                self.have[name] = []
            elif name in self.choice.held:
                self.have[name] = [p for p in self.have.get(name, ()) if p == self.choice.held[name]]
            else:
                self.have[name] = [self.source(name)]
        self.gathers += self._gathers(
            [n for n in self.choice.carry if n in self.choice.held and self.have[n]], late=True
        )

    def source(self, name: str) -> Placement:
        """The placement that a computed tensor is made in."""
        k = self.training.producer[name]
        return self.choice.rules[k].outputs[self.training.nodes[k].outputs.index(name)]

    def param(self, name: str, section: str, repeat: Turn) -> None:
        """Load a parameter and make what it is offered as; gathers of those that come next join the message."""
        self.load(name, self.choice.held[name], section, repeat)
        if name not in self.gathers:
            return
        self.gathers.insert(0, self.gathers.pop(self.gathers.index(name)))
        group: list[Waiting] = []
        size = 0
        while self.gathers and (not group or size < self.s.bucket):
            following = self.gathers.pop(0)
            self.late.discard(following)
            held = self.choice.held[following]
            self.load(following, held, section, repeat)
            more = self.waits(following, held, self.choice.offered[following])
            group += more
            size += sum(w.bytes for w in more)
        self.flush(group, section, repeat)

    def unread(self) -> None:
        """Load what a person asks for and no call takes."""
        for name, wish in self.s.conversions.structure.restriction.wishes.items():
            if self.training.readers[name] or name in self.training.producer:
                continue
            held = self.choice.held.get(name)
            for p in wish.asked if held is None else (held,):
                self.load(name, p, "forward", ())
            if held is not None:
                self.flush(list(self.waits(name, held, self.choice.offered[name])), "forward")

    # -- calls ------------------------------------------------------------------------

    def node(self, k: int, node: Node, at: Node) -> None:
        """Call k in the section and turn of call `at`: itself, or the one that it is run again for."""
        rule = self.choice.rules[k]
        for name, placement in zip(node.inputs, rule.inputs, strict=True):
            if placement not in self.have.get(name, ()):
                self.read(name, placement, at)
        self.out.append(self.drawn.call(k, node, rule, at))
        for name, placement in zip(node.outputs, rule.outputs, strict=True):
            self.have.setdefault(name, []).append(placement)
            self.made(name, placement, at)

    def read(self, name: str, placement: Placement, node: Node) -> None:
        """See that a value is at hand: load it, make it again, or cut it from what is offered."""
        kind = self.training.tensors[name].kind
        if kind in LOADED_ONLY:
            for p in (*self.asked(name), R if placement.kind == "P" else placement):
                self.load(name, p, node.section, node.repeat)
        elif name in self.choice.held and (name not in self.have or name in self.late):
            self.late.discard(name)
            self.param(name, node.section, node.repeat)
        elif name in self.late:
            if self.choice.carry[name] == RECOMPUTED:
                self.recompute(name, node)
            else:
                self.late.discard(name)
                self.made(name, self.have[name][0], node)
        if placement not in self.have[name]:
            self.convert((self.s.wait(name, R, placement),), node.section, node.repeat)

    def recompute(self, name: str, at: Node) -> None:
        """Run the call of a tensor again, and before it those of its operands that are gone as well."""
        calls, names = set(), [name]
        while names:
            each = names.pop()
            if each in self.late and self.choice.carry[each] == RECOMPUTED:
                self.late.discard(each)
                calls.add(self.training.producer[each])
                names += self.training.nodes[self.training.producer[each]].inputs
        for k in sorted(calls):
            self.node(k, self.training.nodes[k], at)

    def made(self, name: str, placement: Placement, node: Node) -> None:
        if name in self.s.buckets.updated:
            old = next(n for n in node.inputs if self.training.updates.get(n) == name)
            self.updated += self.waits(name, placement, alone(self.choice.held[old]))
            return
        offer = self.choice.offered.get(name)
        if offer is None:
            return
        waits = self.waits(name, placement, offer)
        # What an update has made again is read at once.
        if name in self.s.buckets.gradients and node.section != "update":
            self.gradients += waits
            if sum(w.bytes for w in self.gradients) >= self.s.bucket:
                self.flush(self.gradients, node.section, node.repeat)
        else:
            for wait in waits:
                self.convert((wait,), node.section, node.repeat)

    # -- conversions ------------------------------------------------------------------

    def waits(self, name: str, source: Placement, offer: Offer) -> tuple[Waiting, ...]:
        """The conversions that make `offer` from `source`, in order; takes note of the way."""
        found = self.s.waits(name, source, offer)
        key = (self.kinds[name], id(source), id(offer))
        if key not in self.routes:
            self.routes[key] = (name, source, offer, tuple((w.source, w.target) for w in found))
        return found

    def flush(self, waiting: list[Waiting], section: str, repeat: Turn = ()) -> None:
        """Send what waits: one message per kind of conversion, in the order of first appearance."""
        rest = list(waiting)
        waiting.clear()
        while rest:
            ready = [w for w in rest if w.source in self.have.get(w.tensor, ())]
            group = [w for w in ready if (w.kind, w.method) == (ready[0].kind, ready[0].method)]
            self.convert(tuple(group), section, repeat)
            sent = set(group)
            rest = [w for w in rest if w not in sent]

    def convert(self, group: tuple[Waiting, ...], section: str, repeat: Turn) -> None:
        message = self.drawn.message(group, section, repeat)
        if message.group[0].kind in COLLECTIVES:
            self.messages.append((len(self.out), message))
        self.out.append(self.s.sent(message))
        for w in group:
            self.have.setdefault(w.tensor, []).append(w.target)
