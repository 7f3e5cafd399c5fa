"""`python -m benchmarks.search`: each case in a fresh interpreter, its line in a file, and tables of what the file has.

    python -m benchmarks.search                       everything (about half an hour on two cores)
    python -m benchmarks.search layers devices        some groups
    python -m benchmarks.search --only 'gpt.*24'      cases whose name a pattern finds
    python -m benchmarks.search --missing             what has no line yet: goes on where it was stopped
    python -m benchmarks.search --list                what there is
    python -m benchmarks.search --table               the tables once more, from what was measured

Comparisons with baselines run as many at once as there are cores; all that is timed runs alone, and nothing else should run meanwhile.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import rows
from benchmarks.apart import measured
from benchmarks.campaign import chosen, command_line, measure, shown, unmeasured, with_cases
from benchmarks.cases import Case, cases
from benchmarks.rows import RESULTS, Row
from benchmarks.table import tables

LINES = RESULTS / "search.jsonl"


def group(case: Case) -> str:
    return case.group


def timed(case: Case) -> bool:
    """Has its table seconds of the search? Of the baselines' only the plans count."""
    return case.group != "baselines"


def run(case: Case, seconds: float) -> Row:
    """Measure one case in its own process."""
    about = {"name": case.name, **asdict(case), "machine": rows.machine()}
    return about | measured("benchmarks.measure", asdict(case), seconds)


def made(lines: Path = LINES) -> str:
    """All tables, nothing without rows, from what was measured."""
    every, found = list(cases()), rows.latest(lines)
    if not found:
        return ""
    ordered = [found[c.name] for c in every if c.name in found]
    left = unmeasured(every, found, group, "python -m benchmarks.search --missing")
    return "\n".join(part for part in (tables(ordered, rows.measured_on(ordered)), left) if part)


def main(arguments: Sequence[str]) -> int:
    every = list(cases())
    parser = command_line("search", __doc__)
    with_cases(parser, map(group, every), LINES)
    parser.add_argument("--missing", action="store_true", help="only cases that were not measured yet")
    options = parser.parse_args(arguments)
    wanted = chosen(parser, options, every, group)
    if options.missing:
        found = rows.latest(options.lines)
        wanted = [c for c in wanted if "found" not in found.get(c.name, {})]
    if options.list:
        print("\n".join(c.name for c in wanted))
        return 0
    if not options.table:
        measure(
            wanted, options.lines, lambda c: run(c, options.seconds), lambda row: f"{row['process_s']:.1f} s", timed
        )
    shown(options, "search", LINES, made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
