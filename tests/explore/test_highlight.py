"""Colours by regular expressions."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hapdsl.explore.highlight import DARK, LIGHT, spans

from .conftest import FILES


@given(st.text(alphabet=st.sampled_from('ab.@S(01)RP?#"\\ {};,=+-[]\tµ\u0300'), max_size=60))
def test_any_line_gives_spans_in_order_inside_it(line: str) -> None:
    end = 0
    for start, stop, kind in spans(line):
        assert end <= start < stop <= len(line)
        assert kind in DARK and kind in LIGHT
        end = stop


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("    h@S(0) = relu(z@P)  # ok", [("S(0)", "S0"), ("relu", "call"), ("P", "P"), ("# ok", "comment")]),
        (
            "    w@(S(1), R) = all_gather(w@?)",
            [("S(1)", "S1"), ("R", "R"), ("all_gather", "collective"), ("?", "hole")],
        ),
        ("program p for m on c {", [("program", "keyword"), ("for", "keyword"), ("on", "keyword")]),
        ("    input x : f32[batch, 64]", [("input", "keyword"), ("f32", "type"), ("64", "number")]),
        ("        x@R = input()", [("R", "R"), ("input", "call")]),
        ("    b1.grad@P = sum(a.grad@S(0), 0)", [("P", "P"), ("sum", "call"), ("S(0)", "S0"), ("0", "number")]),
        ('import "a # b.hap"', [("import", "keyword"), ('"a # b.hap"', "text")]),
        ("    ...", [("...", "hole")]),
        ("    w1 = layer.0.x", []),
    ],
)
def test_kinds(line: str, expected: list[tuple[str, str]]) -> None:
    assert [(line[a:b], kind) for a, b, kind in spans(line)] == expected


def test_every_kind_of_both_palettes_is_there() -> None:
    assert DARK.keys() == LIGHT.keys()


def test_thousands_of_lines_take_milliseconds() -> None:
    lines = [f"{line}  # {k}" for k in range(100) for line in (FILES / "small.hap").read_text().split("\n")]
    spans.cache_clear()
    started = time.process_time()
    for line in lines:
        spans(line)
    assert (time.process_time() - started) / len(lines) < 2e-4
