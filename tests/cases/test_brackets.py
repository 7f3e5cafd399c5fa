"""Brackets in text stay as they are, and the end of a file has a line and a column.

Elsewhere: text such as `f32[b, s]` or `[/x]` was taken for markup and vanished or raised; errors at the end of input had no position.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.parse import parse
from hapdsl.lang.show import render
from tests.texts import PROGRAMS, REFERENCE

EXAMPLES = sorted([*PROGRAMS.rglob("*.hap"), REFERENCE])


@pytest.mark.parametrize(
    "line", ["param w : f32[b, s] [/x]", "x = [bold]red[/bold](", "y = f([/x])", "z = relu(x) [red]"]
)
def test_what_is_shown_is_what_was_written(line: str) -> None:
    text = f"model m {{\n    {line}\n}}\n"
    with pytest.raises(HapError) as stop:
        parse(text, "m.hap")
    shown = render(stop.value.diagnostics[0], text)
    assert line in shown and "^" in shown


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_a_file_cut_off_anywhere_has_a_position(path: Path) -> None:
    """Cut at line ends: inside a block the file ends too early, and that is said of its end; between blocks nothing is wrong."""
    lines = path.read_text(encoding="utf-8").splitlines()
    last = len(lines)
    for cut in range(1, last, max(1, last // 25)):
        text = "\n".join(lines[:cut]) + "\n"
        written = re.sub(r'"[^"\n]*"|#.*', "", text)
        if not sum(written.count(left) - written.count(right) for left, right in ("()", "[]", "{}")):
            parse(text, path.name)
            continue
        with pytest.raises(HapError) as stop:
            parse(text, path.name)
        for d in stop.value.diagnostics:
            assert 1 <= d.span.line <= cut + 1 and d.span.column >= 1, d
            assert len(d.message.split()) >= 3
