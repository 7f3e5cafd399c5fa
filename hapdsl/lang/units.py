"""Quantities to SI: bytes, bytes per second, seconds, FLOP per second, plain numbers.

GB (10^9 bytes), GiB (2^30 bytes) and Gbit (10^9 bits, an eighth of a GB) are different things and stay so.
"""

from __future__ import annotations

import math

from hapdsl.lang.diagnostics import error
from hapdsl.lang.near import meant, near
from hapdsl.lang.nodes import Quantity

_DECIMAL = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5}

# Dimension -> unit -> how many of the dimension's SI unit one of it is, as an exact fraction (numerator, denominator):
# 1 us must be 1 / 10^6 correctly rounded, which 1e-6 times something is not always.
UNITS: dict[str, dict[str, tuple[int, int]]] = {
    "bytes": {
        **{f"{prefix}B": (1000**power, 1) for prefix, power in _DECIMAL.items()},
        **{f"{prefix}B": (1024**power, 1) for prefix, power in _BINARY.items()},
        **{f"{prefix}bit": (1000**power, 8) for prefix, power in _DECIMAL.items()},
        **{f"{prefix}bit": (1024**power, 8) for prefix, power in _BINARY.items()},
        "byte": (1, 1),
        "bytes": (1, 1),
    },
    "seconds": {
        "s": (1, 1), "ms": (1, 10**3), "us": (1, 10**6), "µs": (1, 10**6), "μs": (1, 10**6), "ns": (1, 10**9), "min": (60, 1), "h": (3600, 1),
    },
    "FLOP/s": {f"{prefix}FLOP/s": (1000**power, 1) for prefix, power in _DECIMAL.items()},
    "FLOP": {f"{prefix}FLOP": (1000**power, 1) for prefix, power in _DECIMAL.items()},
}  # fmt: skip
UNITS["bytes/s"] = {f"{unit}/s": factor for unit, factor in UNITS["bytes"].items()}
UNITS["1"] = {}

_WORDS = {
    "bytes": ("an amount of memory", "16 GiB"),
    "bytes/s": ("a bandwidth", "12 GB/s"),
    "seconds": ("a time", "10 us"),
    "FLOP/s": ("a computing speed", "14 TFLOP/s"),
    "FLOP": ("an amount of work", "2 GFLOP"),
    "1": ("a number without a unit", "0.5"),
}
# The words that clusters use for the same dimensions.
_ALIASES = {"memory": "bytes", "bandwidth": "bytes/s", "time": "seconds", "compute": "FLOP/s"}


def dimension_of(unit: str) -> str | None:
    """The dimension a unit measures ("bytes", "bytes/s", "seconds", "FLOP", "FLOP/s"), None for an unknown unit."""
    return next((dimension for dimension, known in UNITS.items() if unit in known), None)


def to_si(quantity: Quantity, dimension: str) -> float:
    """The quantity in bytes, bytes/s, seconds, FLOP or FLOP/s; `dimension` is one of these, "1", or the cluster's word
    for it (memory, bandwidth, time, compute).

    Raises HapError: HAP490 for an unknown unit, HAP491 for a unit of another dimension, HAP492 for a value out of
    range. Signs and limits are the caller's business.
    """
    wanted = _ALIASES.get(dimension, dimension)
    factor = UNITS[wanted].get(quantity.unit)
    if factor is None:
        what, example = _WORDS[wanted]
        found = dimension_of(quantity.unit)
        if found is None:
            raise error("HAP490", f"unknown unit {quantity.unit}", quantity.span, _closest(quantity.unit, wanted) or f"{what} reads {example}")  # fmt: skip
        message = f"expected {what}, found {_WORDS[found][0]} ({quantity.unit})"
        raise error("HAP491", message, quantity.span, _advice(quantity.unit, wanted, found) or f"write, say, {example}")
    numerator, denominator = factor
    try:
        value = quantity.value * numerator / denominator
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise error("HAP492", f"{quantity.value} {quantity.unit} is no finite amount", quantity.span)
    return value


def _closest(unit: str, wanted: str) -> str:
    """The known unit that was probably meant: `gb/s`, `TFLOPS`, `Gb`."""
    spelled = unit.removesuffix("ps") + "/s" if unit.endswith("bps") else unit
    candidates = list(UNITS[wanted])
    if unit.upper().endswith("FLOPS") and wanted == "FLOP/s":
        return f"write {unit[:-5]}FLOP/s"
    bits = (
        spelled.replace("b/s", "bit/s") if spelled.endswith("b/s") else spelled + "it" if spelled.endswith("b") else ""
    )
    if bits in candidates:
        return f"{bits} for bits ({spelled.replace('b', 'B')} would be bytes, eight times as much)"
    folded = {c.lower(): c for c in reversed(candidates)}
    if spelled.lower() in folded:
        return meant(folded[spelled.lower()])
    return near(unit, candidates)


def _advice(unit: str, wanted: str, found: str) -> str:
    if (wanted, found) == ("bytes/s", "bytes"):
        return f"a bandwidth is per second: {unit}/s" + ("; 8 Gbit/s are 1 GB/s" if "bit" in unit else "")
    if (wanted, found) == ("bytes", "bytes/s"):
        return f"an amount isn't per second: {unit.removesuffix('/s')}"
    if (wanted, found) == ("FLOP/s", "FLOP"):
        return f"a speed is per second: {unit}/s"
    if wanted == "FLOP/s" and found in ("bytes", "bytes/s"):
        return "speed of computing is counted in FLOP/s: 14 TFLOP/s"
    return ""
