"""How a program is run: what doesn't change what it computes, but on what, how exactly, and what is watched."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.diagnostics import error
from hapdsl.run.backends import Backend, choose
from hapdsl.run.context import DTYPES
from hapdsl.theory.dtypes import FLOATS


@dataclass(frozen=True)
class How:
    """`backend` and `device` are names (None: the one that goes with the other, gloo on cpu). `dtype` runs all floating tensors as one;
    `scale` is that of gradients in f16: "auto", "off" or a number. `check_replicas` compares replicas every so many steps, 0 never.
    `workers` processes per rank load data ahead. `compiled` has torch.compile make one function of what stands between two collectives."""

    backend: str | None = None
    device: str | None = None
    dtype: str | None = None
    scale: str | float = "auto"
    check_replicas: int = 0
    workers: int = 0
    compiled: bool = False

    @property
    def chosen(self) -> Backend:
        """Raises HapError HAP721."""
        return choose(self.backend, self.device)

    def precision(self, graph: TrainingGraph, otherwise: torch.dtype | None = None) -> torch.dtype | None:
        """The dtype of all floating tensors, None where each has its own. Raises HapError HAP722 for a name that is none, and for optimizer
        state in f16, which loses what it adds up (squares of gradients below 2e-4 are 0 there)."""
        if self.dtype is None:
            return otherwise
        if self.dtype not in FLOATS or self.dtype not in DTYPES:
            raise error(
                "HAP722",
                f"'{self.dtype}' is no floating dtype",
                help=f"one of {', '.join(n for n in DTYPES if n in FLOATS)}",
            )
        state = next((t.name for t in graph.of_kind("state") if t.dtype in FLOATS), None)
        if self.dtype == "f16" and state is not None:
            raise error("HAP722", f"'{state}' can't be f16: optimizer state would be lost to rounding", help="declare parameters `f16[…] master f32`, as programs/models/mixed.hap does with compute = f16")  # fmt: skip
        return DTYPES[self.dtype]
