"""Training a program on local processes, and the same model on one process beside it."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Set
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from hapdsl.graph.program import Program, Value
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.run import checkpoint_read, replicas
from hapdsl.run.allocator import keep_freed_memory
from hapdsl.run.checkpoint import Checkpoint
from hapdsl.run.checkpoint_write import Saving
from hapdsl.run.course import Course, Passage, course, reserved
from hapdsl.run.data import Feed, Made, open_feed
from hapdsl.run.distributed import Rank
from hapdsl.run.guarded import enter, guarded
from hapdsl.run.how import How
from hapdsl.run.initial import Initial, initial
from hapdsl.run.launch import is_lost_peer, launch, outer_rank
from hapdsl.run.loading import batches
from hapdsl.run.pieces import assemble, ranges, sizes
from hapdsl.run.reference import Reference, advance
from hapdsl.run.report import Line, Scalars, Told
from hapdsl.run.threads import one_thread
from hapdsl.run.tracing import Tracer, Traces, last, received

Progress = Callable[[int, float], None]  # steps done, loss of the last one


class Sink(Protocol):
    """Where a rank reports to."""

    def send(self, kind: str, tensor: Tensor | None = None, **header: Any) -> None: ...


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
            "step_s": _finite(self.step_s),
            "loss": [_finite(x) for x in self.loss],
            "metrics": {n: _finite(x) for n, x in self.metrics.items()},
            "grad_norm": None if self.grad_norm is None else _finite(self.grad_norm),
            "samples_s": None if self.samples_s is None else _finite(self.samples_s),
        }
        drift = [{"step": line["step"], **d} for line in self.lines for d in line.get("drift", ())]
        skipped = [line["skipped"] for line in self.lines if "skipped" in line]
        found |= {"drift": drift} if drift else {}
        found |= {"skipped": skipped[-1], "scale": self.lines[-1]["scale"]} if skipped else {}
        if self.reference_loss is not None:
            differences = {"loss_diff": self.loss_diff, "param_diff": self.param_diff}
            found |= {n: None if x is None else _finite(x) for n, x in differences.items()}
        return found


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


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
) -> RunResult | None:
    """Train `program` up to step `steps` on `nproc` local processes (or as one rank of an existing torchrun).

    `reference` trains the same model on one process afterwards, from the same seed and on the same batches. `resume` goes on from a
    checkpoint, of the same program or another for the model (seed and data are the caller's to keep); `saving` writes some. `trace` stamps what the last steps do (`hapdsl.run.tracing`).
    `how` says on what it runs and what is watched, `told` hears of the reports on the way.
    Returns None on ranks of a torchrun that aren't the first. Raises HapError: HAP718 another number of processes
    than devices, HAP719 no steps, HAP71x data that doesn't fit, HAP720 a process that failed, HAP721 and HAP722 a device or dtype that isn't here, HAP75x what is wrong with checkpoints, and what kernels raise.
    """
    outer = outer_rank()
    if outer is None:
        right_number(nproc, program)
    if steps < 1:
        raise error("HAP719", f"{steps} steps: there is nothing to run", help="--steps 1 or more")
    open_feed(data, program.graph, seed).batch(1)  # what is wrong with the data is said before processes start
    how = how or How()
    backend, dtype = how.chosen, how.precision(program.graph, dtype)
    on = course(program, steps, resume, saving)
    job = Job(program, steps, data, seed, dtype, allow, collect or reference, max(1, steps // 50), on, trace, how)
    gathered = Gathered(progress, told)
    with reserved(on) if not outer else nullcontext():
        if outer is None:
            launch(work, nproc, (job,), gathered.receive, timeout_s, names, backend=backend)
        elif not _under_torchrun(job, gathered, timeout_s):
            return None
    result = gathered.result(program, steps)
    result.first_step = on.first
    if reference:
        _compare(result, program.graph, job)
    return result


def right_number(nproc: int | None, program: Program) -> None:
    """Raises HapError HAP718 for another number of processes than the program has devices."""
    devices = program.layout.devices
    if nproc not in (None, devices):
        raise error("HAP718", f"{nproc} processes for a program on {devices} devices", help=f"--nproc {devices}")


class OwnError(HapError):
    """What one rank of a torchrun has found; other errors all of them find."""


FOUND_BY_ALL = ("HAP717", "HAP718", "HAP762")  # the ranks have compared something, and all know


def _under_torchrun(job: Job, gathered: Gathered, timeout_s: float) -> bool:
    """This process' part of an existing torchrun; is it the first rank?"""
    torch.set_num_threads(1)
    backend, devices = job.how.chosen, job.program.layout.devices
    if (processes := int(os.environ["WORLD_SIZE"])) != devices:
        raise error(
            "HAP718",
            f"{processes} processes for a program on {devices} devices",
            help=f"torchrun must start {devices} in all",
        )
    backend.device()
    enter(backend.torch_name, timeout_s)
    try:
        with torch.no_grad(), guarded():
            work(gathered, job)
            dist.barrier()
        return dist.get_rank() == 0
    except HapError as problem:
        if getattr(problem, "lost", False) or any(d.code in FOUND_BY_ALL for d in problem.diagnostics):
            raise HapError(*problem.diagnostics, status=problem.status) from None
        found = [replace(d, message=f"rank {dist.get_rank()}: {d.message}") for d in problem.diagnostics]
        raise OwnError(*found, status=problem.status) from None
    except RuntimeError as problem:
        if not is_lost_peer(problem):
            raise
        reason = str(problem).splitlines()[0].rpartition("] ")[2].split(". ")[0]
        words = f"rank {dist.get_rank()} has lost another one: {reason}"
        raise error("HAP720", words, help="what that one said, or torchrun says of it, is the cause", status=1) from None
    finally:
        dist.destroy_process_group()


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
    seconds: list[float] = []
    to_do = passage.begin(Initial(graph, job.seed, job.dtype))
    tracer = Tracer(rank, last(to_do.start, job.steps) if job.trace else range(0))
    skip(feed, to_do.start)
    for step, fed in zip(to_do, batches(feed, rank, to_do, job.how.workers), strict=True):
        reports = step % job.every == 0 or step == job.steps
        rank.gradients.measuring = reports
        with tracer.at(step):
            start = time.perf_counter()
            goals = rank.step(fed)
        seconds.append(time.perf_counter() - start)
        scalars.add(goals)
        if job.how.check_replicas and step % job.how.check_replicas == 0:
            drift += [asdict(d) for d in replicas.check(rank)]
        if reports:
            line = scalars.settle(step, drift)
            drift = []
            if rank.rank == 0:
                sink.send("step", line=asdict(line))
        passage.after(step)
    slowest = torch.tensor(seconds, dtype=torch.float64)
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


def skip(feed: Feed, first: int) -> None:
    """Bring a feed to step `first`: an iterator has to be gone through, other sources know each step's batch."""
    if isinstance(feed, Made):
        for step in range(1, first):
            feed.batch(step)


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
    skip(feed, first)
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


def _compare(result: RunResult, graph: TrainingGraph, job: Job) -> None:
    alone = train_alone(graph, job.steps, job.data, job.seed, job.dtype, job.allow, job.course.start)
    result.reference_loss, result.reference_step_s = alone.loss, alone.step_s
    result.loss_diff = max((abs(a - b) for a, b in zip(result.loss, alone.loss, strict=True)), default=None)
    params = [t.name for t in graph.of_kind("param") if t.name in result.final]
    gaps = [(result.final[n].double() - alone.final[n].double()).abs().max() for n in params]
    result.param_diff = float(max(gaps)) if gaps else None
