"""Amounts as a person reads them: the way out for seconds and bytes, as `lang.units` is the way in."""

from __future__ import annotations


def in_seconds(seconds: float) -> str:
    """Three digits and a unit: `1.23 ms`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size * 0.9995:
            return f"{_three(seconds / size)} {unit}"
    return f"{_three(seconds / 1e-9)} ns" if seconds > 0 else "0 s"


def in_bytes(size: float) -> str:
    """Three digits and a binary unit: `1.50 MiB`; whole bytes below 1 KiB."""
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 2**power * 0.9995:
            return f"{_three(size / 2**power)} {unit}"
    return f"{size:.0f} B"


def _three(number: float) -> str:
    if number >= 99.95:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"
