"""A text that changes a little at a time: only the statements around a change are parsed again.

The parser takes a quarter of a second for some thousand lines, most of which are as they were. Where all that changed lies inside one block of
a program, the lines between the statements above and below it are parsed in a block of their own and put in their place; what stands further
down moves. Everything else, and whatever doesn't parse as such a piece, is parsed as a whole.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from hapdsl.lang import nodes as n
from hapdsl.lang.comments import Place
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.lines import alike
from hapdsl.lang.nodes import Span
from hapdsl.lang.parse import MOST_ERRORS, cleaned, parse_with_braces

_HEAD = "program piece for piece {"
_DUMMY = "..."
# Blocks around a piece, and blocks in it; deeper ones are left to a whole parse, which knows the limit.
_DEEPEST_PIECE = 20
# Faults of one statement, which read the same in any block; others may depend on brackets far away.
_OF_A_STATEMENT = frozenset(["HAP101", "HAP107", "HAP108", "HAP109", "HAP110", "HAP111", "HAP112", "HAP113"])
_SIGN = re.compile(r'"(?:[^"\\\n]|\\.)*"|#[^\n]*|["()\[\]{}]')
_SHIFTERS: dict[type[Any], Callable[[Any, int], Any]] = {}
_Node = TypeVar("_Node", bound=n.Node)
Parent = n.Program | n.Section | n.Turns | n.Microbatch


@dataclass(frozen=True)
class _Change:
    """Lines `first` up to `old_after` of the text before are lines `first` up to `new_after` now; lines count from 1."""

    first: int
    old_after: int
    new_after: int

    @property
    def by(self) -> int:
        """How far what stands behind it moves."""
        return self.new_after - self.old_after


class EditedText:
    """The tree of a text after each change. `moved` are the statements that the last change moved in the text: by the id of the statement in the
    tree before, the same statement now. Statements that neither changed nor moved are the same objects."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.moved: dict[int, n.Statement] = {}
        self._lines: list[str] = []
        self.tree: n.File | None = None  # the last one that could be read
        self._braces: dict[Place, Place] = {}

    def parse(self, text: str) -> n.File:
        """What `lang.parse` makes of the text, with all its positions and comments; raises what that raises, and keeps the last good tree."""
        self.moved = {}
        text = cleaned(text, self.file)
        lines = text.split("\n")
        if self.tree is not None:
            change = _difference(self._lines, lines)
            if change is None:
                return self.tree
            found = self._piece(self.tree, lines, change)
            if found is not None:
                self.tree, self._lines = found, lines
                return found
        tree, braces = parse_with_braces(text, self.file)
        self.tree, self._lines, self._braces, self.moved = self._adopted(tree, lines), lines, dict(braces), {}
        return self.tree

    def _adopted(self, tree: n.File, lines: list[str]) -> n.File:
        """The tree with the blocks of the last one, where their text is the same and stands at the same place."""
        if self.tree is None:
            return tree
        old = {item.span: item for item in self.tree.items}
        items = []
        for item in tree.items:
            last, own = old.get(item.span), slice(item.span.line - 1, item.span.end_line)
            items.append(last if last is not None and self._lines[own] == lines[own] and last == item else item)
        return replace(tree, items=tuple(items))

    # -- pieces ------------------------------------------------------------------------

    def _piece(self, tree: n.File, lines: list[str], change: _Change) -> n.File | None:
        """The tree with only the changed piece parsed; None where that won't do. Raises HapError for faults that stay inside one statement."""
        path = self._around(tree, change)
        if not path or len(path) > _DEEPEST_PIECE:
            return None
        block = path[-1][1]
        body = block.body
        below = bisect_left(body, change.old_after, key=lambda s: s.span.line)  # the first statement behind the change
        above = bisect_left(body, change.first, key=lambda s: s.span.end_line) - 1  # the last one before it
        if above >= below or not self._apart(body, above, below):
            return None
        following = body[below] if below < len(body) else None
        start = body[above].span.end_line + 1 if above >= 0 else self._brace(block) + 1
        stand_in = isinstance(following, n.Block)
        if following is None:
            if self._lines[block.span.end_line - 1].strip() != "}":
                return None
            end = block.span.end_line - 1
        elif stand_in:
            if self._brace(following) != following.span.line:
                return None
            end = following.span.line - 1
        else:
            end = following.span.end_line
        if change.first < start or change.old_after > end + 1:
            return None
        middle = lines[start - 1 : end + change.by]
        if sum(line.count("{") for line in middle) > _DEEPEST_PIECE:
            return None
        head = [_HEAD, *([_DUMMY] if above >= 0 else [])]
        tail = [" " * (following.span.column - 1) + _DUMMY] if following is not None and stand_in else []
        offset = start - 1 - len(head)
        try:
            piece, braces = parse_with_braces("\n".join([*head, *middle, *tail, "}"]), self.file)
        except HapError as stop:
            written = lines[change.first - 1 : change.new_after - 1]
            if all(map(_closed, [*written, "\n".join(middle)])):
                _raise_local(stop, range(len(head) + 1, len(head) + len(middle) + 1), offset)
            return None
        inner = piece.items[0]
        if len(piece.items) != 1 or piece.closing or not isinstance(inner, n.Program) or inner.trailing is not None:
            return None
        made = [_shifted(s, offset) for s in inner.body[1 if above >= 0 else 0 :]]
        behind: tuple[n.Statement, ...] = body[below + (not stand_in) :]
        if following is not None and stand_in:
            mark = made.pop()
            behind = (replace(following, leading=mark.leading, gap=mark.gap), *behind[1:])
        closing = inner.closing if following is None else block.closing
        self._braces = self._moved_braces(start, end, change.by, braces, offset)
        moved_behind = [self._move(s, change.by) for s in behind]
        return self._rebuilt(tree, path, (*body[: above + 1], *made, *moved_behind), closing, change.by)

    def _around(self, tree: n.File, change: _Change) -> list[tuple[int, Parent]]:
        """The blocks around a change, from the program inwards, each with its place in the body around it."""
        found: list[tuple[int, Parent]] = []
        body: Sequence[n.Statement] = tree.items
        while True:
            at = bisect_right(body, change.first, key=lambda s: s.span.line) - 1
            block = body[at] if at >= 0 else None
            if not isinstance(block, n.Program if not found else (n.Section, n.Turns, n.Microbatch)):
                return found
            if not self._brace(block) < change.first <= change.old_after <= block.span.end_line:
                return found
            found.append((at, block))
            body = block.body

    def _brace(self, block: n.Statement) -> int:
        """The line of a block's `{`."""
        return self._braces[block.span.line, block.span.column][0]

    @staticmethod
    def _apart(body: Sequence[n.Statement], above: int, below: int) -> bool:
        """Do the statements at the edges of a piece stand on lines of their own?"""
        edges = [k for k in (above, below - 1, below) if 0 <= k < len(body) - 1]
        return all(body[k].span.end_line < body[k + 1].span.line for k in edges)

    def _moved_braces(self, start: int, end: int, by: int, own: dict[Place, Place], offset: int) -> dict[Place, Place]:
        found = {}
        for (line, column), (brace, at) in self._braces.items():
            if line > end:
                found[line + by, column] = (brace + by, at)
            elif line < start:
                found[line, column] = (brace, at)
        for (line, column), (brace, at) in own.items():
            if line > 1:  # not the block around the piece
                found[line + offset, column] = (brace + offset, at)
        return found

    def _move(self, statement: n.Statement, by: int) -> n.Statement:
        return statement if by == 0 else self._shifted_body(statement, by)

    def _shifted_body(self, statement: n.Statement, by: int) -> n.Statement:
        """The statement further down, noting where each line in it went."""
        if isinstance(statement, n.Program | n.Section | n.Turns | n.Microbatch):
            body = tuple([self._shifted_body(s, by) for s in statement.body])
            shifted = replace(statement, body=body, span=_span(statement.span, by))
            if isinstance(shifted, n.Program):
                return replace(shifted, args=tuple([_shifted(a, by) for a in shifted.args]))
            return shifted
        found = self.moved[id(statement)] = _shifted(statement, by)
        return found

    def _rebuilt(
        self,
        tree: n.File,
        path: list[tuple[int, Parent]],
        body: tuple[n.Statement, ...],
        closing: tuple[str, ...],
        by: int,
    ) -> n.File:
        """The tree with another body in its innermost block."""
        for depth in range(len(path) - 1, -1, -1):
            at, block = path[depth]
            span = replace(block.span, end_line=block.span.end_line + by)
            new: Any = replace(block, body=body, closing=closing, span=span)
            around: n.File | Parent = path[depth - 1][1] if depth else tree
            siblings = around.items if isinstance(around, n.File) else around.body
            body = (*siblings[:at], new, *[self._move(s, by) for s in siblings[at + 1 :]])
            closing = around.closing
        last = body[-1].span
        items: Any = body
        return replace(tree, items=items, span=replace(tree.span, end_line=last.end_line, end_column=last.end_column))


def _difference(old: list[str], new: list[str]) -> _Change | None:
    """What changed between two texts, None where nothing did."""
    same, behind = alike(old, new)
    if same == len(old) == len(new):
        return None
    return _Change(same + 1, len(old) - behind + 1, len(new) - behind + 1)


def _raise_local(stop: HapError, inside: range, offset: int) -> None:
    """Raise the faults of a piece as those of the text, if each is about one statement and lies among the piece's own lines."""
    found = stop.diagnostics
    if len(found) < MOST_ERRORS and all(
        d.code in _OF_A_STATEMENT and d.span.line in inside and d.span.end_line in inside for d in found
    ):
        raise HapError(*[replace(d, span=_span(d.span, offset)) for d in found]) from None


def _closed(text: str) -> bool:
    """Is every bracket and every quote of a text closed in it, without braces?"""
    stack = []
    for match in _SIGN.finditer(text):
        sign = match[0]
        if sign in ("(", "["):
            stack.append(sign)
        elif sign in (")", "]"):
            if not stack or stack.pop() != {")": "(", "]": "["}[sign]:
                return False
        elif sign in ("{", "}", '"'):
            return False
    return not stack


# -- the same at another place -----------------------------------------------------


def _span(span: Span, by: int) -> Span:
    return Span(span.file, span.line + by, span.column, span.end_line + by, span.end_column)


def _shifted(node: _Node, by: int) -> _Node:
    """A node and all in it, `by` lines further down."""
    return _shifter(type(node))(node, by)


def _shifter(kind: type[Any]) -> Callable[[Any, int], Any]:
    found = _SHIFTERS.get(kind)
    if found is None:
        found = _SHIFTERS[kind] = _made_shifter(kind)
    return found


def _made_shifter(kind: type[Any]) -> Callable[[Any, int], Any]:
    """How nodes of a class are shifted: their own nodes one by one, all else as it is."""
    names = [f.name for f in fields(kind) if f.name != "span"]

    def shift(node: Any, by: int) -> Any:
        values = {}
        for name in names:
            value = getattr(node, name)
            if isinstance(value, n.Node):
                value = _shifter(type(value))(value, by)
            elif value.__class__ is tuple and value and not isinstance(value[0], str):
                value = tuple([_shifter(type(v))(v, by) if isinstance(v, n.Node) else v for v in value])
            values[name] = value
        return kind(**values, span=_span(node.span, by))

    return shift
