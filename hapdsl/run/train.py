"""Training a program on local processes, and the same model on one process beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Set
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hapdsl.graph.program import Program, Value
from hapdsl.lang.diagnostics import error
from hapdsl.run import replicas
from hapdsl.run.allocator import keep_freed_memory
from hapdsl.run.alone import compare, train_alone
from hapdsl.run.checkpoint import Checkpoint
from hapdsl.run.checkpoint_write import Saving
from hapdsl.run.course import Course, Passage, course, reserved
from hapdsl.run.data import open_feed, remark
from hapdsl.run.distributed import Rank
from hapdsl.run.guarded import Fatal, joined
from hapdsl.run.how import How
from hapdsl.run.initial import Initial
from hapdsl.run.launch import launch, outer_rank
from hapdsl.run.loading import batches
from hapdsl.run.pieces import assemble, ranges, sizes
from hapdsl.run.report import Scalars, Told
from hapdsl.run.reporting import Sink
from hapdsl.run.result import Gathered, Progress, RunResult
from hapdsl.run.timing import Stopwatch
from hapdsl.run.tracing import Tracer, last


@dataclass(frozen=True)
class Job:
    """What every rank is told. `collect` brings the final parameters and state back."""

    program: Program
    steps: int
    data: str
    seed: int
    dtype: torch.dtype | None
    allow: Set[str]
    collect: bool
    every: int
    course: Course = field(default_factory=Course)
    trace: bool = False
    how: How = field(default_factory=How)


def train(
    program: Program,
    nproc: int,
    steps: int,
    data: str = "random",
    seed: int = 0,
    reference: bool = False,
    progress: Progress | None = None,
    dtype: torch.dtype | None = None,
    allow: Set[str] = frozenset(),
    collect: bool = True,
    names: list[str] | None = None,
    timeout_s: float = 600.0,
    resume: str | Path | Checkpoint | None = None,
    saving: Saving | None = None,
    trace: bool = False,
    how: How | None = None,
    told: Told | None = None,
    noted: Callable[[str], None] | None = None,
    fatal: Fatal | None = None,
) -> RunResult | None:
    """Train `program` up to step `steps` on `nproc` local processes (or as one rank of an existing torchrun).

    `reference` trains the same model on one process afterwards, from the same seed and on the same batches. `resume` goes on from a
    checkpoint, of the same program or another for the model (seed and data are the caller's to keep); `saving` writes some. `trace` stamps what the last steps do (`hapdsl.run.tracing`).
    `how` says on what it runs and what is watched, `told` hears of the reports on the way, `noted` before
    the first step what is worth a remark about the data. Under torchrun `fatal` says which rank is lost, and ends this process.
    Returns None on ranks of a torchrun that aren't the first. Raises HapError: HAP718 another number of processes
    than devices, HAP719 no steps, HAP71x data that doesn't fit, HAP720 a process that failed, HAP721 and HAP722 a device or dtype that isn't here, HAP75x what is wrong with checkpoints, and what kernels raise.
    """
    outer = outer_rank()
    if outer is None:
        right_number(nproc, program)
    else:
        _right_torchrun(program)
    if steps < 1:
        raise error("HAP719", f"{steps} steps: there is nothing to run", help="--steps 1 or more")
    feed = open_feed(data, program.graph, seed)
    feed.batch(1)  # what is wrong with the data is said before processes start
    how = how or How()
    backend, dtype = how.chosen, how.precision(program.graph, dtype)
    on = course(program, steps, resume, saving)
    said = remark(feed, data, range(on.first, steps + 1), bool(program.graph.updates))
    if noted is not None and said is not None:
        noted(said)
    job = Job(program, steps, data, seed, dtype, allow, collect or reference, max(1, steps // 50), on, trace, how)
    gathered = Gathered(progress, told)
    with reserved(on) if not outer else nullcontext():
        if outer is None:
            launch(work, nproc, (job,), gathered.receive, timeout_s, names, backend=backend)
        else:
            with joined(backend, timeout_s, fatal):
                work(gathered, job)
    if outer:
        return None
    result = gathered.result(program, steps)
    result.first_step = on.first
    if reference:
        alone = train_alone(program.graph, steps, data, seed, dtype, allow, on.start)
        compare(result, alone, [t.name for t in program.graph.of_kind("param")])
    return result


def right_number(nproc: int | None, program: Program) -> None:
    """Raises HapError HAP718 for another number of processes than the program has devices."""
    devices = program.layout.devices
    if nproc not in (None, devices):
        raise error("HAP718", f"{nproc} processes for a program on {devices} devices", help=f"--nproc {devices}")


def _right_torchrun(program: Program) -> None:
    """Raises HapError HAP718 where torchrun has started more or fewer ranks than the program has devices."""
    processes, devices = int(os.environ["WORLD_SIZE"]), program.layout.devices
    if processes != devices:
        raise error(
            "HAP718",
            f"{processes} processes for a program on {devices} devices",
            help=f"torchrun must start {devices} in all",
        )


def work(sink: Sink, job: Job) -> None:
    """One rank's training; the first rank reports."""
    graph = job.program.graph
    keep_freed_memory()
    rank = Rank(
        job.program,
        job.dtype,
        job.seed,
        job.allow,
        backend=job.how.chosen,
        scale=job.how.scale,
        compiled=job.how.compiled,
    )
    passage = Passage(job.course, rank, job.steps, job.seed, job.data)
    feed = open_feed(job.data, graph, job.seed)
    scalars = Scalars(rank)
    drift: list[dict[str, Any]] = []
    stopwatch = Stopwatch(rank.device)
    to_do = passage.begin(Initial(graph, job.seed, job.dtype))
    tracer = Tracer(rank, last(to_do.start, job.steps) if job.trace else range(0))
    for step, fed in zip(to_do, batches(feed, rank, to_do, job.how.workers), strict=True):
        reports = step % job.every == 0 or step == job.steps
        rank.gradients.measuring = reports
        with tracer.at(step), stopwatch:
            goals = rank.step(fed)
        scalars.add(goals)
        if job.how.check_replicas and step % job.how.check_replicas == 0:
            drift += [asdict(d) for d in replicas.check(rank)]
        if reports:
            line = scalars.settle(step, drift)
            drift = []
            if rank.rank == 0:
                sink.send("step", line=asdict(line))
        passage.after(step)
    slowest = torch.tensor(stopwatch.seconds, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if rank.rank == 0:
        sink.send(
            "result", loss=scalars.loss, metrics=scalars.metrics, grad_norm=scalars.grad_norm, seconds=slowest.tolist()
        )
    if job.trace:
        tracer.send(sink)
    if job.collect:
        for value, local in rank.held.items():
            whole = collect(rank, value, local)
            if whole is not None:
                sink.send("final", whole, name=value.tensor)


def collect(rank: Rank, value: Value, local: Tensor) -> Tensor | None:
    """The global tensor of a value on the first rank, None on the others. Raises HapError HAP708 for replicas that differ."""
    local = local.cpu()
    if rank.rank:
        if local.numel():
            dist.send(local.contiguous(), 0)
        return None
    locals = [local]
    for device in range(1, rank.program.layout.devices):
        other = local.new_empty(sizes(ranges(rank.program, value, device)))
        if other.numel():
            dist.recv(other, device)
        locals.append(other)
    return assemble(rank.program, value, locals, tolerance=1e-6)
