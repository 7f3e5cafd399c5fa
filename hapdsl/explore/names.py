"""Names in a text, found without parsing it: what stands under a cursor, where it is made, where it is used; fixes that help texts spell out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hapdsl.explore.state import Finding, Priced

NAME = re.compile(r"\.?[A-Za-z_][\w]*(?:\.[A-Za-z0-9_]+)*")
_NO_NAMES = re.compile(r'"(?:[^"\\]|\\.)*"?|#.*')
_PROPOSED = re.compile(r"\bdid you mean '([^']+)'\?")  # what `lang.near` says
_QUOTED = re.compile(r"['`]([^'`]+)['`]")
Place = tuple[int, int]  # line and column from 1


@dataclass(frozen=True)
class Fix:
    """Columns from 0 of one line, and what goes there."""

    start: int
    end: int
    text: str
    said: str


def code(line: str) -> str:
    """A line with blanks in the place of strings and comments: as long as it was, with names only."""
    return _NO_NAMES.sub(lambda m: " " * len(m[0]), line)


def name_at(line: str, column: int) -> str:
    """The dotted name under or before a column (from 0); nothing in comments and strings."""
    return next((m[0] for m in NAME.finditer(code(line)) if m.start() <= column <= m.end()), "")


def definition(text: str, name: str, line: int, program: Priced | None) -> Place | None:
    """Where a name is made: left of `=` in the program that the line stands in, else by a block, a declaration or an assignment of the file."""
    rows = text.split("\n")
    places = []
    if program is not None:
        places = [p for p in uses(text, name, line, program) if _made(rows[p[0] - 1], p[1] - 1)]
    blocks = re.compile(rf"^\s*(?:model|cluster|program|def|op|device)\s+({re.escape(name)})\b")
    declared = re.compile(rf"^\s*(?:input|param|frozen|buffer|node)\b[^:=]*?(?<![\w.])({re.escape(name)})(?![\w.])")
    assigned = re.compile(rf"^\s*(?:[\w., ]*,\s*)?({re.escape(name)})(?:\s*,[\w., ]*)?\s*=(?!=)")
    for pattern in (blocks, declared, assigned):
        for number, row in enumerate(rows, 1):
            inside = program is not None and program.line < number <= program.end_line
            if not inside and (m := pattern.match(code(row))) is not None:
                places.append((number, m.start(1) + 1))
    if places and places[0][0] != line:
        return places[0]
    return next((p for p in places if p[0] != line), None)


def _made(row: str, at: int) -> bool:
    """Does a name at this column stand left of the line's `=`, outside of parentheses?"""
    depth = 0
    for column, letter in enumerate(code(row)):
        depth += (letter == "(") - (letter == ")")
        if letter == "=" and depth == 0:
            return at < column
    return False


def uses(text: str, name: str, line: int, program: Priced | None) -> list[Place]:
    """All places of a name in the program that the line stands in, or in the whole file."""
    rows = text.split("\n")
    first, last = (program.line, program.end_line) if program is not None else (1, len(rows))
    found = []
    for number in range(first, min(last, len(rows)) + 1):
        found += [(number, m.start() + 1) for m in NAME.finditer(code(rows[number - 1])) if m[0] == name]
    return found


def fix_of(finding: Finding, row: str) -> Fix | None:
    """What a diagnostic's help proposes for its line, where that can be done without thinking: a name that was nearly written."""
    proposed, wrong = _PROPOSED.search(finding.help), _QUOTED.search(finding.message)
    if proposed is None or wrong is None:
        return None
    written = wrong[1]
    at = row.find(written, max(0, finding.column - 1))
    at = row.find(written) if at < 0 else at
    return Fix(at, at + len(written), proposed[1], f"'{written}' is '{proposed[1]}' now") if at >= 0 else None
