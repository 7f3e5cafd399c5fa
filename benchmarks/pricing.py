"""`python -m benchmarks.pricing`: what it takes to parse, check and price a program, from scratch and after an edit.

    python -m benchmarks.pricing                 4 to 96 layers on 8 devices, 24 layers on 8 to 1,024; a few minutes
    python -m benchmarks.pricing 24x8 24x1024    some cases: LAYERSxDEVICES
    python -m benchmarks.pricing --table         the table of docs/performance.md once more, from what was measured

Each case has a fresh interpreter and plans the program first, which isn't measured. Numbers are CPU milliseconds, the least of several runs, so that
what else runs on the machine counts little. What is found is kept in benchmarks/results/pricing.jsonl, a line per case.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmarks import rows
from benchmarks.apart import measured
from benchmarks.campaign import command_line
from benchmarks.cases import four_kinds
from benchmarks.pages import PERFORMANCE, fill, markdown
from benchmarks.rows import RESULTS, Row

LINES = RESULTS / "pricing.jsonl"
SECONDS = 1800.0  # of one case at most


@dataclass(frozen=True)
class Case:
    """A GPT of so many layers, planned for so many devices of four kinds."""

    layers: int
    devices: int


CASES = [Case(*each) for each in ((4, 8), (12, 8), (24, 8), (36, 8), (48, 8), (96, 8), (24, 64), (24, 256), (24, 1024))]
COLUMNS = {
    "parse": "parse", "check": "check", "price": "price", "price edit": "price, one line edited", "live first": "first reading", "live line": "a line in all layers",
    "live more": "a line more", "live wrong": "a line wrong", "live half": "a line half typed",
}  # fmt: skip


def measurements() -> list[Row]:
    """The newest row of each case, by devices and layers."""
    found = {(row["devices"], row["layers"]): row for row in rows.read(LINES)}
    return [found[key] for key in sorted(found)]


def table(found: Sequence[Row]) -> str:
    """Markdown; all times in CPU milliseconds."""
    count = ("layers", "devices", "lines", "instructions")
    body = [(*(str(row[c]) for c in count), *(f"{1e3 * row[c]:.1f}" for c in COLUMNS)) for row in found]
    return markdown((*count, *COLUMNS.values()), body)


def made() -> str:
    """The table, from what was measured, and on what; nothing where nothing was."""
    found = measurements()
    if not found:
        return ""
    known = [(row["layers"], row["devices"]) for row in found]
    left = [f"{c.layers}x{c.devices}" for c in CASES if (c.layers, c.devices) not in known]
    more = f"\nNot measured yet: `python -m benchmarks.pricing {' '.join(left)}`.\n" if left else ""
    return f"{rows.measured_on(found)}\n\n{table(found)}{more}"


def main(arguments: Sequence[str]) -> int:
    parser = command_line("pricing", __doc__)
    parser.add_argument("cases", nargs="*", metavar="LAYERSxDEVICES")
    options = parser.parse_args(arguments)
    if wrong := [c for c in options.cases if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", c)]:
        parser.error(f"'{wrong[0]}' isn't LAYERSxDEVICES, such as 24x8")
    wanted = [Case(*map(int, c.split("x"))) for c in options.cases] or CASES
    for case in wanted:
        try:
            four_kinds(case.devices)
        except ValueError as problem:
            parser.error(str(problem))
    failed = 0
    for case in [] if options.table else wanted:
        answer = measured("benchmarks.pricing_measure", asdict(case), SECONDS)
        if "failed" in answer:
            print(f"{case.layers}x{case.devices} failed: {answer['failed']}", file=sys.stderr)
            failed = 1
            continue
        row = {**asdict(case), "machine": rows.machine(), **answer["found"]}
        others = [r for r in measurements() if (r["layers"], r["devices"]) != (case.layers, case.devices)]
        rows.write(LINES, [*others, row])
        print(f"{case.layers} layers, {case.devices} devices: {row['price'] * 1e3:.1f} ms", file=sys.stderr)
    print(made())
    fill(PERFORMANCE, "pricing", made())
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
