"""What all rules of the builder share: where a node stands, numbers, texts, blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lark import Token

from hapdsl.lang import nodes as n
from hapdsl.lang.diagnostics import Report
from hapdsl.lang.nodes import Span

# All children of a rule in order, punctuation included.
Children = list[Any]

LARGEST = 2**63 - 1
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True, slots=True)
class Names(n.Node):
    """`a, b, c`: only on its way to a statement."""

    names: tuple[str, ...]


class Base:
    """The state of the text being built, and helpers."""

    def __init__(self) -> None:
        self.begin("")

    def begin(self, file: str) -> None:
        self._file = file
        self.problems = Report()
        # Where each block's `{` stands, by where the block starts: comments are shared out by it.
        self.braces: dict[tuple[int, int], tuple[int, int]] = {}

    def _span(self, first: Any, last: Any) -> Span:
        if isinstance(first, Token):
            line, column = first.line or 0, first.column or 0
        else:
            line, column = first.span.line, first.span.column
        if isinstance(last, Token):
            return Span(self._file, line, column, last.end_line or 0, last.end_column or 0)
        return Span(self._file, line, column, last.span.end_line, last.span.end_column)

    def _all(self, c: Children) -> Span:
        return self._span(c[0], c[-1])

    def _integer(self, token: Token, what: str) -> int:
        if not token.isdigit():
            self.problems.add("HAP110", f"{what} must be a whole number, found {token}", self._span(token, token))
            return 1
        return int(self._number(token))

    def _number(self, token: Token) -> int | float:
        if token.isdigit():
            # Counted by digits first: int() refuses thousands of them, zeros in front included.
            digits = token.lstrip("0") or "0"
            if len(digits) <= 19 and (value := int(digits)) <= LARGEST:
                return value
        elif (real := float(token)) != float("inf"):
            return real
        shown = token if len(token) <= 24 else token[:24] + "…"
        self.problems.add("HAP111", f"the number {shown} is too large", self._span(token, token), "whole numbers go up to 2^63 - 1, others to about 1.8e308")  # fmt: skip
        return 1

    def _text(self, token: Token) -> str:
        body = str(token[1:-1])
        if "\\" not in body:
            return body
        parts, escaped = [], False
        for offset, char in enumerate(body):
            if escaped:
                if char not in _ESCAPES:
                    column = (token.column or 0) + offset
                    where = Span(self._file, token.line or 0, column, token.line or 0, column + 2)
                    self.problems.add("HAP112", f"unknown escape \\{char} in a text", where, 'known: \\" \\\\ \\n \\t \\r; a backslash is written \\\\')  # fmt: skip
                parts.append(_ESCAPES.get(char, char))
                escaped = False
            elif char == "\\":
                escaped = True
            else:
                parts.append(char)
        return "".join(parts)

    @staticmethod
    def _kept(c: Children) -> tuple[Any, ...]:
        """The children that are no tokens."""
        return tuple(x for x in c if not isinstance(x, Token))

    def _braced(self, c: Children) -> dict[str, Any]:
        """The fields that every block has, and its body: what stands from the first `{` token on."""
        at = next(i for i, x in enumerate(c) if isinstance(x, Token) and x == "{")
        brace, span = c[at], self._all(c)
        self.braces[span.line, span.column] = (brace.line, brace.column)
        return {"body": self._kept(c[at:]), "span": span, "inline": brace.line == span.end_line}

    @staticmethod
    def _sign(c: Children, at: int) -> int:
        """How far behind the statement's start its sign stands; 0 on another line."""
        first, sign = c[0], c[at]
        line, column = (first.line, first.column) if isinstance(first, Token) else (first.span.line, first.span.column)
        return sign.column - column if sign.line == line else 0

    def names(self, c: Children) -> Names:
        return Names(tuple(str(x) for x in c[::2]), span=self._all(c))
