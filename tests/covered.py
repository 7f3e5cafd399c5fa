"""`python -m tests.covered [TESTS …] [--missing FOLDER …]`: which branches of hapdsl the tests take, by folder.

Each folder under tests/ is a portion, measured by a pytest of its own (two portions at a time); what it took is kept in build/coverage/,
with what pytest said. Portions that are named are measured anew; the table is over all that are there, so that after a change the portion
that it touches is enough. Command lines, helpers of the explorer and ranks count, each as a process of its own; one that a test kills
can't say what it did. Tests that fail (tracing is slow, and some watch the clock) are counted, and the table still comes. Once all portions
are there, it goes into CONTRIBUTING.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

from benchmarks.pages import fill
from tests.texts import REPOSITORY

KEPT = REPOSITORY / "build" / "coverage"
BESIDE = "beside"  # the tests that are in no folder
AT_ONCE = 2
PER_TEST_S = 1000  # tracing is slow


def portions() -> list[str]:
    """The folders under tests/ that hold tests, and the files beside them as one portion; what takes long is likely to come first."""
    sizes: Counter[str] = Counter()
    for file in (REPOSITORY / "tests").glob("**/test_*.py"):
        sizes[BESIDE if file.parent.name == "tests" else file.parent.name] += file.stat().st_size
    return [name for name, _ in sizes.most_common()]


def coverage(*words: str, kept: Path, said: int | None = None, check: bool = True) -> int:
    """Run `coverage WORDS` with its data at `kept`; what it says goes to the file `said`."""
    environment = {**os.environ, "COVERAGE_FILE": str(kept), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "coverage", *words]
    ran = subprocess.run(
        command, cwd=REPOSITORY, env=environment, stdout=said, stderr=said and subprocess.STDOUT, check=check
    )
    return ran.returncode


def measure(portion: str) -> str:
    """Run one portion and keep what it took as one file; the last line that pytest said."""
    files = (REPOSITORY / "tests").glob("test_*.py") if portion == BESIDE else [REPOSITORY / "tests" / portion]
    with tempfile.TemporaryDirectory() as folder, open(KEPT / f"{portion}.txt", "w+", encoding="utf-8") as said:
        pytest = ["-m", "pytest", "--timeout", str(PER_TEST_S), *(str(file.relative_to(REPOSITORY)) for file in files)]
        name = f"portion.{portion}"  # `combine` looks for files that are called like its result
        coverage("run", *pytest, kept=Path(folder, name), said=said.fileno(), check=False)
        coverage("combine", "-q", folder, kept=KEPT / name, said=said.fileno(), check=False)
        said.seek(0)
        ends = [line for line in said if " in " in line and ("passed" in line or "failed" in line or "error" in line)]
    return ends[-1].strip() if ends else f"stopped; see {KEPT.relative_to(REPOSITORY) / portion}.txt"


def by_folder(files: dict[str, dict[str, dict[str, int]]]) -> list[tuple[str, int, int, int, int]]:
    """(folder, statements, of these taken, branches, of these taken) of coverage's JSON, folder by folder, then all."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for name, found in files.items():
        parts = Path(name).parts
        for folder in ("/".join(parts[:2]) if len(parts) > 2 else parts[0], "all"):
            for k, of in enumerate(("num_statements", "covered_lines", "num_branches", "covered_branches")):
                sums[folder][k] += found["summary"][of]
    rows = [(folder, *counts) for folder, counts in sorted(sums.items(), key=lambda row: (row[0] == "all", row[0]))]
    return [(folder, a, b, c, d) for folder, a, b, c, d in rows]


def table(rows: Iterable[tuple[str, int, int, int, int]]) -> str:
    """The rows as Markdown."""
    lines = ["| Folder | Statements | taken | Branches | taken |", "|---|---:|---:|---:|---:|"]
    for folder, statements, taken, branches, both in rows:
        shares = [
            f"{100 * part / whole:.1f} %" if whole else "—" for part, whole in ((taken, statements), (both, branches))
        ]
        lines.append(f"| {folder} | {statements:,} | {shares[0]} | {branches:,} | {shares[1]} |")
    return "\n".join(lines)


def missing(files: dict[str, dict[str, list[list[int]]]], folders: list[str]) -> list[str]:
    """`file: from->to, …` for every branch in these folders that no test takes; 'exit' where it leaves the function."""
    found = []
    for name, file in sorted(files.items()):
        if any(name.startswith(folder) for folder in folders) and file["missing_branches"]:
            ways = ", ".join(f"{a}->{b if b > 0 else 'exit'}" for a, b in file["missing_branches"])
            found.append(f"{name}: {ways}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.covered", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("tests", nargs="*", help="portions to measure anew, as tests/check; all when there is none")
    parser.add_argument(
        "--missing", nargs="+", default=[], metavar="FOLDER", help="list branches not taken, as hapdsl/check"
    )
    parser.add_argument("--again", action="store_true", help="measure nothing, only show what is there")
    asked = parser.parse_args()
    named = [name.removeprefix("tests/").strip("/") for name in asked.tests]
    if unknown := [name for name in named if name not in portions()]:
        parser.error(f"no portion {', '.join(unknown)}; there are {', '.join(portions())}")
    if not named and not asked.again:
        shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    failed = False
    wanted = [] if asked.again else named or portions()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for portion, end in zip(wanted, pool.map(measure, wanted), strict=True):
            print(f"{portion}: {end}", file=sys.stderr, flush=True)
            failed |= "failed" in end or "error" in end or "stopped" in end
    kept = sorted(str(p) for p in KEPT.glob("portion.*"))
    if not kept:
        parser.error("nothing has been measured yet")
    whole = KEPT / "all"
    whole.unlink(missing_ok=True)
    coverage("combine", "-q", "--keep", *kept, kept=whole)
    coverage("json", "-q", "-o", str(KEPT / "all.json"), kept=whole)
    files = json.loads((KEPT / "all.json").read_text(encoding="utf-8"))["files"]
    made = table(by_folder(files))
    print(made)
    if len(kept) == len(portions()):
        fill(REPOSITORY / "CONTRIBUTING.md", "covered", f"{made}\n\nMeasured on {date.today():%-d %B %Y}.", of="tests")
    for line in missing(files, asked.missing):
        print(line)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
