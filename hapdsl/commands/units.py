"""Numbers as a person reads them, and tables of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, SupportsFloat

from hapdsl.lang.amounts import in_bytes

if TYPE_CHECKING:
    from hapdsl.cluster import Cluster


def percent(part: float) -> str:
    """`38 %`, `0.38 %`: two digits where it is small."""
    return f"{part * 100:.2g} %" if 0 < part < 0.1 else f"{part * 100:.0f} %"


def shares(values: Sequence[int]) -> str:
    """`76 76 4*26`: runs of more than three are counted."""
    found: list[str] = []
    k = 0
    while k < len(values):
        count = 1
        while k + count < len(values) and values[k + count] == values[k]:
            count += 1
        found += [f"{count}*{values[k]}"] if count > 3 else [str(values[k])] * count
        k += count
    return " ".join(found)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Columns two spaces apart under their heads; the columns in `right` are set flush right."""
    from io import StringIO

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for k, name in enumerate(head):
        found.add_column(Text(name), justify="right" if k in right else "left", no_wrap=True)
    for row in rows:
        found.add_row(*(Text(cell) for cell in row))
    console = Console(file=StringIO(), width=2000, color_system=None, highlight=False)
    console.print(found)
    written = console.file
    assert isinstance(written, StringIO)
    return "\n".join(line.rstrip() for line in written.getvalue().rstrip("\n").split("\n"))


def memory_table(cluster: Cluster, memory: Iterable[SupportsFloat]) -> str:
    """Peak memory per device beside what it has; equal neighbours share a row."""
    rows: list[list[str]] = []
    counts: list[int] = []
    for device, peak in zip(cluster.devices, memory, strict=True):
        cells = [in_bytes(float(peak)), in_bytes(device.memory)]
        if rows and rows[-1][1:] == cells and rows[-1][0].rpartition(".")[0] == device.name.rpartition(".")[0]:
            counts[-1] += 1
        else:
            rows.append([device.name, *cells])
            counts.append(1)
    shown = [
        (name if n == 1 else f"{name} and {n - 1} more", *rest) for (name, *rest), n in zip(rows, counts, strict=True)
    ]
    return table(("device", "memory", "of"), shown, right=(1, 2))


def indented(text: str, by: int = 2) -> str:
    """The text with so many blanks before each line that holds something."""
    return "\n".join(" " * by + line if line else line for line in text.split("\n"))
