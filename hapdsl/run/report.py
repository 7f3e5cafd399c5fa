"""What is said of steps: loss, metrics, the norm of the gradients, samples a second. Kept locally, added up over the ranks now and then."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hapdsl.graph.program import Value
from hapdsl.run.distributed import Rank
from hapdsl.run.pieces import counts

Told = Callable[["Line"], None]


@dataclass(frozen=True)
class Line:
    """One report: at `step`; `step_s` is the mean since the last one, on the wall clock and all told; `samples_s` are samples a second.

    `grad_norm` is the norm of all gradients before clipping, in this step; `scale` that of f16's gradients, `skipped` the steps that it had skipped.
    """

    step: int
    loss: float | None
    grad_norm: float | None
    step_s: float
    samples_s: float | None
    metrics: dict[str, float] = field(default_factory=dict)
    scale: float | None = None
    skipped: int | None = None
    drift: list[dict[str, Any]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Without what isn't there; None for numbers that aren't finite."""
        found = {k: v for k, v in asdict(self).items() if v not in (None, [], {})}
        if self.metrics:
            found["metrics"] = {n: finite(x) for n, x in self.metrics.items()}
        if self.drift:
            found["drift"] = [{**d, "gap": finite(d["gap"])} for d in self.drift]
        return {k: finite(v) if isinstance(v, float) else v for k, v in found.items()}


def finite(x: float) -> float | None:
    """None for what JSON has no number for."""
    return x if math.isfinite(x) else None


class Scalars:
    """Losses and metrics of a rank's steps; between reports they stay local, outside the timed steps."""

    def __init__(self, rank: Rank) -> None:
        graph, goals = rank.program.graph, rank.lowered.goals
        named = {n: goals.outputs[n] for n in graph.metrics if n in goals.outputs and not graph.tensors[n].shape}
        self.rank = rank
        self.names = (["loss"] if goals.loss is not None else []) + list(named)
        self.values = ([goals.loss] if goals.loss is not None else []) + list(named.values())
        self.weights = torch.tensor(
            [float(counts(rank.program, v, rank.rank)) for v in self.values], dtype=torch.float64
        )
        self.samples = graph.undivided.batch_size
        self.pending: list[Tensor] = []
        self.loss: list[float] = []
        self.metrics: dict[str, float] = {}
        self.evaluates, self.seen = not graph.updates, 0
        self.grad_norm: float | None = None
        self.since = time.perf_counter()

    def add(self, goals: dict[Value, Tensor]) -> None:
        if self.values:
            self.pending.append(torch.stack([goals[v].double() for v in self.values]))

    def so_far(self, name: str, values: Tensor) -> float:
        """A metric after these steps: in training the last value, in evaluation the mean over all batches."""
        if not self.evaluates:
            return float(values[-1])
        return (self.metrics.get(name, 0.0) * self.seen + float(values.sum())) / (self.seen + len(values))

    def settle(self, step: int, drift: list[dict[str, Any]]) -> Line:
        """Add up what is pending over the ranks, which all must call it. The last step must have measured its gradients."""
        steps = max(1, len(self.pending))
        rows = torch.stack(self.pending).cpu() if self.pending else torch.zeros(1, 0, dtype=torch.float64)
        self.pending = []
        # a replica that doesn't count is left out by its weight: 0 times an infinite loss wouldn't be 0
        rows = torch.where(self.weights > 0, rows, 0)
        sent = torch.cat([rows.reshape(-1), self.rank.gradients.total().reshape(1)])
        dist.all_reduce(sent)
        rows, squares = sent[:-1].reshape(rows.shape), float(sent[-1])
        for k, name in enumerate(self.names):
            if k == 0 and name == "loss":
                self.loss += rows[:, k].tolist()
            else:
                self.metrics[name] = self.so_far(name, rows[:, k])
        self.seen += len(rows)
        now = time.perf_counter()
        each, self.since = (now - self.since) / steps, now
        gradients = self.rank.gradients
        self.grad_norm = (
            math.sqrt(squares) if gradients.counted and squares >= 0 else (math.nan if gradients.counted else None)
        )
        return Line(
            step,
            self.loss[-1] if self.loss else None,
            self.grad_norm,
            each,
            self.samples / each if self.samples is not None else None,
            dict(self.metrics),
            gradients.scale.value if gradients.scale else None,
            gradients.scale.skipped if gradients.scale else None,
            drift,
        )
