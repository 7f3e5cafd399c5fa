"""How lines are laid out: alignment of neighbours, wrapping of long lines, comments behind them.

Neighbouring rows of one kind align on their sign (`=`, `:` or `{`) unless their left sides differ by more than
SPREAD columns. Where the author has aligned two rows or more on a column further right, or in spite of a larger
difference, that column stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

WIDTH = 140
INDENT = 4
SPREAD = 7
LAST_SPREAD = 10
COMMENT_SPREAD = 40
_SHORTEST_BROKEN = 24
_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line in the making: `left`, blanks, `right` (which starts with the sign), blanks, `last`.

    `kind` says with which neighbours it aligns ("" with none); `column` is where the author put the sign.
    `apart` parts it from the row above (a blank line or a comment stands between).
    """

    left: str
    right: str = ""
    last: str = ""
    kind: str = ""
    column: int = 0
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
    if not text:
        return "#"
    return f"#{text}" if text.startswith("#") else f"# {text}"


# -- alignment -----------------------------------------------------------------


def _align(rows: Sequence[Row]) -> list[str]:
    done = list(rows)
    for start, stop in _neighbours(rows):
        for first, end, column in _columns(rows[start:stop]):
            for i in range(start + first, start + end):
                done[i] = replace(done[i], left=done[i].left.ljust(column - 1))
        for first, end in _runs(rows[start:stop], lambda r: len(r.right), LAST_SPREAD, lambda r: bool(r.last)):
            if any(len(done[start + first].left) != len(done[i].left) for i in range(start + first, start + end)):
                continue
            widest = max(len(r.right) for r in rows[start + first : start + end])
            for i in range(start + first, start + end):
                done[i] = replace(done[i], right=done[i].right.ljust(widest))
    return [" ".join(part for part in (r.left, r.right, r.last) if part) for r in done]


def _neighbours(rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
    """The stretches of rows that stand together and are of one kind."""
    start = 0
    for i in range(1, len(rows) + 1):
        if i == len(rows) or rows[i].apart or rows[i].kind != rows[start].kind:
            if rows[start].kind:
                yield start, i
            start = i


def _columns(rows: Sequence[Row]) -> Iterator[tuple[int, int, int]]:
    """(start, stop, column of the sign) for each run of aligned rows."""
    start = 0
    while start < len(rows):
        stop = start + 1
        while stop < len(rows) and rows[stop].column == rows[start].column:
            stop += 1
        if _deliberate(rows[start:stop]):
            yield start, stop, rows[start].column
            start = stop
            continue
        # Up to the next stretch that the author aligned, the rule of the house holds.
        stop = next((i for i in range(start + 1, len(rows)) if _starts_deliberate(rows, i)), len(rows))
        for first, end in _runs(rows[start:stop], lambda r: len(r.left), SPREAD, lambda r: True):
            widest = max(len(r.left) for r in rows[start + first : start + end])
            yield start + first, start + end, widest + 1
        start = stop


def _starts_deliberate(rows: Sequence[Row], at: int) -> bool:
    column = rows[at].column
    if rows[at - 1].column == column:
        return False
    stop = at
    while stop < len(rows) and rows[stop].column == column:
        stop += 1
    return _deliberate(rows[at:stop])


def _deliberate(rows: Sequence[Row]) -> bool:
    """Has the author put these signs on one column, with blanks that only alignment explains?"""
    column, widths = rows[0].column, [len(r.left) + 1 for r in rows]
    return len(rows) > 1 and column >= max(widths) and column > min(widths)


def _runs(
    rows: Sequence[Row], width: Callable[[Row], int], spread: int, wanted: Callable[[Row], bool]
) -> Iterator[tuple[int, int]]:
    """Longest stretches of wanted rows whose widths lie within `spread`, from the top."""
    start = 0
    while start < len(rows):
        if not wanted(rows[start]):
            start += 1
            continue
        low = high = width(rows[start])
        stop = start + 1
        while stop < len(rows) and wanted(rows[stop]):
            low, high = min(low, width(rows[stop])), max(high, width(rows[stop]))
            if high - low > spread:
                break
            stop += 1
        yield start, stop
        start = stop


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
    """A line as one or several, broken inside its longest brackets where it is too long (margin not included)."""
    if indent + len(text) <= WIDTH:
        return [text]
    groups = [(i, j) for i, j in _groups(text) if j - i > _SHORTEST_BROKEN]
    if not groups:
        return [text]
    opening, closing = max(groups, key=lambda g: g[1] - g[0])
    pad = " " * INDENT
    filled: list[str] = []
    for item in _split(text[opening + 1 : closing].strip()):
        if filled and indent + len(pad) + len(filled[-1]) + len(item) + 2 <= WIDTH:
            filled[-1] += f" {item},"
        else:
            filled.append(f"{item},")
    if filled:
        filled[-1] = filled[-1].removesuffix(",")
    inner = [pad + part for line in filled for part in wrap(line, indent + INDENT)]
    return [text[: opening + 1].rstrip(), *inner, *wrap(text[closing:], indent)]


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
