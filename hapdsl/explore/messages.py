"""What reaches the application from outside its own event handlers."""

from __future__ import annotations

from textual.message import Message

from hapdsl.explore.workers import Object


class Heard(Message):
    """A helper answered. `which` names the helper."""

    def __init__(self, which: str, answer: Object) -> None:
        super().__init__()
        self.which, self.answer = which, answer


class Missed(Message):
    """A helper ended by itself."""

    def __init__(self, which: str, words: str) -> None:
        super().__init__()
        self.which, self.words = which, words
