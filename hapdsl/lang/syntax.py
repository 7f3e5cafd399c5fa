"""What to say of a text that the grammar doesn't cover, and where to go on reading."""

from __future__ import annotations

from typing import Any

from lark import Token, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from hapdsl.lang.diagnostics import Diagnostic
from hapdsl.lang.nodes import Span


class Recovery:
    """Collects the syntax errors of one text in `problems`."""

    def __init__(self, text: str, file: str, interactive: Any) -> None:
        self.problems: list[Diagnostic] = []
        self._text = text
        self._file = file
        self._interactive = interactive

    def too_deep(self, token: Token) -> Diagnostic:
        span = Span(self._file, token.line or 1, token.column or 1, token.end_line or 1, token.end_column or 1)
        return Diagnostic("HAP104", "nested too deeply", span, "name inner parts on lines of their own")

    def skip(self, problem: UnexpectedInput) -> bool:
        line, column = problem.line, problem.column
        span = Span(self._file, line, column, line, column + 1)
        self.problems.append(Diagnostic("HAP101", f"unexpected text", span))
        return False
