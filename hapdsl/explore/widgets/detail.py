"""The panel about the line under the cursor."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from hapdsl.explore.describe import Piece

_MANNERS = {
    True: {"error": "bold #ff7070", "warning": "bold #e5c07b", "good": "#7ee2a8", "strong": "bold", "dim": "#8b949e"},
    False: {"error": "bold #c0102a", "warning": "bold #8a5a00", "good": "#116329", "strong": "bold", "dim": "#6e7781"},
}


class Detail(VerticalScroll, can_focus=True):
    """Words about a line and its program."""

    def compose(self) -> ComposeResult:
        yield Static(id="words", markup=False)

    def show(self, pieces: Sequence[Piece]) -> None:
        manners = _MANNERS[self.app.current_theme.dark]
        text = Text(overflow="fold")
        for words, manner in pieces:
            text.append(words, Style.parse(manners[manner]) if manner in manners else None)
        text.rstrip()
        while text.plain.startswith("\n"):
            text = text[1:]
        self.query_one("#words", Static).update(text)
