"""What `hapdsl run` takes to say on what a program runs and what is watched and written down meanwhile."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

import click

from hapdsl.commands.options import About, files
from hapdsl.commands.output import Output
from hapdsl.lang.diagnostics import HapError, error

if TYPE_CHECKING:
    from hapdsl.run.how import How
    from hapdsl.run.report import Line

_Function = TypeVar("_Function", bound=Callable[..., Any])
SPEAK_S = 1.0  # torchrun ends all ranks with the first that fails: the one that speaks must have spoken
_OURS = ("device", "backend", "dtype", "loss_scale", "check_replicas", "workers", "compiled", "log")


def _scale(context: click.Context, parameter: click.Parameter, value: str) -> str | float:
    if value in ("auto", "off"):
        return value
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise click.BadParameter("auto, off or a number above 0")
    return number


def running_options(function: _Function) -> _Function:
    """Their values arrive as keywords for `running`."""
    for option in reversed(
        [
            click.option("--device", metavar="TYPE", help="cpu, or cuda: each rank on the GPU of its LOCAL_RANK.  [default: the backend's; cpu]"),
            click.option("--backend", metavar="NAME", help="gloo (cpu), or nccl (cuda; never tried with this version).  [default: the device's]"),
            click.option("--dtype", metavar="DTYPE", help="Run all floating tensors as f64, f32, bf16 or f16.  [default: each as declared]"),
            click.option("--loss-scale", cls=About, about="training", default="auto", show_default=True, callback=_scale, metavar="SCALE", help="Of gradients in f16: auto (where there are any), off, or the number to begin with."),
            click.option("--check-replicas", type=click.IntRange(1), metavar="N", help="Every N steps compare what devices hold alike; where it differs, the first device's value is taken."),
            click.option("--workers", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Processes per rank that load data ahead."),
            click.option("--compile", "compiled", is_flag=True, help="Have torch.compile make one function of what stands between two collectives."),
            click.option("--log", "--report", "log", metavar="FILE", shell_complete=files, help="Append a JSON line per report to FILE (- is stdout): step, loss, grad_norm, samples_s … torchrun takes --log for its own: say --report there."),
        ]
    ):  # fmt: skip
        function = option(function)
    return function


def running(out: Output, kept: dict[str, Any]) -> tuple[How, str | None]:
    """Take these options out of `kept`: how to run, and where to log. Raises HapError HAP721 (no such device), HAP723 (no compiler)."""
    given = {name: kept.pop(name) for name in _OURS}
    if given["log"] == "-" and out.json:
        raise click.UsageError("--log - and --json both want stdout: give the log a file")
    from hapdsl.run.backends import UNTESTED
    from hapdsl.run.how import How

    how = How(
        given["backend"], given["device"], given["dtype"], given["loss_scale"], given["check_replicas"] or 0, given["workers"], given["compiled"]
    )  # fmt: skip
    if not how.chosen.tested and first():
        out.say(f"note: {UNTESTED}")
    if how.compiled:
        from hapdsl.run.compiled import available

        available()
    return how, given["log"]


def first() -> bool:
    """Is this process the one that speaks? Under torchrun only the first rank does."""
    return os.environ.get("RANK", "0") == "0" or "WORLD_SIZE" not in os.environ


def said_once(function: _Function) -> _Function:
    """Under torchrun all processes find the same fault in a command line or a file: only the first one says it. What one rank finds it says itself."""

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except HapError as problem:
            if first() or type(problem) is not HapError:
                raise
            time.sleep(SPEAK_S)
            return problem.status

    return cast(_Function, call)


@contextmanager
def reports(out: Output, steps: int, log: str | None) -> Iterator[Callable[[Line], None]]:
    """What hears of a run's reports: a bar on a terminal's stderr, and the log. Raises HapError HAP852 for a log that can't be written."""
    with _log(log) as stream, _bar(out, steps) as show:

        def told(line: Line) -> None:
            if stream is not None:
                stream.write(json.dumps(line.as_json(), allow_nan=False) + "\n")
                stream.flush()
            if line.drift:
                out.say(f"note: step {line.step}: {_drifted(line.drift)}")
            show(line)

        yield told


@contextmanager
def _log(path: str | None) -> Iterator[TextIO | None]:
    if path is None or not first():
        yield None
    elif path == "-":
        yield sys.stdout
    else:
        try:
            stream = open(path, "a", encoding="utf-8")
        except OSError as problem:
            raise error("HAP852", f"{path} can't be written: {problem.strerror}") from None
        with stream:
            yield stream


@contextmanager
def _bar(out: Output, steps: int) -> Iterator[Callable[[Line], None]]:
    """It draws in this thread only: the processes are forked from it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False)
    if out.json or not console.is_terminal or not first():
        yield lambda line: None
        return
    columns: tuple[Any, ...] = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[said]}"), TimeElapsedColumn())  # fmt: skip
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task("train", total=steps, said="")

        def show(line: Line) -> None:
            parts = [
                f"loss {line.loss:.4g}" if line.loss is not None else "",
                f"|grad| {line.grad_norm:.3g}" if line.grad_norm is not None else "",
                f"{line.samples_s:.4g} samples/s" if line.samples_s is not None else "",
            ]
            bar.update(task, completed=line.step, said="  ".join(p for p in parts if p), refresh=True)

        yield show


def _drifted(drift: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(d["tensor"] for d in drift))
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"replicas of {shown} had drifted apart, by {max(d['gap'] for d in drift):.2g} at most; the first device's values were taken"
