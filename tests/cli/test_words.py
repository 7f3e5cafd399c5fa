"""Numbers as a person reads them."""

from __future__ import annotations

import numpy as np
import pytest

from hapdsl.commands.output import plain
from hapdsl.commands.units import percent, shares, table
from hapdsl.lang.amounts import in_bytes, in_seconds


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "0 s"), (1.234e-3, "1.23 ms"), (0.01234, "12.3 ms"), (0.1234, "123 ms"), (3e-6, "3.00 us"), (12.5, "12.5 s"), (9.9996e-3, "10.0 ms"), (4.2e-9, "4.20 ns"), (1234.0, "1,234 s")],
)  # fmt: skip
def test_seconds(seconds: float, words: str) -> None:
    assert in_seconds(seconds) == words


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (2**20 * 11.61, "11.6 MiB"), (40 * 2**30, "40.0 GiB")],
)
def test_sizes(size: float, words: str) -> None:
    assert in_bytes(size) == words


def test_percent() -> None:
    assert [percent(p) for p in (0.0, 0.00033, 0.05, 0.42)] == ["0 %", "0.033 %", "5 %", "42 %"]


def test_shares() -> None:
    assert shares([76, 76, 26, 26, 26, 26]) == "76 76 4*26"
    assert shares([]) == ""


def test_a_table_keeps_brackets() -> None:
    assert table(("a", "b"), [("f32[b, s]", "[/x]"), ("[", "1")]).split("\n") == [
        "a          b",
        "f32[b, s]  [/x]",
        "[          1",
    ]


def test_json_has_no_nan() -> None:
    found = plain(
        {"a": float("nan"), "b": [np.float64("inf"), np.int64(3)], "c": np.array([1.5, np.nan]), "d": (True, None)}
    )
    assert found == {"a": None, "b": [None, 3], "c": [1.5, None], "d": [True, None]}
