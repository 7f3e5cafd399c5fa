"""`python -m benchmarks.paper`: the paper's evaluation (EuroSys '24, section 8) in simulation, each figure beside ours.

    python -m benchmarks.paper                        what isn't measured yet (about an hour for everything, on two cores)
    python -m benchmarks.paper point                  some kinds of cases
    python -m benchmarks.paper --only 'vgg19.*hetero' cases whose name a pattern finds
    python -m benchmarks.paper --anew                 measure again
    python -m benchmarks.paper --older 2026-11-30T02:20   measure again what is older (UTC)
    python -m benchmarks.paper --table                the tables once more, from what was measured

Each case has a process of its own. What it finds is kept in a file, a line of JSON each, so a run that was stopped goes on where it was
(with --older, too). It fails where a case does, and where a plan is above a baseline or VGG19's margin below the paper's (`benchmarks.paper_claims`).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.apart import ROOT, measured
from benchmarks.pages import PERFORMANCE, fill
from benchmarks.paper_cases import Case, cases
from benchmarks.paper_claims import shortfalls
from benchmarks.paper_table import tables
from benchmarks.search import known

LINES = ROOT / "benchmarks" / "results" / "paper.jsonl"
MINUTES = "%Y-%m-%dT%H:%M"


def run(case: Case, seconds: float) -> dict[str, Any]:
    """Measure one case in its own process; `when` it began."""
    when = datetime.now(UTC).strftime(MINUTES)
    return {"name": case.name, **asdict(case), "when": when} | measured(
        "benchmarks.paper_measure", asdict(case), seconds
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = list(cases())
    kinds = list(dict.fromkeys(c.kind for c in every))
    parser.add_argument("kinds", nargs="*", help=f"{', '.join(kinds)}; all without any")
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose name it finds")
    parser.add_argument("--seconds", type=float, default=900, help="of one case at most (default 900)")
    parser.add_argument(
        "--lines", type=Path, default=LINES, metavar="FILE", help="where results are kept, a line of JSON each"
    )
    parser.add_argument(
        "--page", type=Path, default=PERFORMANCE, metavar="FILE", help="the page whose tables are made anew"
    )
    parser.add_argument("--list", action="store_true", help="name the cases, measure nothing")
    parser.add_argument("--anew", action="store_true", help="measure again what is known")
    parser.add_argument(
        "--older",
        default="",
        metavar="TIME",
        help="measure again what is older than this, such as 2026-11-30T02:20 (UTC)",
    )
    parser.add_argument("--table", action="store_true", help="measure nothing, make the tables")
    options = parser.parse_args(arguments)
    if unknown := set(options.kinds) - set(kinds):
        parser.error(f"no kind {', '.join(sorted(unknown))}; there are {', '.join(kinds)}")
    wanted = [c for c in every if (not options.kinds or c.kind in options.kinds) and re.search(options.only, c.name)]
    if options.list:
        print("\n".join(c.name for c in wanted))
        return 0
    try:
        since = datetime.strptime(options.older, MINUTES).strftime(MINUTES) if options.older else ""
    except ValueError:
        parser.error(f"'{options.older}' is no time; write it so: 2026-11-30T02:20")
    rows = known(options.lines)
    missing = [c for c in wanted if options.anew or not fresh(rows.get(c.name, {}), since)]
    for k, case in enumerate([] if options.table else missing):
        print(f"[{k + 1}/{len(missing)}] {case.name}", end=" … ", flush=True)
        row = rows[case.name] = run(case, options.seconds)
        print(row.get("failed") or summary(row["found"]), flush=True)
        options.lines.parent.mkdir(parents=True, exist_ok=True)
        with options.lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    ordered = [rows[c.name] for c in every if c.name in rows]
    if ordered:
        fill(options.page, "paper", tables(ordered))
    wrong = list(shortfalls(ordered))
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
