"""The lines that schedules are made of, whatever the shares: each is made once per graph, with its values numbered.

Schedules of one graph are made by the dozen, under other choices and other shares, and have most of their lines in common. They are found
by the identity of rules, placements and conversions, which are kept here so that an id stays theirs: words and numbers hash many
times faster than what they stand for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace

from hapdsl.cost.numbers import Numbered, Numbers
from hapdsl.graph.program import Instruction, Value, conversion
from hapdsl.graph.training import LOADED, Node
from hapdsl.search.choices import Choice
from hapdsl.search.offers import Offer, Step
from hapdsl.search.restriction import Restriction
from hapdsl.theory.placements import Placement
from hapdsl.theory.rules import Rule

TRACES = 32  # choices whose lines are remembered

Turn = tuple[tuple[str, int], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Waiting:
    """A conversion that may wait to share a message with others of its kind; `method` is one that a person wrote."""

    tensor: str
    source: Placement
    target: Placement
    kind: str
    bytes: int
    method: str | None


@dataclass(eq=False, slots=True)
class Message:
    """Conversions that are made by one line, of whichever method. Those of one `shape` take as long."""

    group: tuple[Waiting, ...]
    sources: tuple[Value, ...]
    targets: tuple[Value, ...]
    section: str
    repeat: Turn
    shape: tuple[object, ...]
    numbered: dict[str | None, Numbered] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Trace:
    """The lines of a choice, and all that they depend on beside it: which way each kind of tensor went to what it is offered as
    (`routes`, by an example), and the methods of the messages, which stand at these places."""

    choice: Choice
    restriction: Restriction
    numbered: list[Numbered]
    routes: list[tuple[str, Placement, Offer, tuple[Step, ...]]]
    messages: list[tuple[int, Message]]


class Drawn:
    """All lines that were asked for of one graph, and how the last choices were scheduled."""

    def __init__(self, numbers: Numbers) -> None:
        self.training, self.numbers = numbers.graph, numbers
        self._calls: dict[tuple[object, ...], tuple[Rule, Numbered]] = {}
        self._loads: dict[tuple[object, ...], Numbered] = {}
        self._waits: dict[tuple[object, ...], Waiting] = {}
        self._messages: dict[tuple[object, ...], Message] = {}
        self._traces: dict[Hashable, Trace] = {}

    def call(self, k: int, node: Node, rule: Rule, at: Node) -> Numbered:
        """Call k under a rule: where it stands, or once more for call `at`."""
        key = (k, id(rule)) if at is node else (k, id(rule), at.section, at.repeat)
        found = self._calls.get(key)
        if found is None:
            made = instruction(node, rule)
            if at is not node:
                made = replace(made, section=at.section, repeat=at.repeat)
            found = self._calls[key] = (rule, self.numbers.number(made))
        return found[1]

    def load(self, name: str, placement: Placement, section: str, repeat: Turn) -> Numbered:
        key = (name, placement, section, repeat)
        found = self._loads.get(key)
        if found is None:
            kind = LOADED[self.training.tensors[name].kind]
            made = Instruction(kind, (), (Value(name, (placement,)),), section, repeat=repeat)
            found = self._loads[key] = self.numbers.number(made)
        return found

    def wait(self, name: str, source: Placement, target: Placement, method: str | None) -> Waiting:
        key = (name, source, target, method)
        found = self._waits.get(key)
        if found is None:
            kind = conversion(source, target)
            assert kind is not None, f"nothing turns {name}@{source} into @{target}"
            found = Waiting(name, source, target, kind, self.training.tensors[name].bytes, method)
            self._waits[key] = found
        return found

    def message(self, group: tuple[Waiting, ...], section: str, repeat: Turn) -> Message:
        key = (*map(id, group), section, repeat)
        found = self._messages.get(key)
        if found is None:
            sources = tuple([Value(w.tensor, (w.source,)) for w in group])
            targets = tuple([Value(w.tensor, (w.target,)) for w in group])
            shape = (group[0].kind, self._shapes(sources), self._shapes(targets))
            found = self._messages[key] = Message(group, sources, targets, section, repeat, shape)
        return found

    def _shapes(self, values: Iterable[Value]) -> tuple[int, ...]:
        numbers = self.numbers
        return tuple([numbers.shape_of[numbers.slot(v)] for v in values])

    def sent(self, message: Message, method: str | None) -> Numbered:
        """The line of a message by one method."""
        found = message.numbered.get(method)
        if found is None:
            kind, sources, targets = message.group[0].kind, message.sources, message.targets
            made = Instruction(kind, sources, targets, message.section, method=method, repeat=message.repeat)
            found = message.numbered[method] = self.numbers.number(made)
        return found

    def trace(self, key: Hashable) -> Trace | None:
        return self._traces.get(key)

    def keep(self, key: Hashable, trace: Trace) -> None:
        """Remember a trace, and forget the one that is oldest where there are TRACES."""
        if len(self._traces) >= TRACES:
            del self._traces[next(iter(self._traces))]
        self._traces[key] = trace


def instruction(node: Node, rule: Rule) -> Instruction:
    """The compute instruction of a call under a rule."""
    inputs = tuple(Value(n, (p,)) for n, p in zip(node.inputs, rule.inputs, strict=True))
    outputs = tuple(Value(n, (p,)) for n, p in zip(node.outputs, rule.outputs, strict=True))
    return Instruction(node.op, inputs, outputs, node.section, node, repeat=node.repeat)
