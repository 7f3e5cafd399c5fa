"""Benchmarks of many cases: their command lines, and going through the cases."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Protocol, TypeVar

from benchmarks import rows
from benchmarks.pages import PERFORMANCE, fill
from benchmarks.rows import Row
from hapdsl.cluster.machine import usable_cores


class Named(Protocol):
    """A case."""

    @property
    def name(self) -> str: ...


Chosen = TypeVar("Chosen", bound=Named)


def command_line(module: str, words: str | None) -> argparse.ArgumentParser:
    """What every benchmark takes."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{module}",
        description=words,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--table", action="store_true", help="measure nothing, make the tables")
    return parser


def with_cases(parser: argparse.ArgumentParser, kinds: Iterable[str], lines: Path) -> None:
    """What a benchmark takes that has a list of cases of several kinds, and keeps their rows in the file `lines`."""
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(dict.fromkeys(kinds))}; all without any")
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose name it finds")
    parser.add_argument("--seconds", type=float, default=900, help="of one case at most (default 900)")
    parser.add_argument("--lines", type=Path, default=lines, metavar="FILE", help="where rows are kept")
    parser.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        help=f"whose tables are made anew (default {PERFORMANCE.name}; with --lines none, they are printed)",
    )
    parser.add_argument("--list", action="store_true", help="name the cases, measure nothing")


def chosen(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    every: Sequence[Chosen],
    kind: Callable[[Chosen], str],
) -> list[Chosen]:
    """The cases that the options name. Ends the process where there is no such kind, or the pattern is none."""
    kinds = list(dict.fromkeys(map(kind, every)))
    if unknown := set(options.kinds) - set(kinds):
        parser.error(f"no {', '.join(sorted(unknown))}; there are {', '.join(kinds)}")
    try:
        only = re.compile(options.only)
    except re.error as problem:
        parser.error(f"'{options.only}' is no pattern: {problem}")
    return [c for c in every if (not options.kinds or kind(c) in options.kinds) and only.search(c.name)]


def measure(
    cases: Sequence[Chosen],
    lines: Path,
    run: Callable[[Chosen], Row],
    said: Callable[[Row], str],
    timed: Callable[[Chosen], bool],
) -> dict[str, Row]:
    """Run cases, add each one's row to the file as soon as it is there, and say something of it; all rows by name.

    Cases whose tables have no seconds go first, as many at once as there are cores; then those that are `timed`, one after the other.
    """
    for number, row in enumerate(_rows(cases, run, timed), start=1):
        rows.append(lines, row)
        print(f"[{number}/{len(cases)}] {row['name']} … {row.get('failed') or said(row)}", flush=True)
    return rows.latest(lines)


def _rows(cases: Sequence[Chosen], run: Callable[[Chosen], Row], timed: Callable[[Chosen], bool]) -> Iterator[Row]:
    with ThreadPoolExecutor(usable_cores()) as pool:
        for done in as_completed([pool.submit(run, case) for case in cases if not timed(case)]):
            yield done.result()
    yield from (run(case) for case in cases if timed(case))


def shown(options: argparse.Namespace, name: str, lines: Path, made: Callable[[Path], str]) -> None:
    """Tables of the rows that the options name, into the page that they name: that of the rows in `lines` where they name neither."""
    page = options.page or (PERFORMANCE if options.lines == lines else None)
    if page is not None:
        fill(page, name, made(options.lines))
    else:
        print(made(options.lines) or f"{options.lines} has no rows")


def unmeasured(every: Iterable[Chosen], found: dict[str, Row], kind: Callable[[Chosen], str], module: str) -> str:
    """How many cases of each kind have no result yet; nothing where all have."""
    counts: dict[str, int] = {}
    for case in every:
        if "found" not in found.get(case.name, {}):
            counts[kind(case)] = counts.get(kind(case), 0) + 1
    said = ", ".join(f"{n} {name}" for name, n in counts.items())
    return f"Not measured yet: {said}. `{module}` goes on with them.\n" if said else ""
