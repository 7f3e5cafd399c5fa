"""Pages whose tables a benchmark makes anew: what stands between its two marks is its own, the rest is written by hand."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.apart import ROOT
from hapdsl.lang.files import write_file

README = ROOT / "README.md"
PERFORMANCE = ROOT / "docs" / "performance.md"


def marks(name: str, of: str = "benchmarks") -> tuple[str, str]:
    """The lines around what `python -m OF.NAME` writes."""
    return f"<!-- {of}.{name}: begin -->", f"<!-- {of}.{name}: end -->"


def filled(old: str, name: str, made: str, of: str = "benchmarks") -> str:
    """A page's text with `made` between the marks. Raises ValueError where these are missing."""
    begin, end = marks(name, of)
    head, found, rest = old.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no {begin} … {end}")
    return f"{head}{begin}\n\n{made.strip()}\n\n{end}{tail}"


def fill(page: Path, name: str, made: str, of: str = "benchmarks") -> None:
    """Write `made` between the marks of a file; without any text it stays as it is, and that is said. Raises ValueError where the marks are missing."""
    if not made:
        print(f"{of}.{name} has no rows: {page.name} stays as it is", file=sys.stderr)
        return
    write_file(page, filled(page.read_text(encoding="utf-8"), name, made, of))


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table: words to the left in the first column, numbers to the right in all others."""
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
