"""Kernels: what `torch "hapdsl.NAME"` of a declaration calls, one module per file of the standard theory.

A kernel takes a Context, the local operands in the order of the declaration (None for an optional one that is
left out) and the attributes by name; it returns the local outputs and never changes its operands, but for those that it is registered to write
over (`OVER`).
It is not called where an index of the call is empty on this device.
"""

from __future__ import annotations

from hapdsl.run.kernels import (
    attention,
    choose,
    convolution,
    imported,
    layout,
    linear,
    moe,
    normalize,
    optimize,
    pointwise,
    reduce,
)
from hapdsl.run.kernels.registry import KERNELS, OVER, Kernel, kernel, resolve

__all__ = [
    "KERNELS",
    "OVER",
    "Kernel",
    "attention",
    "choose",
    "convolution",
    "imported",
    "kernel",
    "layout",
    "linear",
    "moe",
    "normalize",
    "optimize",
    "pointwise",
    "reduce",
    "resolve",
]
