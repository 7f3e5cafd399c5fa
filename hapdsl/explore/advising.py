"""What else a line could be: bounds at once, true costs one after the other, and the program behind one of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hapdsl.check.write import write
from hapdsl.explore.describe import signed
from hapdsl.explore.desk import Desk, Opened, on_one_axis
from hapdsl.explore.splicing import replaced
from hapdsl.search.alternatives import Alternative, Alternatives
from hapdsl.search.questions import Option, Question, questions

Object = dict[str, Any]
Say = Callable[[Object], None]
CHANGES = 4  # that are told of one alternative
TITLES = {
    "call": "is made by", "read": "is read by", "held": "is held as", "offered": "is offered to readers as", "carried": "for the backward pass is",
}  # fmt: skip


class Advice:
    """The alternatives of one program, and what was found of them so far."""

    def __init__(self, opened: Opened) -> None:
        on_one_axis(opened.program, "what the search knows of other choices")
        self.opened = opened
        self.known = Alternatives(opened.program, opened.cluster)
        self.looked: dict[str, Alternative | None] = {}

    def questions(self, tensor: str) -> list[Question]:
        return questions(self.known.structure, tensor)

    def option(self, name: str) -> tuple[Question, Option]:
        tensor, number, place = name.rsplit("/", 2)
        question = self.questions(tensor)[int(number)]
        return question, question.options[int(place)]

    def look(self, name: str) -> Alternative | None:
        if name not in self.looked:
            self.looked[name] = self.known.look(*self.option(name))
        return self.looked[name]


def advice(desk: Desk, request: Object) -> Advice:
    opened = desk.opened(request)
    return desk.remember(("advice", opened.key), lambda: Advice(opened))


def why(desk: Desk, request: Object, say: Say, waiting: Callable[[], bool]) -> None:
    """Tell the options for `tensor`: first all with their bounds, then each with what it truly costs.

    Raises HapError as `Alternatives` does. What is known already comes at once; between two looks others have their turn.
    """
    found = advice(desk, request)
    tensor = found.opened.program.graph.resolve(request["tensor"])
    known = found.known
    rows: list[tuple[float, str]] = []
    asked = []
    for number, question in enumerate(found.questions(tensor)):
        chosen = known.chosen(question)
        options = []
        for place, option in enumerate(question.options):
            name = f"{tensor}/{number}/{place}"
            bound, _ = known.least(question.variable, option.values)
            if math.isfinite(bound):
                bound = max(bound, known.bound_s)
                options.append(
                    {
                        "id": name,
                        "text": option.text,
                        "shown": option.shown,
                        "chosen": option is chosen,
                        "bound_s": bound,
                    }
                )
                if option is not chosen:
                    rows.append((bound, name))
        asked.append({"kind": question.kind, "title": TITLES[question.kind], "of": question.of, "options": options})
    say(
        {
            "tensor": tensor,
            "questions": asked,
            "cost_s": known.cost_s,
            "written_s": known.written_s,
            "bound_s": known.bound_s,
        }
    )
    fresh = False
    for _, name in sorted(rows):
        if name not in found.looked:
            if fresh and waiting():
                say({"dropped": True})
                return
            fresh = True
        say(_told(name, found.look(name), found))


def _told(name: str, a: Alternative | None, found: Advice) -> Object:
    if a is None:
        return {"option": name, "possible": False}
    signs = {"more": "+", "less": "-", "other": "~"}
    changes = [
        f"{signs[c.how]} {c.short} {signed(c.delta_s)}{f' ({len(c.tensors)} times)' if len(c.tensors) > 1 else ''}"
        for c in a.changes[:CHANGES]
    ]
    return {
        "option": name, "possible": True, "cost_s": a.cost_s, "bound_s": max(a.bound_s, found.known.bound_s),
        "delta_s": None if a.cost_s is None else a.cost_s - found.known.cost_s, "changes": changes, "differs": a.differs,
    }  # fmt: skip


def take(desk: Desk, request: Object) -> Object:
    """The text with the program in which one option is taken and all else is as good as the search could make it around it."""
    found = advice(desk, request)
    alternative = found.look(request["option"])
    if alternative is None or alternative.cost_s is None:
        return {"failed": "no program with this choice fits into memory"}
    program = found.known.program_of(alternative)
    program.cluster, program.model_args = found.opened.tree.cluster, found.opened.program.model_args
    text = replaced(desk.text(request), found.opened.tree, write(program))
    return {"text": text, "cost_s": alternative.cost_s, "said": alternative.option.text}
