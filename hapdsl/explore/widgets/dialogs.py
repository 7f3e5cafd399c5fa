"""What the explorer asks and tells in the middle of the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

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


class AskPath(ModalScreen[str | None]):
    """Asks for a file's name; None for none."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", show=False)]

    def __init__(self, words: str, suggested: str) -> None:
        super().__init__()
        self.words, self.suggested = words, suggested

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(self.words), markup=False)
            yield Input(self.suggested, id="path", compact=True)
            yield Static("enter saves, esc doesn't", markup=False, classes="quiet")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)


class Help(ModalScreen[None]):
    """All keys, from the registry of actions."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,f1,question_mark", "dismiss(None)", show=False)]

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog help"):
            yield Static(help_text(), markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()


def help_text() -> Text:
    """The help as text."""
    text = Text()
    groups = dict.fromkeys(a.group for a in ACTIONS)
    for group in groups:
        text.append(f"{group}\n", "bold")
        for action in ACTIONS:
            if action.group == group:
                text.append(f"  {action.shown_keys or '(palette)':<16}", "bold" if action.shown_keys else "dim")
                text.append(f"{action.title}: {action.help[0].lower()}{action.help[1:]}\n")
    text.append("In the editor\n", "bold")
    for keys, words in EDITOR_KEYS:
        text.append(f"  {keys}: {words}\n")
    text.append("Keys without ctrl or a number of F work while the cursor isn't in the editor; esc leaves it.\n", "dim")
    text.append("Marks: ✓ proven, ~ sketch, ✗ wrong, · being checked, • unsaved.\n", "dim")
    text.rstrip()
    return text
