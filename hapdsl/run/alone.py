"""The same model trained on this process alone: what a run is compared with."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Set

import torch
from torch import Tensor

from hapdsl.graph.training import TrainingGraph
from hapdsl.run import checkpoint_read
from hapdsl.run.checkpoint import Checkpoint
from hapdsl.run.course import Course
from hapdsl.run.data import open_feed
from hapdsl.run.initial import initial
from hapdsl.run.pieces import largest_gap
from hapdsl.run.reference import Reference, advance
from hapdsl.run.result import RunResult
from hapdsl.run.threads import one_thread


def train_alone(
    graph: TrainingGraph,
    steps: int,
    data: str,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    allow: Set[str] = frozenset(),
    resume: Checkpoint | None = None,
) -> RunResult:
    """Train the graph on this process, on one thread, with the reference executor, as `train` does on several."""
    scalars = [n for n in graph.metrics if not graph.tensors[n].shape]
    keep = {*([graph.loss] if graph.loss else []), *scalars, *graph.updates.values()}
    executor = Reference(graph, dtype, seed, allow, keep)
    feed = open_feed(data, graph, seed)
    first = Course(resume, evaluates=not graph.updates).first
    executor.clock.skipped = 0 if resume is None else int(resume.manifest.extra.get("skipped", 0))
    held = initial(graph, seed, dtype) if resume is None else dict(checkpoint_read.tensors(resume))
    loss: list[float] = []
    seconds: list[float] = []
    made: dict[str, Tensor] = {}
    with torch.no_grad(), one_thread():
        for step in range(first, steps + 1):
            batch = feed.batch(step)
            start = time.perf_counter()
            made = executor.step({**held, **batch}, step)
            seconds.append(time.perf_counter() - start)
            held = advance(graph, held, made)
            if graph.loss:
                loss.append(float(made[graph.loss]))
    metrics = {n: float(made[n]) for n in scalars if n in made}
    return RunResult(
        steps, statistics.median(seconds[1:] or seconds), loss, metrics=metrics, final=held, first_step=first
    )


def compare(result: RunResult, alone: RunResult, params: Iterable[str]) -> None:
    """Note in a run's result how far it is from the same run on one process; `params` are compared as far as the run brought them back."""
    result.reference_loss, result.reference_step_s = alone.loss, alone.step_s
    if alone.loss:
        ours, theirs = (torch.tensor(loss, dtype=torch.float64) for loss in (result.loss, alone.loss))
        result.loss_diff = largest_gap(ours, theirs, relative=False)
    gaps = (largest_gap(result.final[n], alone.final[n], relative=False) for n in params if n in result.final)
    result.param_diff = max(gaps, default=None)
