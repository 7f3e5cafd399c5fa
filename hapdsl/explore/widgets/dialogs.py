"""What the explorer asks and tells in the middle of the screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from hapdsl.explore.actions import ACTIONS, EDITOR_KEYS


class Question(ModalScreen[str]):
    """A question with answers: (key, label). The last one is what escape means. Gives the key."""

    def __init__(self, words: str, answers: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.words, self.answers = words, list(answers)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(self.words), markup=False)
            with Horizontal(classes="answers"):
                for key, label in self.answers:
                    yield Button(Text(f"{key}  {label}").plain, id=f"answer-{key}", compact=True)

    def on_mount(self) -> None:
        for key, _ in self.answers:
            self._bindings.bind(key, f"answer('{key}')", show=False)
        self._bindings.bind("escape", f"answer('{self.answers[-1][0]}')", show=False)
        self.query(Button).last().focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss((event.button.id or "").removeprefix("answer-"))

    def action_answer(self, key: str) -> None:
        self.dismiss(key)


class Ask(ModalScreen[str | None]):
    """Asks for a word; None for none."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", show=False)]

    def __init__(self, words: str, suggested: str, below: str) -> None:
        super().__init__()
        self.words, self.suggested, self.below = words, suggested, below

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(self.words), markup=False)
            yield Input(self.suggested, id="path", compact=True, select_on_focus=False)
            yield Static(self.below, markup=False, classes="quiet")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)


class AskPath(Ask):
    """Asks for a file's name."""

    def __init__(self, words: str, suggested: str, below: str = "enter saves, esc doesn't") -> None:
        super().__init__(words, suggested, below)


class Note(ModalScreen[None]):
    """Something to read: a title and a paragraph."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q,space", "dismiss(None)", show=False)]

    def __init__(self, title: str, words: str) -> None:
        super().__init__()
        self.head, self.words = title, words

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog"):
            yield Static(Text(self.head, "bold"), markup=False)
            yield Static(Text(f"\n{self.words}\n"), markup=False)
            yield Static("esc closes this", markup=False, classes="quiet")

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()


class Help(ModalScreen[None]):
    """All keys, from the registry of actions."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,f1,question_mark", "dismiss(None)", show=False)]

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog help"):
            yield Static(_help_table(), markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()


def help_rows() -> Iterator[tuple[str, str]]:
    """The help, line by line: keys and what they do; headings have no keys, footnotes neither."""
    for group in dict.fromkeys(a.group for a in ACTIONS):
        yield "", group
        for action in ACTIONS:
            if action.group == group:
                yield action.shown_keys or "(palette)", f"{action.title}: {action.help[0].lower()}{action.help[1:]}"
    yield "", "In the editor"
    yield from EDITOR_KEYS
    yield "", "Good to know"
    yield "1, ?, q, …", "work while the cursor isn't in the editor; esc leaves it"
    yield "marks", "✓ proven, ~ sketch, ✗ wrong, · being checked, • unsaved"


def _help_table() -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=16)
    table.add_column(overflow="fold")
    for keys, words in help_rows():
        if keys:
            table.add_row(Text(keys), Text(words))
        else:
            table.add_row(Text(words, "bold"), Text())
    return table
