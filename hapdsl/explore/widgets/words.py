"""Words with manners, in a pane that scrolls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.css.styles import RulesMap
from textual.widgets import Static

from hapdsl.explore.describe import Piece
from hapdsl.explore.highlight import MANNERS, harmless


def styled(pieces: Sequence[Piece], dark: bool) -> Text:
    """The pieces as one text, without blank lines at either end."""
    manners = MANNERS[dark]
    text = Text(overflow="fold")
    for words, manner in pieces:
        text.append(harmless(words), Style.parse(manners[manner]) if manner in manners else None)
    text.rstrip()
    while text.plain.startswith("\n"):
        text = text[1:]
    return text


class Words(VerticalScroll, can_focus=True):
    """A text that somebody else makes; `plain` is what it says."""

    plain = ""
    text = Text()

    def compose(self) -> ComposeResult:
        yield Static(classes="words", markup=False)

    def show(self, pieces: Sequence[Piece]) -> None:
        text = styled(pieces, self.app.current_theme.dark)
        if text == self.text:
            return
        self.text, self.plain = text, text.plain
        words = self.query_one(Static)
        width = words.content_size.width
        words.update(text, layout=not width)
        # It is as high as the pane (explore.tcss): the screen is laid out anew only for a text that is higher, or was.
        if width:
            rows = words.visual.get_height(cast(RulesMap, words.styles), width) + words.styles.gutter.height
            if max(rows, self.content_size.height) != words.outer_size.height:
                words.refresh(layout=True)
