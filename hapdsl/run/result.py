"""What a run gives, put together from what its first rank reports."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from hapdsl.graph.program import Program
from hapdsl.run.report import Line, Told, finite
from hapdsl.run.tracing import Traces, received

Progress = Callable[[int, float], None]  # steps done, loss of the last one


@dataclass
class RunResult:
    """What a run gave. `step_s` is the median over steps, the first left out, of the slowest rank's seconds.

    `loss_diff` is the largest difference of loss over the run to one process, `param_diff` the largest difference of a
    parameter's element at the end; None where no such run was asked for. `final` holds parameters, buffers and state.
    `loss` begins with step `first_step`, which isn't 1 in a run that goes on from a checkpoint. `grad_norm` is that of the last step,
    `samples_s` the samples a second at the median step, `lines` the reports on the way (`hapdsl.run.report`).
    """

    steps: int
    step_s: float
    loss: list[float]
    loss_diff: float | None = None
    param_diff: float | None = None
    reference_loss: list[float] | None = None
    reference_step_s: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    final: dict[str, Tensor] = field(default_factory=dict)
    first_step: int = 1
    traces: Traces | None = None
    grad_norm: float | None = None
    samples_s: float | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The keys that `hapdsl run --json` prints; None for numbers that aren't finite."""
        found: dict[str, Any] = {
            "steps": self.steps,
            "first_step": self.first_step,
            "step_s": finite(self.step_s),
            "loss": [finite(x) for x in self.loss],
            "metrics": {n: finite(x) for n, x in self.metrics.items()},
            "grad_norm": None if self.grad_norm is None else finite(self.grad_norm),
            "samples_s": None if self.samples_s is None else finite(self.samples_s),
        }
        drift = [{"step": line["step"], **d} for line in self.lines for d in line.get("drift", ())]
        skipped = [line["skipped"] for line in self.lines if "skipped" in line]
        found |= {"drift": drift} if drift else {}
        found |= {"skipped": skipped[-1], "scale": self.lines[-1]["scale"]} if skipped else {}
        if self.reference_loss is not None:
            differences = {"loss_diff": self.loss_diff, "param_diff": self.param_diff}
            found |= {n: None if x is None else finite(x) for n, x in differences.items()}
        return found


class Gathered:
    """Collects what the first rank reports; under torchrun it is that rank's sink itself."""

    def __init__(self, progress: Progress | None, told: Told | None = None) -> None:
        self.progress, self.told = progress, told
        self.lines: list[dict[str, Any]] = []
        self.header: dict[str, Any] = {}
        self.final: dict[str, Tensor] = {}
        self.traces: Traces | None = None

    def send(self, kind: str, tensor: Tensor | None = None, **header: Any) -> None:
        self.receive(0, {"kind": kind, **header}, tensor)

    def receive(self, rank: int, header: dict[str, Any], tensor: Tensor | None) -> None:
        match header["kind"]:
            case "step":
                line = Line(**header["line"])
                self.lines.append(line.as_json())
                if self.told is not None:
                    self.told(line)
                if self.progress is not None:
                    self.progress(line.step, math.nan if line.loss is None else line.loss)
            case "result":
                self.header = header
            case "trace":
                assert tensor is not None
                self.traces = received(header, tensor)
            case "final":
                assert tensor is not None
                self.final[header["name"]] = tensor

    def result(self, program: Program, steps: int) -> RunResult:
        seconds = self.header["seconds"]
        median = statistics.median(seconds[1:] or seconds)
        samples = program.graph.undivided.batch_size
        return RunResult(
            steps,
            median,
            self.header["loss"],
            metrics=self.header["metrics"],
            final=self.final,
            traces=self.traces,
            grad_norm=self.header["grad_norm"],
            samples_s=samples / median if samples is not None and median else None,
            lines=self.lines,
        )
