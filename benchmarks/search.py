"""`python -m benchmarks.search`: each case in a fresh interpreter, its line in a file, and tables of what the file has.

    python -m benchmarks.search                       everything (an hour or two on two cores)
    python -m benchmarks.search layers devices        some groups
    python -m benchmarks.search --only 'gpt.*24'      cases whose name a pattern finds
    python -m benchmarks.search --missing             what has no line yet: goes on where it was stopped
    python -m benchmarks.search --list                what there is
    python -m benchmarks.search --table               the tables once more, from what was measured

Cases run one after the other; nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.apart import ROOT, measured
from benchmarks.cases import Case, cases
from benchmarks.pages import PERFORMANCE, fill
from benchmarks.table import tables

LINES = ROOT / "benchmarks" / "results" / "search.jsonl"


def run(case: Case, seconds: float) -> dict[str, Any]:
    """Measure one case in its own process."""
    return {"name": case.name, **asdict(case)} | measured("benchmarks.measure", asdict(case), seconds)


def machine() -> str:
    """What this ran on, without names of hosts."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists() and (found := re.search(r"model name\s*:\s*(.+)", info.read_text())):
        model = found[1].strip()
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"Measured on {count} cores of a {model}, Python {platform.python_version()}; one process a case."


def known(path: Path) -> dict[str, dict[str, Any]]:
    """The lines measured so far, by case; the last of each."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "groups", nargs="*", help="layers, devices, models, sketch, methods, baselines; all without any"
    )
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose name it finds")
    parser.add_argument("--seconds", type=float, default=900, help="of one case at most (default 900)")
    parser.add_argument(
        "--lines", type=Path, default=LINES, metavar="FILE", help="where measurements are kept, a line of JSON each"
    )
    parser.add_argument(
        "--page", type=Path, default=PERFORMANCE, metavar="FILE", help="the page whose tables are made anew"
    )
    parser.add_argument("--list", action="store_true", help="name the cases, measure nothing")
    parser.add_argument("--table", action="store_true", help="measure nothing, make the tables")
    parser.add_argument("--missing", action="store_true", help="only cases that were not measured yet")
    options = parser.parse_args(arguments)
    every = list(cases())
    groups = {c.group for c in every}
    if unknown := set(options.groups) - groups:
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(sorted(groups))}")
    wanted = [c for c in every if (not options.groups or c.group in options.groups) and re.search(options.only, c.name)]
    rows = known(options.lines)
    if options.missing:
        wanted = [c for c in wanted if "found" not in rows.get(c.name, {})]
    if options.list:
        print("\n".join(c.name for c in wanted))
        return 0
    for k, case in enumerate([] if options.table else wanted):
        print(f"[{k + 1}/{len(wanted)}] {case.name}", end=" … ", flush=True)
        row = rows[case.name] = run(case, options.seconds)
        print(row.get("failed") or f"{row['process_s']:.1f} s", flush=True)
        options.lines.parent.mkdir(parents=True, exist_ok=True)
        with options.lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    ordered = [rows[c.name] for c in every if c.name in rows]
    if ordered:
        fill(options.page, "search", tables(ordered, machine()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
