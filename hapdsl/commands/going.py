"""What `hapdsl run` takes to save a run and to go on with one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hapdsl.commands.options import About, Real, folders
from hapdsl.lang.diagnostics import error

if TYPE_CHECKING:
    from hapdsl.run.checkpoint import Checkpoint
    from hapdsl.run.checkpoint_write import Saving

_Function = TypeVar("_Function", bound=Callable[..., Any])

EVERY, KEEP = 100, 2


def going_options(function: _Function) -> _Function:
    """The options of checkpoints; their values arrive as keywords for `going`."""
    for option in reversed(
        [
            click.option("--checkpoint", cls=About, about="training", metavar="DIR", shell_complete=folders, help="Write checkpoints into DIR; one is always written behind the last step."),
            click.option("--every", cls=About, about="--checkpoint", type=click.IntRange(1), metavar="N", help=f"Write one every N steps.  [default: {EVERY}]"),
            click.option("--keep", cls=About, about="--checkpoint", type=click.IntRange(1), metavar="N", help=f"Keep the newest N.  [default: {KEEP}]"),
            click.option("--resume", metavar="DIR", shell_complete=folders, help="Go on from the newest checkpoint in DIR, or from DIR itself; FILE may be another program."),
            click.option("--replan", cls=About, about="--checkpoint", is_flag=True, help="If a device is lost, plan for those that are left and go on from the last checkpoint."),
            click.option("--timeout", type=Real(1, 1e6), default=600, show_default=True, metavar="S", help="How long ranks wait for one that takes no part."),
        ]
    ):  # fmt: skip
        function = option(function)
    return function


@dataclass(frozen=True)
class Going:
    """What was asked for: where to go on from, where to save, and seed and data, which a checkpoint keeps."""

    start: Checkpoint | None
    saving: Saving | None
    seed: int
    data: str
    replan: bool
    timeout_s: float


def going(
    seed: int | None,
    data: str | None,
    checkpoint: str | None,
    every: int | None,
    keep: int | None,
    resume: str | None,
    replan: bool,
    timeout: float,
) -> Going:
    """Read the options. Raises HapError as `find` and `settle` do, HAP754 where checkpoints can't be written."""
    if checkpoint is not None and Path(checkpoint).exists() and not Path(checkpoint).is_dir():
        raise error(
            "HAP754",
            f"{checkpoint} is no folder: checkpoints can't be written there",
            help="--checkpoint DIR",
            status=2,
        )
    from hapdsl.run.checkpoint import find, steps
    from hapdsl.run.checkpoint_write import Saving
    from hapdsl.run.course import settle

    if checkpoint is not None and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0" and steps(Path(checkpoint)):
        resume = checkpoint  # torchrun starts the same command line again when a rank was lost
    start = None if resume is None else find(resume)
    if start is not None:
        seed, data = settle(start, seed, data)
    saving = None if checkpoint is None else Saving(Path(checkpoint), every or EVERY, keep or KEEP)
    return Going(start, saving, seed or 0, data or "random", replan, timeout)
