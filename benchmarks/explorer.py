"""`python -m benchmarks.explorer`: how long a person waits in the explorer.

    python -m benchmarks.explorer                     all of it; some minutes
    python -m benchmarks.explorer paint rolled        some of: paint, rolled, unrolled, beside
    python -m benchmarks.explorer --plans FOLDER      keep the plans that are opened there, or take those that are
    python -m benchmarks.explorer --table             the table of docs/performance.md once more, from what was measured

Each case has a fresh interpreter. The first paint is timed in a pseudo-terminal, from the start of the process. All else happens in the real application
with its real helper processes and Textual's headless driver: from a key's arrival in its queue to the frame that shows what came of it. Beside
the clock there is CPU time: of the screen's process and, where an answer is waited for, the checker's. What is found is kept in
benchmarks/results/explorer.jsonl, a line per row.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.apart import ROOT, measured
from benchmarks.pages import PERFORMANCE, fill
from benchmarks.search import machine
from benchmarks.table import markdown

LINES = ROOT / "benchmarks" / "results" / "explorer.jsonl"
CASES = ("paint", "rolled", "unrolled", "beside")
# What is opened: layers of a GPT on two_kinds, and how it is written. 42 rolled layers are some 3,000 instructions.
PLANS = {"gpt24": ("24",), "gpt42": ("42",), "gpt96": ("96", "--unroll")}
Row = dict[str, Any]


def prepared(folder: Path) -> None:
    """The plans in a folder, those made that aren't there."""
    for name, (layers, *how) in PLANS.items():
        if not (folder / f"{name}.hap").exists():
            print(f"planning {name}", file=sys.stderr)
            words = [
                "plan",
                str(ROOT / "programs/models/gpt.hap"),
                "--cluster",
                "std/two_kinds.hap",
                "--set",
                f"layers={layers}",
                *how,
            ]
            command = [sys.executable, "-m", "hapdsl", *words, "-o", str(folder / f"{name}.hap")]
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def row(what: str, must: float, samples: Iterable[tuple[float, float]], note: str = "") -> Row:
    """Seconds on the clock and of CPU, several times; `must` is the most that it may take."""
    walls, cpus = zip(*samples, strict=True)
    return {
        "what": what, "must_s": must, "median_s": statistics.median(walls), "worst_s": max(walls), "cpu_s": statistics.median(cpus), "runs": len(walls), "note": note,
    }  # fmt: skip


def table(rows: list[Row]) -> str:
    head = ("", "at most, ms", "median, ms", "worst, ms", "CPU, median, ms", "times", "")
    ms = [[f"{1e3 * r[k]:,.0f}" for k in ("must_s", "median_s", "worst_s", "cpu_s")] for r in rows]
    return markdown(
        head, [(r["what"], *numbers, str(r["runs"]), r["note"]) for r, numbers in zip(rows, ms, strict=True)]
    )


def known() -> list[Row]:
    """The rows measured so far, in the order of the cases."""
    found = [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()] if LINES.exists() else []
    return sorted(found, key=lambda r: CASES.index(r["case"]))


def keep(case: str, rows: list[Row]) -> None:
    """Write a case's rows in the place of older ones."""
    others = [r for r in known() if r["case"] != case]
    LINES.write_text(
        "".join(f"{json.dumps(r)}\n" for r in [*others, *({"case": case, **r} for r in rows)]), encoding="utf-8"
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.explorer", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--plans", type=Path, metavar="FOLDER")
    parser.add_argument("--quick", action="store_true", help="a few times each, to see that it works")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    given = parser.parse_args(arguments)
    wanted = given.cases or list(CASES)
    if strange := [c for c in wanted if c not in CASES]:
        parser.error(f"there is no case {strange[0]}: {', '.join(CASES)}")
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.plans or Path(temporary)).absolute()
        if not given.table:
            prepared(folder)
        for case in [] if given.table else wanted:
            answer = measured(
                "benchmarks.explorer_cases", {"case": case, "folder": str(folder), "quick": given.quick}, 900
            )
            if "failed" in answer:
                print(f"{case} failed: {answer['failed']}", file=sys.stderr)
                failed = 1
                continue
            keep(case, answer["found"])
            print(table(answer["found"]), file=sys.stderr)
    load = f" Other work ran beside it: a load of {os.getloadavg()[1]:.1f}." if os.getloadavg()[1] > 1.5 else ""
    made = f"{machine()}{load}\n\n{table(known())}"
    print(made)
    fill(PERFORMANCE, "explorer", made)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
