"""What benchmarks keep in benchmarks/results: rows, a line of JSON each, which say on which machine they were measured.

Tables are made of these rows alone, so `--table` (and `make tables`) gives the same pages on any machine.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.apart import ROOT
from hapdsl.lang.files import write_file

RESULTS = ROOT / "benchmarks" / "results"
Row = dict[str, Any]


def read(path: Path) -> list[Row]:
    """The rows of a file; none where it isn't there."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def latest(path: Path) -> dict[str, Row]:
    """The rows of a file by their `name`, of each the last; one without `found` counts only where no other has it."""
    rows: dict[str, Row] = {}
    for row in read(path):
        if "found" in row or "found" not in rows.get(row["name"], {}):
            rows[row["name"]] = row
    return rows


def write(path: Path, rows: Iterable[Row]) -> None:
    """Rows in the place of what the file had."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, "".join(f"{json.dumps(row)}\n" for row in rows))


def in_place(old: Sequence[Row], model: str, new: Iterable[Row]) -> list[Row]:
    """Rows of several models with those of one replaced, at its place or behind all others."""
    others = [row for row in old if row["model"] != model]
    before = next((k for k, row in enumerate(old) if row["model"] == model), len(others))
    return [*others[:before], *new, *others[before:]]


def append(path: Path, row: Row) -> None:
    """One row more: a run that is stopped has lost none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def machine() -> str:
    """What this runs on, without names of hosts."""
    from hapdsl.cluster.machine import usable_cores  # with numpy, which a measured process may do without

    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists() and (found := re.search(r"model name\s*:\s*(.+)", info.read_text())):
        model = found[1].strip()
    return f"{usable_cores()} cores ({model}), Python {platform.python_version()}"


def machines(rows: Sequence[Row]) -> str:
    """On what rows were measured, each machine once; nothing where they don't say."""
    return " and on ".join(dict.fromkeys(row["machine"] for row in rows if "machine" in row))


def measured_on(rows: Sequence[Row]) -> str:
    """The line above a table of cases: on what its rows were measured."""
    found = machines(rows)
    return f"Measured on {found}; one process a case." if found else ""
