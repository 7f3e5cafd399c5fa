"""Sliders for the hardware, and what all plans would cost: where another plan wins."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Static

from hapdsl.explore.highlight import MANNERS
from hapdsl.explore.widgets.compare import letter
from hapdsl.lang.amounts import in_seconds

Object = dict[str, Any]
STEPS = 16  # positions on each side of what is now; each is a factor of 2 ** (1/4)
COLOURS = ("#79b8ff", "#7ee2a8", "#ffb066", "#c3b1ff", "#76e3ea", "#ff9bd2", "#e5c07b", "#9aa4b2")
PAPER = ("#0550ae", "#116329", "#b35900", "#6639ba", "#0b6e75", "#99286e", "#8a5a00", "#57606a")


def factor_of(position: int) -> float:
    """From 1/16 to 16."""
    return float(2.0 ** (position / 4))


class WhatIf(VerticalScroll, can_focus=True):
    """Up and down choose a slider, left and right move it, 0 puts it back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "slide(-1)", "Less"),
        Binding("right", "slide(1)", "More"),
        Binding("shift+left", "slide(-4)", show=False),
        Binding("shift+right", "slide(4)", show=False),
        Binding("up", "choose(-1)", show=False),
        Binding("down", "choose(1)", show=False),
        Binding("0", "reset", "Reset"),
    ]

    class Moved(Message):
        """The sliders stand elsewhere."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.positions: dict[str, int] = {}
        self.chosen = 0
        self.answer: Object = {}
        self.titles: Sequence[str] = ()
        self.words = ""  # while there is no answer
        self.plain = ""

    def compose(self) -> ComposeResult:
        yield Static(classes="sliders", markup=False)

    @property
    def sliders(self) -> list[Object]:
        return list(self.answer.get("sliders", ()))

    @property
    def slider(self) -> str | None:
        """The name of the one that is chosen."""
        return self.sliders[min(self.chosen, len(self.sliders) - 1)]["name"] if self.sliders else None

    @property
    def factors(self) -> dict[str, float]:
        return {name: factor_of(p) for name, p in self.positions.items() if p}

    def show(self, answer: Object, titles: Sequence[str], words: str) -> None:
        self.answer, self.titles, self.words = answer, titles, words
        text = Text(words) if not self.sliders else self._text()
        self.plain = text.plain
        self.query_one(Static).update(text)

    def _text(self) -> Text:
        dark = self.app.current_theme.dark
        quiet = Style.parse(MANNERS[dark]["dim"])
        colours = COLOURS if dark else PAPER
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append("up, down choose; left, right move; 0 resets\n\n", quiet)
        width = max(len(s["name"]) for s in self.sliders)
        for s in self.sliders:
            at = self.positions.get(s["name"], 0)
            mark, style = ("▸ ", "bold") if s["name"] == self.slider else ("  ", "")
            text.append(f"{mark}{s['name']:<{width}} ", style)
            text.append("─" * (STEPS + at), quiet)
            text.append("●", "bold")
            text.append("─" * (STEPS - at), quiet)
            text.append(f"  ×{factor_of(at):.3g}  {s['text']}\n", style)
        now: dict[str, float] = self.answer.get("now", {})
        base: dict[str, float] = self.answer.get("base", {})
        text.append("\n")
        best = min(now, key=lambda k: now[k], default=None)
        for k in sorted(now, key=lambda k: now[k]):
            colour = colours[int(k) % len(colours)]
            text.append("★ " if k == best else "  ", colour)
            text.append(
                f"{letter(int(k))} {self.titles[int(k)][:30]:<30} ",
                Style.parse(f"bold {colour}" if k == best else colour),
            )
            text.append(f"{in_seconds(now[k]):>9}", "bold")
            text.append(f"   now {in_seconds(base[k])}\n" if now[k] != base[k] else "\n", quiet)
        return self._strip(text, quiet, colours)

    def _strip(self, text: Text, quiet: Style, colours: Sequence[str]) -> Text:
        """Who is best from a sixteenth to sixteen times of the chosen slider."""
        strip = self.answer.get("strip")
        if strip is None or strip["slider"] != self.slider:
            return text.append("\nlooking where the winner changes…\n", quiet)
        winners = [strip["plans"][min(range(len(row)), key=row.__getitem__)] for row in strip["seconds"]]
        text.append(f"\nbest by {strip['slider']}, from ×1/16 to ×16\n", quiet)
        width = max(len(s["name"]) for s in self.sliders)
        text.append(" " * (width + 3))
        for k in winners:
            text.append(letter(int(k)), Style.parse(f"bold {colours[int(k) % len(colours)]}"))
        text.append("\n")
        changes = [(strip["points"][i], a, b) for i, (a, b) in enumerate(pairwise(winners)) if a != b]
        for factor, a, b in changes:
            text.append(
                f"  above ×{factor:.3g} {letter(int(b))} {self.titles[int(b)]} is faster than {letter(int(a))} {self.titles[int(a)]}\n"
            )
        if not changes:
            text.append(f"  {self.titles[int(winners[0])]} is the fastest all the way\n")
        return text

    def action_slide(self, step: int) -> None:
        if self.slider is not None:
            at = self.positions.get(self.slider, 0) + step
            self._put(self.slider, at)

    def _put(self, name: str, at: int) -> None:
        at = max(-STEPS, min(STEPS, at))
        if at != self.positions.get(name, 0):
            self.positions[name] = at
            self.show(self.answer, self.titles, self.words)
            self.post_message(self.Moved())

    def action_choose(self, step: int) -> None:
        if self.sliders:
            self.chosen = (self.chosen + step) % len(self.sliders)
            self.show(self.answer, self.titles, self.words)
            self.post_message(self.Moved())

    def action_reset(self) -> None:
        self.positions.clear()
        self.show(self.answer, self.titles, self.words)
        self.post_message(self.Moved())

    def on_click(self, event: events.Click) -> None:
        """A click on a slider moves it there."""
        inside = event.get_content_offset(self.query_one(Static))
        if inside is None or not 2 <= inside.y < 2 + len(self.sliders):
            return
        self.chosen = inside.y - 2
        left = max(len(s["name"]) for s in self.sliders) + 3
        if left <= inside.x <= left + 2 * STEPS:
            self._put(self.sliders[self.chosen]["name"], inside.x - left - STEPS)
        self.action_choose(0)
