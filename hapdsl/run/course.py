"""Where a run begins, and what it leaves on the way: the steps of a rank between checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from hapdsl.graph.program import Program
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.lang.nodes import Span
from hapdsl.run import checkpoint_read
from hapdsl.run.checkpoint import Checkpoint, find, folder_of, steps
from hapdsl.run.checkpoint_state import write_whole
from hapdsl.run.checkpoint_write import Saving, Writer, prune, tidy, together
from hapdsl.run.distributed import Rank
from hapdsl.run.fingerprint import differing
from hapdsl.run.inprocess import InProcess
from hapdsl.run.lock import locked
from hapdsl.run.pieces import assemble

BUILT_IN = ("random", "digits")  # data that a checkpoint may name: it is ours, so nothing foreign is read or imported


@dataclass(frozen=True)
class Course:
    """Of one run: what it goes on from, and where its checkpoints go. Neither is needed. What only `evaluates` begins its own count of steps."""

    start: Checkpoint | None = None
    saving: Saving | None = None
    evaluates: bool = False

    @property
    def first(self) -> int:
        """The first step to do."""
        return 1 if self.start is None or self.evaluates else self.start.manifest.step + 1

    def due(self, step: int, last: int) -> bool:
        """Is a checkpoint written behind this step?"""
        return self.saving is not None and (step % self.saving.every == 0 or step == last)


def course(
    program: Program, steps: int, resume: str | Path | Checkpoint | None = None, saving: Saving | None = None
) -> Course:
    """The course of a run of `steps` steps in all, those before the checkpoint counted.

    Raises HapError: HAP719 nothing left to do, and what `find`, `fits` and `free_for` raise.
    """
    start = resume if isinstance(resume, Checkpoint) else None if resume is None else find(resume)
    if start is not None:
        checkpoint_read.fits(start, program.graph, checkpoint_read.loaded(program))
        done = start.manifest.step
        if done >= steps and program.graph.updates:
            raise error("HAP719", f"{start.folder} stands at step {done}: of {steps} steps none is left", help=f"--steps counts from the beginning: --steps {done + steps} does {steps} more")  # fmt: skip
    return Course(start, saving, evaluates=not program.graph.updates)


def settle(start: Checkpoint, seed: int | None, data: str | None) -> tuple[int, str]:
    """Seed and data of a run that goes on, from what the command line says and what the checkpoint says.

    Raises HapError HAP757 for another seed, or for data that only the command line may name.
    """
    there = start.manifest
    where = Span(str(start.folder))
    if seed is not None and seed != there.seed:
        raise error(
            "HAP757",
            f"{start.folder} was made with seed {there.seed}, not {seed}",
            where,
            "leave --seed out: the run goes on with its own",
        )
    if data is None and there.data not in BUILT_IN:
        raise error(
            "HAP757",
            f"{start.folder} was made on the data '{there.data}'",
            where,
            "name it again, or other data: --data SOURCE",
        )
    return there.seed, there.data if data is None else data


@contextmanager
def reserved(on: Course) -> Iterator[None]:
    """Hold the folder that a course writes to, and see that nothing in it would be overwritten.

    Raises HapError: HAP754 it can't be written, HAP755 another run has it, HAP756 it holds later checkpoints, or another run's.
    """
    if on.saving is None:
        yield
        return
    with locked(on.saving.folder):
        free_for(on)
        tidy(on.saving.folder)
        yield


def free_for(on: Course) -> None:
    """Raises HapError HAP756 where the folder holds checkpoints that this run doesn't go on from."""
    assert on.saving is not None
    base = on.saving.folder
    there = steps(base)
    if not there:
        return
    where = Span(str(base))
    own = on.start is not None and on.start.folder.resolve().parent == base.resolve()
    if not own:
        raise error(
            "HAP756",
            f"{base} holds checkpoints up to step {there[-1]}",
            where,
            f"--resume {base} goes on from them; else choose another folder",
        )
    if there[-1] >= on.first:
        newest = folder_of(base, there[-1])
        raise error("HAP756", f"{base} holds checkpoints up to step {there[-1]}, later than the one to go on from", where, f"go on from {newest}, or write elsewhere: --checkpoint OTHER")  # fmt: skip


class Passage:
    """A rank on its course. Made with the process group up; all ranks do the same at the same time."""

    def __init__(self, on: Course, rank: Rank, steps: int, seed: int, data: str) -> None:
        self.on, self.rank, self.steps = on, rank, steps
        same_settings(on, steps, seed, data)
        held = {v: rank.lowered.dtype_of(v) for v in rank.lowered.held}
        self.writer = None if on.saving is None else Writer(rank.program, held, rank.rank, on.saving, seed, data)

    def begin(self, first_values: Mapping[str, Tensor]) -> range:
        """Load parameters, buffers and state; returns the steps to do. Raises HapError HAP751 for a damaged checkpoint."""
        start, rank = self.on.start, self.rank
        if start is None:
            rank.load(first_values)
        else:
            take_up(rank, start)
            rank.clock.step = self.on.first
        return range(self.on.first, self.steps + 1)

    def after(self, step: int) -> Path | None:
        """Write a checkpoint where one is due; returns its folder. Raises HapError HAP754."""
        if self.writer is None or not self.on.due(step, self.steps):
            return None
        return self.writer.save(step, self.rank.held, _extra(self.rank))


def take_up(executor: Rank | InProcess, start: Checkpoint) -> None:
    """Load parameters, buffers and state from a checkpoint and go on behind its step; ranks do so together. Raises HapError HAP751."""
    if isinstance(executor, InProcess):
        executor.load(checkpoint_read.tensors(start))
        executor.clock.step, executor.clock.skipped = (
            start.manifest.step + 1,
            int(start.manifest.extra.get("skipped", 0)),
        )
        return
    together(_verified(start, executor.rank, executor.program.layout.devices))
    source, lowered = checkpoint_read.Source(start), executor.lowered
    executor.held = {
        v: source.local(executor.program, v, executor.rank, lowered.dtype_of(v)).to(executor.device)
        for v in lowered.held
    }
    executor.clock.step = start.manifest.step + 1
    _restore(executor, start.manifest.extra)


def keep(executor: Rank | InProcess, saving: Saving, seed: int, data: str) -> Path:
    """Write a checkpoint of what an executor holds, behind the step that it has done; ranks do so together. Raises HapError HAP754."""
    step, program = executor.clock.step - 1, executor.program
    if isinstance(executor, InProcess):
        whole = {v.tensor: assemble(program, v, local) for v, local in executor.held.items()}
        made = write_whole(saving.folder, program.graph, whole, step, seed, data, _extra(executor))
        prune(saving.folder, saving.keep)
        return made.folder
    dtypes = {v: executor.lowered.dtype_of(v) for v in executor.lowered.held}
    return Writer(program, dtypes, executor.rank, saving, seed, data).save(step, executor.held, _extra(executor))


def _extra(executor: Rank | InProcess) -> dict[str, float]:
    """State of the run that is no tensor of the model: the scale of f16 gradients (in one process there is none), and how many steps have changed nothing."""
    scale, skipped = executor.gradients.scale if isinstance(executor, Rank) else None, executor.clock.skipped
    found = {} if scale is None else {"scale": scale.value, "scale.good": float(scale.good)}
    return {**found, "skipped": float(skipped)} if skipped or found else {}


def _restore(rank: Rank, extra: Mapping[str, float]) -> None:
    """Take these up again. A program that needs no scale has none; a checkpoint without one leaves the first."""
    rank.clock.skipped = int(extra.get("skipped", 0))
    scale = rank.gradients.scale
    if scale is not None and "scale" in extra:
        scale.value, scale.good, scale.skipped = extra["scale"], int(extra.get("scale.good", 0)), rank.clock.skipped


def _verified(start: Checkpoint, rank: int, ranks: int) -> HapError | None:
    """Compare this rank's part of the files with their checksums: between them the ranks read each file once."""
    try:
        start.verify(start.manifest.files[rank::ranks])
    except HapError as problem:
        return problem
    return None


def same_settings(on: Course, steps: int, seed: int, data: str) -> None:
    """Raises HapError HAP762 unless all ranks have been started alike, and see the same checkpoint."""
    said = [
        steps,
        seed,
        data,
        on.saving and [on.saving.every, on.saving.keep],
        on.start and on.start.manifest.to_json(),
    ]
    different = differing(repr(said))
    if different:
        raise error("HAP762", f"ranks {', '.join(map(str, different))} were started otherwise than rank 0", help="steps, seed, data and checkpoints must be the same on all of them, and the folder of checkpoints one that all machines share")  # fmt: skip
