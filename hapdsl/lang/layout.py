"""How lines are laid out: alignment of neighbours, wrapping of long lines, comments behind them.

Neighbouring rows of one kind align on their sign (`=`, `:` or `{`) unless their left sides differ by more than
SPREAD columns; assignments of models don't. Where the author has aligned two rows or more on a column further right, or in spite of a larger
difference, that column stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

WIDTH = 140
INDENT = 4
SPREAD = 7
LAST_SPREAD = 10
COMMENT_SPREAD = 40
_SHORTEST_BROKEN = 24
# Rows of these kinds align only where the author has aligned them.
_LOOSE = {"assign"}
_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line in the making: `left`, blanks, `right` (which starts with the sign), blanks, `last`.

    `kind` says with which neighbours it aligns ("" with none); `column` and `last_column` are where the author put
    the sign and the last part.
    `apart` parts it from the row above (a blank line or a comment stands between).
    """

    left: str
    right: str = ""
    last: str = ""
    kind: str = ""
    column: int = 0
    last_column: int = 0
    apart: bool = False
    comment: str | None = None
    above: tuple[str, ...] = field(default=())


def lines(rows: Sequence[Row], indent: int) -> Iterator[str]:
    """The text of consecutive rows of one body, aligned, wrapped and with their comments."""
    margin = " " * indent
    texts = [wrap(text, indent) for text in _align(rows)]
    columns = _comment_columns(rows, texts, indent)
    for row, parts, column in zip(rows, texts, columns, strict=True):
        for line in row.above:
            yield margin + line if line else ""
        *before, last = parts
        yield from (margin + part for part in before)
        if row.comment is None:
            yield margin + last
        else:
            yield (margin + last).ljust(column) + comment(row.comment)


def comment(text: str) -> str:
    """A comment as it is written: one blank behind the `#`."""
    if not text:
        return "#"
    return f"#{text}" if text.startswith("#") else f"# {text}"


# -- alignment -----------------------------------------------------------------


def _align(rows: Sequence[Row]) -> list[str]:
    lefts = [r.left for r in rows]
    rights = [r.right for r in rows]
    for start, stop in _stretches(rows, lambda a, b: a.kind == b.kind and not b.apart):
        group = rows[start:stop]
        if not group[0].kind:
            continue
        spread = -1 if group[0].kind in _LOOSE else SPREAD
        widths = _widths([len(r.left) for r in group], [r.column - 1 for r in group], spread)
        lefts[start:stop] = [r.left.ljust(width) for r, width in zip(group, widths, strict=True)]
        # What comes last aligns among rows whose signs do.
        for first, end in _stretches(lefts[start:stop], lambda a, b: len(a) == len(b)):
            part = group[first:end]
            columns = [r.last_column - r.column - 1 if r.last_column else -1 for r in part]
            ends = _widths([len(r.right) if r.last else None for r in part], columns, LAST_SPREAD)
            rights[start + first : start + end] = [r.right.ljust(w) for r, w in zip(part, ends, strict=True)]
    return [" ".join(piece for piece in (a, b, r.last) if piece) for a, b, r in zip(lefts, rights, rows, strict=True)]


def _stretches(items: Sequence[Any], together: Callable[[Any, Any], bool]) -> Iterator[tuple[int, int]]:
    """(start, stop) of each longest run in which every item goes together with the one before it."""
    start = 0
    for i in range(1, len(items) + 1):
        if i == len(items) or not together(items[i - 1], items[i]):
            yield start, i
            start = i


def _widths(own: Sequence[int | None], given: Sequence[int], spread: int) -> list[int]:
    """How wide each row's text becomes. `own` are their widths (None for a row without one), `given` the widths
    that the author's alignment gave them."""
    done = [width or 0 for width in own]
    kept = [False] * len(own)
    for start, stop in _stretches(
        list(zip(own, given, strict=True)), lambda a, b: a[1] == b[1] and None not in (a[0], b[0])
    ):
        # Two rows or more on one column, with blanks that only alignment explains.
        if stop - start > 1 and given[start] >= max(done[start:stop]) and given[start] > min(done[start:stop]):
            done[start:stop] = [given[start]] * (stop - start)
            kept[start:stop] = [True] * (stop - start)
    start = 0
    while start < len(own):
        stop = start + 1
        if own[start] is not None and not kept[start]:
            low = high = done[start]
            while stop < len(own) and own[stop] is not None and not kept[stop]:
                low, high = min(low, done[stop]), max(high, done[stop])
                if high - low > spread:
                    break
                stop += 1
            done[start:stop] = [max(done[start:stop])] * (stop - start)
        start = stop
    return done


def _comment_columns(rows: Sequence[Row], texts: Sequence[Sequence[str]], indent: int) -> list[int]:
    """Where the comment behind each row starts: neighbours share a column unless their lengths differ much."""
    ends = [indent + len(parts[-1]) + 2 for parts in texts]
    columns = list(ends)
    start = 0
    while start < len(rows):
        low = high = ends[start]
        stop = start + 1
        while stop < len(rows) and rows[start].comment is not None and rows[stop].comment is not None:
            low, high = min(low, ends[stop]), max(high, ends[stop])
            if rows[stop].apart or high - low > COMMENT_SPREAD:
                break
            stop += 1
        columns[start:stop] = [max(ends[start:stop])] * (stop - start)
        start = stop
    return columns


# -- wrapping ------------------------------------------------------------------


def wrap(text: str, indent: int) -> list[str]:
    """A line as one or several, broken inside its longest brackets where it is too long (margin not included).

    What is still too long in front of them is broken behind commas.
    """
    if indent + len(text) <= WIDTH:
        return [text]
    groups = [(i, j) for i, j in _groups(text) if j - i > _SHORTEST_BROKEN]
    if not groups:
        return _folded(text, indent)
    opening, closing = max(groups, key=lambda g: g[1] - g[0])
    pad = " " * INDENT
    filled = _filled(_split(text[opening + 1 : closing].strip()), indent + len(pad))
    inner = [pad + part for line in filled for part in wrap(line, indent + INDENT)]
    return [*_folded(text[: opening + 1].rstrip(), indent), *inner, *wrap(text[closing:], indent)]


def _folded(text: str, indent: int) -> list[str]:
    """A line broken behind the commas that stand in no bracket; what follows is indented twice, unlike a bracket's content."""
    pad = " " * (2 * INDENT)
    if indent + len(text) <= WIDTH:
        return [text]
    first, *rest = _filled(_split(text), indent + len(pad))
    return [first, *(pad + line for line in rest)]


def _filled(items: Sequence[str], indent: int) -> list[str]:
    """Items with commas behind all but the last, as many on a line as fit."""
    filled: list[str] = []
    for item in items:
        if filled and indent + len(filled[-1]) + len(item) + 2 <= WIDTH:
            filled[-1] += f" {item},"
        else:
            filled.append(f"{item},")
    if filled:
        filled[-1] = filled[-1].removesuffix(",")
    return filled


def _walk(text: str) -> Iterator[tuple[int, str]]:
    """The characters that are not in quotes, with their places."""
    quoted = escaped = False
    for i, char in enumerate(text):
        if escaped:
            escaped = False
        elif quoted:
            escaped, quoted = char == "\\", char != '"'
        elif char == '"':
            quoted = True
        else:
            yield i, char


def _groups(text: str) -> Iterator[tuple[int, int]]:
    """Opening and closing place of each outermost pair of brackets."""
    stack: list[int] = []
    pairs: list[tuple[int, int]] = []
    for i, char in _walk(text):
        if char in _OPENING:
            stack.append(i)
        elif char in _CLOSING and stack:
            pairs.append((stack.pop(), i))
    # An opening bracket without its end (the `{` of a block) is around nothing.
    return ((i, j) for i, j in pairs if not any(a < i and j < b for a, b in pairs))


def _split(text: str) -> list[str]:
    """The parts between the commas that stand in no bracket."""
    parts, depth, start = [], 0, 0
    for i, char in _walk(text):
        if char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return parts
