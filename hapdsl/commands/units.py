"""Numbers as a person reads them, and tables of them."""

from __future__ import annotations

from collections.abc import Sequence


def ms(seconds: float) -> str:
    """Seconds as milliseconds with three digits that count."""
    value = seconds * 1e3
    if value and abs(value) < 0.0995:
        return f"{value * 1e3:.3g} us"
    if abs(value) >= 9999.5:
        return f"{seconds:,.1f} s"
    return f"{value:.{2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0}f} ms"


def mib(size: float) -> str:
    """Bytes in the binary unit that leaves three digits."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(size) >= scale:
            value = size / scale
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"
    return f"{size:.0f} B"


def percent(part: float) -> str:
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


def indented(text: str, by: int = 2) -> str:
    return "\n".join(" " * by + line if line else line for line in text.split("\n"))
