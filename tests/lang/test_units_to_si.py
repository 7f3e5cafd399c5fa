"""Quantities in SI units, against the definitions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.nodes import Quantity
from hapdsl.lang.units import UNITS, dimension_of, to_si


@pytest.mark.parametrize(
    ("value", "unit", "dimension", "expected"),
    [
        (16, "GiB", "bytes", 16 * 2**30),
        (16, "GB", "bytes", 16_000_000_000),
        (8, "Gbit", "bytes", 10**9),
        (1, "Kibit", "bytes", 128),
        (3, "B", "bytes", 3),
        (10.4, "Gbit/s", "bytes/s", 1.3e9),
        (900, "GB/s", "bytes/s", 9e11),
        (1, "GiB/s", "bytes/s", 2.0**30),
        (50, "us", "seconds", 5e-5),
        (50, "µs", "seconds", 5e-5),
        (50, "\u03bcs", "seconds", 5e-5),  # the Greek letter, which many keyboards give
        (3, "ms", "seconds", 0.003),
        (7, "ns", "seconds", 7e-9),
        (2, "h", "seconds", 7200),
        (14, "TFLOP/s", "FLOP/s", 14e12),
        (9.3, "TFLOP/s", "FLOP/s", 9.3e12),
        (-5, "us", "seconds", -5e-6),
        (0, "GB", "bytes", 0),
    ],
)
def test_values(value, unit, dimension, expected):
    assert to_si(Quantity(value, unit), dimension) == expected


def test_clusters_may_say_it_in_their_words():
    assert to_si(Quantity(1, "GB"), "memory") == 1e9
    assert to_si(Quantity(1, "GB/s"), "bandwidth") == 1e9
    assert to_si(Quantity(1, "s"), "time") == 1
    assert to_si(Quantity(1, "GFLOP/s"), "compute") == 1e9


def test_a_unit_has_one_dimension():
    names = [unit for known in UNITS.values() for unit in known]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("dimension", sorted(UNITS))
def test_each_unit_is_correctly_rounded(dimension):
    for unit, (numerator, denominator) in UNITS[dimension].items():
        assert dimension_of(unit) == dimension
        for value in (1, 3, 7, 10, 123456789):
            assert to_si(Quantity(value, unit), dimension) == float(Fraction(value * numerator, denominator))


@pytest.mark.parametrize(
    ("unit", "dimension", "code", "help"),
    [
        ("GB", "bytes/s", "HAP491", "GB/s"),
        ("Gbit", "bytes/s", "HAP491", "8 Gbit/s are 1 GB/s"),
        ("GB/s", "bytes", "HAP491", "isn't per second: GB"),
        ("GB/s", "FLOP/s", "HAP491", "TFLOP/s"),
        ("us", "bytes", "HAP491", "16 GiB"),
        ("Gbps", "bytes/s", "HAP490", "Gbit/s"),
        ("Gb/s", "bytes/s", "HAP490", "Gbit/s for bits (GB/s would be bytes"),
        ("gib", "bytes", "HAP490", "GiB"),
        ("TFLOPS", "FLOP/s", "HAP490", "TFLOP/s"),
        ("TFLOPs", "FLOP/s", "HAP490", "TFLOP/s"),
        ("usec", "seconds", "HAP490", "us"),
        ("parsec", "bytes", "HAP490", "16 GiB"),
        ("GB", "1", "HAP491", "0.5"),
    ],
)
def test_wrong_units_are_told_apart_with_advice(unit, dimension, code, help):
    with pytest.raises(HapError) as caught:
        to_si(Quantity(1, unit), dimension)
    (d,) = caught.value.diagnostics
    assert d.code == code
    assert help in d.help


def test_out_of_range():
    for value in (math.inf, -math.inf, math.nan, 1e308):
        with pytest.raises(HapError) as caught:
            to_si(Quantity(value, "TB"), "bytes")
        assert caught.value.diagnostics[0].code == "HAP492"
