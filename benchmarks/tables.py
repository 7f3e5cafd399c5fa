"""`python -m benchmarks.tables`: every table of the pages once more, from the rows in benchmarks/results. Measures nothing.

With --check nothing is written, and the status is 1 where a page has other figures than the rows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import accuracy, emulate, explorer, paper, pricing, search, summary
from benchmarks.pages import PERFORMANCE, README, fill, filled

TABLES: dict[str, tuple[Path, Callable[[], str]]] = {
    "search": (PERFORMANCE, search.made),
    "paper": (PERFORMANCE, paper.made),
    "emulate": (PERFORMANCE, emulate.made),
    "accuracy": (PERFORMANCE, accuracy.made),
    "pricing": (PERFORMANCE, pricing.made),
    "explorer": (PERFORMANCE, explorer.made),
    "summary": (README, summary.table),
}


def stale(name: str) -> bool:
    """Does a page say something else than the rows that its table is made of? Not where there are none."""
    page, made = TABLES[name]
    text, new = page.read_text(encoding="utf-8"), made()
    return bool(new) and filled(text, name, new) != text


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tables", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    old = [name for name in TABLES if stale(name)]
    for name in old:
        page, made = TABLES[name]
        if options.check:
            print(f"{page.name}: the table of benchmarks.{name} isn't that of its rows", file=sys.stderr)
        else:
            fill(page, name, made())
            print(f"{page.name}: made the table of benchmarks.{name} anew")
    return 1 if options.check and old else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
