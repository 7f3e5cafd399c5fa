"""What can be asked of a tensor: which of its choices a search makes, and what the values of their variables say.

Several values of a variable may be one option (a parameter's held placement goes with several offered sets), and one
variable may answer two questions.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hapdsl.cost.parts import written
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.diagnostics import error
from hapdsl.lang.near import near
from hapdsl.search.drawn import instruction
from hapdsl.search.offers import Offer
from hapdsl.search.structure import Structure
from hapdsl.theory.placements import Placement
from hapdsl.theory.rules import Rule

NAMED = 8  # tensors that a message lists
CALL, READ, HELD, OFFERED, CARRIED = "call", "read", "held", "offered", "carried"
CARRIES = {"kept": "kept", "again": "made again", "recomputed": "recomputed", "": "not needed"}


@dataclass(frozen=True)
class Option:
    """One way: `placements` is what the tensor is made, held, read or offered as, `text` the line that says it, `values`
    those of the variable that stand for it."""

    placements: tuple[Placement, ...]
    text: str
    values: tuple[int, ...]

    @property
    def shown(self) -> str:
        """The placements, or the text where there are none."""
        return ", ".join(map(str, self.placements)) or self.text


@dataclass(frozen=True)
class Question:
    """A choice about `tensor`: the rule of the call that makes it ("call"), of one that reads it ("read", for what is loaded
    in any placement), how a parameter is held ("held"), what readers are offered ("offered"), how it
    reaches the backward pass ("carried", where memory counts). `of` is the output of the call."""

    kind: str
    tensor: str
    of: str
    variable: int
    options: tuple[Option, ...]


def tensor_named(training: TrainingGraph, name: str) -> str:
    """The tensor of a name (through aliases), or the only one that a pattern (`layer.3.*.w1`) fits or that has such a beginning or end.

    Raises HAP611 for a name of none or of several.
    """
    full = training.resolve(name)
    if full in training.tensors:
        return full
    names = list(training.tensors)
    fitting = [n for n in names if fnmatch.fnmatchcase(n, name)] if set(name) & set("*?[") else []
    fitting = fitting or [n for n in names if n.startswith(f"{name}.") or n.endswith(f".{name}")]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise error(
            "HAP611",
            f"'{training.model}' has no tensor '{name}'",
            help=near(name, names, f"it begins with {', '.join(names[:NAMED])}"),
        )
    more = f" and {len(fitting) - NAMED} more" if len(fitting) > NAMED else ""
    raise error(
        "HAP611",
        f"'{name}' may be {len(fitting)} tensors of '{training.model}'",
        help=f"name one: {', '.join(fitting[:NAMED])}{more}",
    )


def questions(structure: Structure, tensor: str) -> list[Question]:
    """The choices about one tensor, in the order in which a program makes them; none for a tensor that nothing needs."""
    training = structure.training
    found: list[Question] = []
    if tensor in training.producer:
        found.append(_call(structure, training.producer[tensor], tensor, CALL))
    elif tensor not in structure.offer_variable:
        found += [_call(structure, k, tensor, READ) for k in training.readers[tensor]]
    if tensor in structure.holds:
        pairs = structure.holds[tensor]
        variable = structure.offer_variable[tensor]
        held = _options(((h,), v) for v, (h, _) in enumerate(pairs))
        found.append(Question(HELD, tensor, tensor, variable, _texts(held, lambda p: f"{tensor}@{p[0]} = param()")))
        offered = _options((o, v) for v, (_, o) in enumerate(pairs))
        found.append(Question(OFFERED, tensor, tensor, variable, _texts(offered, lambda p: _offer(tensor, p))))
    elif tensor in structure.offers:
        options = _options((o, v) for v, o in enumerate(structure.offers[tensor]))
        variable = structure.offer_variable[tensor]
        found.append(Question(OFFERED, tensor, tensor, variable, _texts(options, lambda p: _offer(tensor, p))))
    words = structure.carries.get(tensor, ())
    if words:
        values = {w: tuple(v for v, other in enumerate(words) if other == w) for w in dict.fromkeys(words)}
        ways = tuple(Option((), CARRIES[w], vs) for w, vs in values.items())
        found.append(Question(CARRIED, tensor, tensor, structure.offer_variable[tensor], ways))
    return found


def _call(structure: Structure, k: int, tensor: str, kind: str) -> Question:
    """The rules of a call; for a reader, those that differ in how they read the tensor."""
    node = structure.training.nodes[k]
    rules = structure.rules[k]
    if kind == CALL:
        j = node.outputs.index(tensor)
        same: dict[Rule, list[int]] = {}  # a call may run once or twice under one rule
        for v, r in enumerate(rules):
            same.setdefault(r, []).append(v)
        options = tuple(Option((r.outputs[j],), written(instruction(node, r)), tuple(vs)) for r, vs in same.items())
    else:
        places = structure.places(k, tensor)
        read = _options((tuple(dict.fromkeys(r.inputs[i] for i in places)), v) for v, r in enumerate(rules))
        options = _texts(read, lambda p: f"{node.outputs[0]} = {node.op}({', '.join(f'{tensor}@{q}' for q in p)}, …)")
    return Question(kind, tensor, node.outputs[0], structure.rule_variable[k], options)


def _options(found: Iterable[tuple[Offer, int]]) -> dict[Offer, tuple[int, ...]]:
    grouped: dict[Offer, tuple[int, ...]] = {}
    for placements, value in found:
        grouped[placements] = (*grouped.get(placements, ()), value)
    return grouped


def _texts(grouped: dict[Offer, tuple[int, ...]], text: Callable[[Offer], str]) -> tuple[Option, ...]:
    return tuple(Option(p, text(p), values) for p, values in grouped.items())


def _offer(tensor: str, placements: Offer) -> str:
    return " and ".join(f"{tensor}@{p}" for p in placements) or "nothing"
