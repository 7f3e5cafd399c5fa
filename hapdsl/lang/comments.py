"""Comments and blank lines: the parser doesn't see them, this gives them to the statements they belong to.

A comment on a line of its own belongs to the statement below it (`leading`), one behind a statement to that statement
(`trailing`), one behind a block's `{` to the block (`trailing`), and those after the last statement of a block
or file to its end (`closing`). A comment inside a statement that goes over several lines moves above it, and one behind
a `}` moves before it. A blank line above a statement, or between two comments, is kept as one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hapdsl.lang import nodes as n

_WHERE = re.compile(r'"(?:[^"\\\n]|\\.)*"|#[^\n]*')

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Comment:
    """One `#` with what follows; `alone` on its line, or behind something."""

    line: int
    column: int
    text: str
    alone: bool

    @property
    def place(self) -> Place:
        return self.line, self.column


def find(text: str) -> list[Comment]:
    """The comments of a text that has been parsed, in order."""
    found: list[Comment] = []
    line, start = 1, 0
    for match in _WHERE.finditer(text):
        if match[0][0] != "#":
            continue
        line += text.count("\n", start, match.start())
        start = match.start()
        left = text.rfind("\n", 0, start) + 1
        found.append(Comment(line, start - left + 1, match[0][1:].strip(), not text[left:start].strip()))
    return found


def attach(file: n.File, text: str, braces: dict[Place, Place]) -> n.File:
    """The same file with its comments and gaps; `braces` tells where each block's `{` stands."""
    attacher = _Attacher(find(text) if "#" in text else [], text.split("\n"), braces)
    items, closing = attacher.body(file.items, (len(attacher.lines) + 1, 0))
    return replace(file, items=items, closing=closing)


class _Attacher:
    """Walks statements and comments side by side, both in the order of the text."""

    def __init__(self, comments: list[Comment], lines: list[str], braces: dict[Place, Place]) -> None:
        self.lines = lines
        self._comments = comments
        self._next = 0
        self._braces = braces

    def _until(self, end: Place) -> list[Comment]:
        """The comments not yet given away that stand before `end`."""
        start = self._next
        while self._next < len(self._comments) and self._comments[self._next].place < end:
            self._next += 1
        return self._comments[start : self._next]

    def _blank(self, line: int) -> bool:
        """Is the line above `line` (counted from 1) empty?"""
        return line >= 2 and not self.lines[line - 2].strip()

    def body(self, statements: Sequence[Any], end: Place) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        """The statements of one block or file with what belongs to them, and the closing comments before `end`."""
        done: list[Any] = []
        for statement in statements:
            above = self._until((statement.span.line, statement.span.column))
            above = self._behind(done, above)
            done.append(self._statement(statement, above, first=not done))
        rest = self._behind(done, self._until(end))
        closing = self._spaced(rest, rest[0].line if rest else 0)
        if done and rest and self._blank(rest[0].line):
            closing = (n.BLANK, *closing)
        return tuple(done), closing

    def _behind(self, done: list[Any], comments: list[Comment]) -> list[Comment]:
        """Give the last statement the comment on its last line; the others are returned."""
        if not (done and comments and not comments[0].alone and comments[0].line == done[-1].span.end_line):
            return comments
        last, text = done[-1], comments[0].text
        if isinstance(last, n.Block) and not last.inline:
            done[-1] = replace(last, closing=(*last.closing, text))
        else:
            done[-1] = replace(last, trailing=text)
        return comments[1:]

    def _statement(self, statement: Any, above: list[Comment], first: bool) -> Any:
        span = statement.span
        changes: dict[str, Any] = {}
        inner: list[Comment] = []
        if isinstance(statement, n.Block):
            brace = self._braces[span.line, span.column]
            inner = self._until(brace)
            body: Sequence[Any] = getattr(statement, "body")  # noqa: B009 (every kind of block has one)
            start = (body[0].span.line, body[0].span.column) if body else (span.end_line, span.end_column)
            if (
                self._next < len(self._comments)
                and (c := self._comments[self._next]).line == brace[0]
                and c.place < start
            ):
                changes["trailing"] = c.text
                self._next += 1
            new, closing = self.body(body, (span.end_line, span.end_column))
            if closing:
                changes["closing"] = closing
            if any(a is not b for a, b in zip(new, body, strict=True)):
                changes["body"] = new
        else:
            inner = self._until((span.end_line, span.end_column))
        top = above[0].line if above else span.line
        gap = not first and self._blank(top) and not self.lines[top - 1][: self._column(above, span) - 1].strip()
        leading = self._spaced(above, span.line) + tuple(c.text for c in inner)
        if gap or leading or changes:
            return replace(statement, gap=gap, leading=leading, **changes)
        return statement

    @staticmethod
    def _column(above: list[Comment], span: n.Span) -> int:
        return above[0].column if above else span.column

    def _spaced(self, comments: list[Comment], below: int) -> tuple[str, ...]:
        """The comments' texts, with BLANK where an empty line stands after one and before the next (or `below`)."""
        texts: list[str] = []
        for i, comment in enumerate(comments):
            texts.append(comment.text)
            line = comments[i + 1].line if i + 1 < len(comments) else below
            if line > comment.line + 1 and self._blank(line):
                texts.append(n.BLANK)
        return tuple(texts)
