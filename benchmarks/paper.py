"""`python -m benchmarks.paper`: the paper's evaluation (EuroSys '24, section 8) in simulation, each figure beside ours.

    python -m benchmarks.paper                        what isn't measured yet (everything: about a quarter of an hour on two cores)
    python -m benchmarks.paper point                  some kinds of cases
    python -m benchmarks.paper --only 'vgg19.*hetero' cases whose name a pattern finds
    python -m benchmarks.paper --anew                 measure again
    python -m benchmarks.paper --older 2026-11-30T02:20   measure again what is older (UTC)
    python -m benchmarks.paper --table                the tables once more, from what was measured

Each case has a process of its own; those of which only the plan counts run as many at once as there are cores. What it finds is kept
in a file, a line of JSON each, so a run that was stopped goes on where it was (with --older, too). It fails
where a case does, and where a plan is above a baseline or VGG19's margin below the paper's (`benchmarks.paper_claims`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import rows
from benchmarks.apart import measured
from benchmarks.campaign import chosen, command_line, measure, shown, unmeasured, with_cases
from benchmarks.paper_cases import Case, cases
from benchmarks.paper_claims import shortfalls
from benchmarks.paper_table import tables
from benchmarks.rows import RESULTS, Row

LINES = RESULTS / "paper.jsonl"
MINUTES = "%Y-%m-%dT%H:%M"


def kind(case: Case) -> str:
    return case.kind


def timed(case: Case) -> bool:
    """Has its table seconds of the search? All others are of simulated steps alone."""
    return case.kind == "synthesis"


def run(case: Case, seconds: float) -> Row:
    """Measure one case in its own process; `when` it began."""
    about = {"name": case.name, **asdict(case), "when": datetime.now(UTC).strftime(MINUTES), "machine": rows.machine()}
    return about | measured("benchmarks.paper_measure", asdict(case), seconds)


def ordered(lines: Path) -> list[Row]:
    """The newest row of each case, in the order of the tables."""
    found = rows.latest(lines)
    return [found[c.name] for c in cases() if c.name in found]


def made(lines: Path = LINES) -> str:
    """All tables, nothing without rows, from what was found."""
    found = rows.latest(lines)
    if not found:
        return ""
    left = unmeasured(cases(), found, kind, "python -m benchmarks.paper")
    return "\n".join(part for part in (tables(ordered(lines)), left) if part)


def main(arguments: Sequence[str]) -> int:
    every = list(cases())
    parser = command_line("paper", __doc__)
    with_cases(parser, map(kind, every), LINES)
    parser.add_argument("--anew", action="store_true", help="measure again what is known")
    parser.add_argument("--older", default="", metavar="TIME", help="measure again what is older (UTC)")
    options = parser.parse_args(arguments)
    wanted = chosen(parser, options, every, kind)
    if options.list:
        print("\n".join(c.name for c in wanted))
        return 0
    try:
        since = datetime.strptime(options.older, MINUTES).strftime(MINUTES) if options.older else ""
    except ValueError:
        parser.error(f"'{options.older}' is no time; write it so: 2026-11-30T02:20")
    if not options.table:
        found = rows.latest(options.lines)
        left = [c for c in wanted if options.anew or not fresh(found.get(c.name, {}), since)]
        measure(left, options.lines, lambda c: run(c, options.seconds), lambda row: summary(row["found"]), timed)
    shown(options, "paper", LINES, made)
    wrong = list(shortfalls(ordered(options.lines)))
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


def fresh(row: dict[str, Any], since: str) -> bool:
    """Was this measured, and not before `since`?"""
    return "found" in row and row.get("when", "") >= since


def summary(found: dict[str, Any]) -> str:
    """A row's numbers on a line, those within its parts too."""
    said = [f"{k} {v:.4g}" for k, v in found.items() if isinstance(v, float)]
    parts = [(k, v) for k, v in found.items() if isinstance(v, dict) and k not in ("baselines", "shares")]
    return ", ".join([*said, *(f"{k}: {summary(v)}" for k, v in parts)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
