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

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks import rows
from benchmarks.apart import ROOT, measured
from benchmarks.campaign import command_line
from benchmarks.pages import PERFORMANCE, fill, markdown
from benchmarks.rows import RESULTS, Row

LINES = RESULTS / "explorer.jsonl"
CASES = ("paint", "rolled", "unrolled", "beside")
# What is opened: layers of a GPT on two_kinds, and how it is written. 42 rolled layers are some 3,000 instructions.
PLANS = {"gpt24": ("24",), "gpt42": ("42",), "gpt96": ("96", "--unroll")}
ALONE = 1.5  # load of a machine on which nothing else runs, at most


def prepared(folder: Path) -> None:
    """The plans in a folder, those made that aren't there."""
    for name, (layers, *how) in PLANS.items():
        if not (folder / f"{name}.hap").exists():
            print(f"planning {name}", file=sys.stderr)
            words = ["plan", str(ROOT / "programs/models/gpt.hap"), "--cluster", "std/two_kinds.hap"]
            words += ["--set", f"layers={layers}", *how]
            command = [sys.executable, "-m", "hapdsl", *words, "-o", str(folder / f"{name}.hap")]
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def row(what: str, must: float, samples: Iterable[tuple[float, float]], note: str = "") -> Row:
    """Seconds on the clock and of CPU, several times; `must` is the most that it may take."""
    walls, cpus = zip(*samples, strict=True)
    return {
        "what": what, "must_s": must, "median_s": statistics.median(walls), "worst_s": max(walls), "cpu_s": statistics.median(cpus), "runs": len(walls), "note": note,
    }  # fmt: skip


def table(found: Sequence[Row]) -> str:
    head = ("", "at most, ms", "median, ms", "worst, ms", "CPU, median, ms", "times", "")
    ms = [[f"{1e3 * r[k]:,.0f}" for k in ("must_s", "median_s", "worst_s", "cpu_s")] for r in found]
    lines = [(r["what"], *numbers, str(r["runs"]), r["note"]) for r, numbers in zip(found, ms, strict=True)]
    return markdown(head, lines)


def measurements() -> list[Row]:
    """The rows measured so far, in the order of the cases."""
    return sorted(rows.read(LINES), key=lambda r: CASES.index(r["case"]))


def keep(case: str, found: Sequence[Row]) -> None:
    """Write a case's rows in the place of older ones, with what the machine did meanwhile."""
    about = {"case": case, "machine": rows.machine(), "load": os.getloadavg()[1]}
    rows.write(LINES, [*(r for r in measurements() if r["case"] != case), *({**about, **r} for r in found)])


def made() -> str:
    """The table, from what was measured, and on what; nothing where nothing was."""
    found = measurements()
    if not found:
        return ""
    load = max((r.get("load", 0.0) for r in found), default=0.0)
    busy = f" Other work ran beside it: a load of {load:.1f}." if load > ALONE else ""
    return f"{rows.measured_on(found)}{busy}\n\n{table(found)}"


def main(arguments: Sequence[str]) -> int:
    parser = command_line("explorer", __doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join(CASES)}; all without any")
    parser.add_argument("--plans", type=Path, metavar="FOLDER", help="keep the plans there, or take those that are")
    parser.add_argument("--quick", action="store_true", help="a few times each, to see that it works; keeps nothing")
    options = parser.parse_args(arguments)
    if strange := [c for c in options.cases if c not in CASES]:
        parser.error(f"there is no case {strange[0]}: {', '.join(CASES)}")
    failed = 0
    if not options.table:
        with tempfile.TemporaryDirectory() as temporary:
            folder = (options.plans or Path(temporary)).absolute()
            prepared(folder)
            for case in options.cases or CASES:
                about = {"case": case, "folder": str(folder), "quick": options.quick}
                answer = measured("benchmarks.explorer_measure", about, 900)
                if "failed" in answer:
                    print(f"{case} failed: {answer['failed']}", file=sys.stderr)
                    failed = 1
                    continue
                print(table(answer["found"]), file=sys.stderr)
                if not options.quick:
                    keep(case, answer["found"])
    if not options.quick:
        print(made())
        fill(PERFORMANCE, "explorer", made())
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
