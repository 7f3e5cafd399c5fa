"""The line at the bottom in which one types what to look for."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static


class Finder(Horizontal):
    """Says what is typed at once; enter keeps the place, escape goes back to `back`."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False, priority=True)]

    class Sought(Message):
        """`start` is where the search begins."""

        def __init__(self, words: str, start: tuple[int, int]) -> None:
            super().__init__()
            self.words, self.start = words, start

    class Left(Message):
        """`back` is where the cursor goes, None to stay."""

        def __init__(self, back: tuple[int, int] | None) -> None:
            super().__init__()
            self.back = back

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.start = (0, 0)

    def compose(self) -> ComposeResult:
        yield Static("/", markup=False, classes="slash")
        yield Input(compact=True, id="sought")
        yield Static(markup=False, classes="said")

    def begin(self, start: tuple[int, int]) -> None:
        self.start = start
        self.display = True
        box = self.query_one(Input)
        box.value = ""
        self.tell("enter keeps the place, esc goes back")
        self.screen.set_focus(box)  # at once: the next key is meant for it

    def tell(self, words: str) -> None:
        self.query_one(".said", Static).update(words)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.display:
            self.post_message(self.Sought(event.value, self.start))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Left(None))

    def action_leave(self) -> None:
        self.post_message(self.Left(self.start))
