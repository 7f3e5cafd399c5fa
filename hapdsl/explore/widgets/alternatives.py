"""What else the line could be, with prices: bounds first, true costs as they come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rich.style import Style
from rich.text import Text
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from hapdsl.explore.describe import signed
from hapdsl.explore.highlight import MANNERS
from hapdsl.explore.protocol import trouble
from hapdsl.lang.amounts import in_seconds

Object = dict[str, Any]


@dataclass
class Asked:
    """The questions about one line's tensor and what is known of their options: `told` by the option's id."""

    tensor: str = ""
    questions: list[Object] = field(default_factory=list)
    cost_s: float = 0.0  # of the plan in the order in which the search writes programs; `written_s` in its own
    written_s: float = 0.0
    told: dict[str, Object] = field(default_factory=dict)
    trouble: str = ""
    done: bool = False

    def hear(self, answer: Object) -> None:
        """Take one answer of the service's `why`."""
        if "questions" in answer:
            self.tensor, self.questions, self.cost_s = answer["tensor"], answer["questions"], answer["cost_s"]
            self.written_s = answer.get("written_s", self.cost_s)
        elif "option" in answer:
            self.told[answer["option"]] = answer
        elif "failed" in answer or answer.get("findings"):
            self.trouble = trouble(answer)
        self.done = self.done or bool(answer.get("done"))

    def rows(self) -> list[tuple[str | None, str, str, str, list[str]]]:
        """(id, what, price, manner, changes) of what is listed; headings have no id. Cheapest first within a question."""
        found: list[tuple[str | None, str, str, str, list[str]]] = []
        for q in self.questions:
            of = f" {q['of']} as" if q["kind"] == "read" else ""
            found.append((None, f"{self.tensor} {q['title']}{of}", "", "dim", []))
            for o in sorted(q["options"], key=self._order):
                if (self.told.get(o["id"]) or {}).get("possible") is False:
                    continue
                found.append(
                    (
                        o["id"],
                        self._what(q, o),
                        *self._price(o),
                        list((self.told.get(o["id"]) or {}).get("changes", ())),
                    )
                )
        if found and abs(self.written_s - self.cost_s) > 1e-9 * self.cost_s:
            found.insert(0, (None, "beside the plan in the search's order", in_seconds(self.cost_s), "dim", []))
        return found

    def _order(self, o: Object) -> tuple[bool, float]:
        told = self.told.get(o["id"])
        cost = told["cost_s"] if told is not None and told.get("cost_s") is not None else o["bound_s"]
        return (not o["chosen"], cost)

    @staticmethod
    def _what(q: Object, o: Object) -> str:
        return str(o["text"] if q["kind"] == "call" else o["shown"])

    def _price(self, o: Object) -> tuple[str, str]:
        if o["chosen"]:
            return "now", "strong"
        told = self.told.get(o["id"])
        if told is None:
            return f"≥ {signed(o['bound_s'] - self.cost_s)}", "dim"
        if told["cost_s"] is None:
            return "no room", "error"
        delta = told["cost_s"] - self.cost_s
        same = abs(delta) <= 1e-9 * self.cost_s
        return f"= {'+0 s' if same else signed(delta)}", "" if same or delta > 0 else "good"


class Alternatives(OptionList):
    """Enter takes the option under the cursor."""

    class Taken(Message):
        def __init__(self, option: str) -> None:
            super().__init__()
            self.option = option

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self.ids: list[str | None] = []
        self.plain = ""
        self.last: tuple[Asked | None, str] = (None, "")
        self.told: list[object] = []

    def show(self, asked: Asked | None, hint: str) -> None:
        """The options, with the cursor on the one it was on; that one says what it would change."""
        self.last = (asked, hint)
        held = self.ids[self.highlighted] if self.highlighted is not None and self.highlighted < len(self.ids) else None
        manners = MANNERS[self.app.current_theme.dark]
        colours = {**manners, "good": f"bold {manners['good']}"}
        rows = asked.rows() if asked is not None else []
        width = max(20, self.size.width - 3)
        prompts: list[Option] = []
        ids: list[str | None] = []
        if asked is None or asked.trouble or not rows:
            prompts.append(
                Option(
                    Text(asked.trouble if asked is not None and asked.trouble else hint, colours["dim"]), disabled=True
                )
            )
            ids.append(None)
        for name, what, price, manner, changes in rows:
            text = Text(no_wrap=True, overflow="ellipsis", end="")
            if name is None:
                text.append(f"{what} {price}".rstrip(), Style.parse(f"bold {colours['dim']}"))
            else:
                room = max(8, width - len(price) - 1)
                text.append(what if len(what) <= room else f"{what[: room - 1]}…")
                text.append(" " * max(1, width - len(text.plain) - len(price)))
                text.append(price, Style.parse(colours.get(manner, "none")) if manner else None)
                if changes and name == held:
                    text.append("".join(f"\n  {c}" for c in changes), Style.parse(colours["dim"]))
            prompts.append(Option(text, disabled=name is None))
            ids.append(name)
        told: list[object] = [p.prompt for p in prompts]
        if told == self.told and ids == self.ids:
            return  # a list that is filled has the whole screen laid out again
        self.told, self.plain = told, "\n".join(map(str, told))
        with self.prevent(OptionList.OptionHighlighted):
            self.clear_options()
            self.add_options(prompts)
            self.ids = ids
            if held in ids:
                self.highlighted = ids.index(held)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        name = self.ids[event.option_index]
        if name is not None:
            self.post_message(self.Taken(name))

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self.show(*self.last)
