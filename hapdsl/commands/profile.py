"""`hapdsl profile -o cluster.hap`"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hapdsl.commands.options import About, files, nothing_about, to_file
from hapdsl.commands.output import Output, ending, json_option
from hapdsl.lang.amounts import in_bytes, in_seconds
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.lang.files import check_writable, write_file
from hapdsl.lang.nodes import Quantity

if TYPE_CHECKING:
    from hapdsl.lang import nodes
    from hapdsl.run.profile import Profile, Progress

LEAST, MOST = 2**11, 2**33  # bytes of the largest message that may be asked for
PLAIN_EVERY_S = 10.0  # how often progress is said where stderr is no terminal


@click.command("profile")
@click.option(
    "-o",
    "--output",
    required=True,
    callback=to_file,
    metavar="OUT",
    shell_complete=files,
    help="The .hap file to write the cluster to.",
)
@click.option("--nproc", type=click.IntRange(1, 1024), metavar="N", help="Local processes, one device each; as many as this machine has usable cores where left out.")  # fmt: skip
@click.option("--name", metavar="NAME", help="What the cluster is called; OUT's name where left out.")
@click.option("--max-size", cls=About, about="messages", default="256MiB", show_default=True, metavar="SIZE", help="The largest message that collectives are measured with.")  # fmt: skip
@click.option("--quick", is_flag=True, help="Fewer operators, fewer sizes, shorter batches.")
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    help="What each process measures; cuda takes the GPU of its LOCAL_RANK.",
)
@json_option
@click.pass_obj
def command(
    out: Output, output: str, nproc: int | None, name: str | None, max_size: str, quick: bool, device: str | None
) -> int:
    """Measure this cluster, and write it down as a `cluster` block with its measurements.

    Operators at several sizes on every device, launches, memory bandwidth, links, and every collective by every method with even and
    uneven shares. Under torchrun the ranks of all machines are measured, else local processes, all at once: what they take from each other
    is in the numbers. What is measured goes before formulas and data sheets in `plan` and `cost`. Interrupted, it writes what it has.
    """
    largest = read_size(max_size)
    check_writable(output)
    from hapdsl.cluster.machine import usable_cores
    from hapdsl.run.backends import choose
    from hapdsl.run.launch import outer_rank
    from hapdsl.run.profile import Extent, Profile, profile

    backend = choose(None, device)
    processes = nproc if nproc is not None else usable_cores()
    if outer_rank() is not None:
        processes = int(os.environ["WORLD_SIZE"])
        if nproc not in (None, processes):
            raise error(
                "HAP718", f"--nproc {nproc}, but torchrun has started {processes} ranks", help="leave --nproc out"
            )
    if processes == 1:
        nothing_about("messages", "one process sends none; --nproc 2 or more measures them")
    found = Profile()
    start = time.monotonic()
    interrupted, failed = False, None
    with _progress(out, quiet=(outer_rank() or 0) > 0) as found.progress:
        try:
            if not profile(found, processes, Extent(largest, quick), backend, ending(out)):
                return 0
        except KeyboardInterrupt:
            if found.seen is None or not found.done or outer_rank():
                raise
            interrupted = True
        except HapError as stop:
            # A process that ran out of memory, a link that broke: what was measured before is worth keeping.
            if not found.done or outer_rank():
                raise
            out.diagnose(stop.diagnostics)
            failed = stop
    took = time.monotonic() - start
    block = _block(found, name or Path(output).stem, took)
    status = _written(out, output, block, found, took, interrupted, failed)
    return status if failed is None else failed.status


def read_size(text: str) -> int:
    """`256MiB` in bytes. Raises HapError HAP429."""
    from hapdsl.lang import units

    digits = len(text) - len(text.lstrip("0123456789."))
    try:
        size = units.to_si(Quantity(float(text[:digits]), text[digits:].strip()), "memory")
    except (ValueError, HapError):  # no number, no unit
        size = 0.0
    if not LEAST <= size <= MOST:
        raise error(
            "HAP429",
            f"--max-size {text} is no size from {in_bytes(LEAST)} to {in_bytes(MOST)}",
            help="--max-size 16MiB",
        )
    return int(size) // 4 * 4


def _block(found: Profile, name: str, took: float) -> nodes.Cluster:
    from hapdsl import __version__
    from hapdsl.cluster.describe import describe

    assert found.seen is not None
    what = f"{found.done} of {found.points} points in {took:.0f} s"
    note = f"measured by hapdsl {__version__} on {time.strftime('%Y-%m-%d')}: {len(found.seen)} processes, {what}"
    if not found.complete:
        note += "\nbroken off: formulas stand in for what is missing"
    return describe(found.seen, name, note)


def _written(
    out: Output,
    output: str,
    block: nodes.Cluster,
    found: Profile,
    took: float,
    interrupted: bool,
    failed: HapError | None,
) -> int:
    from hapdsl.cluster import build
    from hapdsl.lang.nodes import File, Measured
    from hapdsl.lang.print import to_text

    cluster = build(block)
    write_file(Path(output), to_text(File((block,))))
    kinds = [d.kind for d in cluster.devices]
    devices = ", ".join(
        f"{kinds.count(k)} {k} ({_flops(cluster.devices[kinds.index(k)].speed('f32'))})" for k in dict.fromkeys(kinds)
    )
    tables = sum(isinstance(s, Measured) for s in block.body)
    result: dict[str, Any] = {
        "file": output,
        "cluster": cluster.name,
        "devices": [d.name for d in cluster.devices],
        "kinds": kinds,
        "tables": tables,
        "done": found.done,
        "points": found.points,
        "not_measured": found.failed,
        "seconds": took,
        "interrupted": interrupted,
        "diagnostics": [d.as_json() for d in failed.diagnostics] if failed is not None else [],
    }
    words = [
        f"{cluster.name}: {devices}; {tables} tables from {found.done} points in {in_seconds(took)}",
        f"written to {output}",
    ]
    if not found.complete:
        words.insert(
            1,
            f"  {'interrupted' if interrupted else 'broken off'}: {found.points - found.done} points are missing, formulas stand in for them",
        )
    if found.failed:
        words.insert(
            1,
            f"  not measured, because it failed or would have taken too long: {', '.join(found.failed[:3])}{' …' if len(found.failed) > 3 else ''}",
        )
    out.data(result, "\n".join(words))
    return 130 if interrupted else 0


def _flops(speed: float) -> str:
    return f"{speed / 1e12:.3g} TFLOP/s" if speed >= 1e12 else f"{speed / 1e9:.3g} GFLOP/s"


@contextmanager
def _progress(out: Output, quiet: bool) -> Iterator[Progress | None]:
    """A bar with the time left on a terminal's stderr, a line now and then elsewhere, nothing with --json."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, highlight=False)
    if out.json or quiet:
        yield None
        return
    if not console.is_terminal:
        last = time.monotonic()

        def say(done: int, of: int, left_s: float, label: str) -> None:
            nonlocal last
            if time.monotonic() - last > PLAIN_EVERY_S:
                last = time.monotonic()
                out.say(f"{done} of {of} points, about {_clock(left_s)} left: {label}")

        yield say
        return
    columns: tuple[Any, ...] = (
        BarColumn(24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left {task.fields[left]}  {task.fields[label]}"),
    )
    # it draws in this thread only: the processes are forked from it
    with Bar(*columns, console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task("profile", total=None, left="?", label="starting processes")
        bar.refresh()

        def show(done: int, of: int, left_s: float, label: str) -> None:
            bar.update(task, total=of, completed=done, left=_clock(left_s), label=label[:60], refresh=True)

        yield show


def _clock(seconds: float) -> str:
    return f"{int(seconds + 0.5) // 60}:{int(seconds + 0.5) % 60:02d}"
