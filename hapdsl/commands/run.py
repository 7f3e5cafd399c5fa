"""`hapdsl run FILE --nproc N --steps K`"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from hapdsl.commands.going import going, going_options
from hapdsl.commands.options import files, nothing_about
from hapdsl.commands.output import Output, ending, json_option
from hapdsl.commands.running import first, reports, running, running_options, said_once
from hapdsl.commands.truth import prepare, told, truth_options
from hapdsl.lang.amounts import in_seconds

if TYPE_CHECKING:
    from hapdsl.cluster import Cluster
    from hapdsl.graph.program import Program
    from hapdsl.lang import nodes
    from hapdsl.run.checkpoint_write import Saving
    from hapdsl.run.replan import Replanned
    from hapdsl.run.result import RunResult
    from hapdsl.workbench import Workbench


@click.command("run")
@click.argument("file", metavar="FILE", shell_complete=files)
@click.option(
    "--nproc", type=click.IntRange(1), metavar="N", help="Local processes; the program's devices where left out."
)
@click.option("--steps", type=click.IntRange(1), default=10, show_default=True, metavar="K", help="Steps to train in all, those before a checkpoint counted.")  # fmt: skip
@click.option(
    "--data",
    metavar="SOURCE",
    help="random, digits, FILE.npz, FILE.safetensors or MODULE:FACTORY.  [default: random, or the checkpoint's]",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    help="Of parameters, data and dropout.  [default: 0, or the checkpoint's]",
)
@going_options
@truth_options
@running_options
@click.option("--reference", is_flag=True, help="Train the same model on one process as well and compare.")
@click.option("--program", "name", metavar="NAME", help="The program, where FILE has several.")
@click.option("--allow", multiple=True, metavar="MODULE", help="A module whose functions operators may name as kernels; may be repeated.")  # fmt: skip
@json_option
@click.pass_obj
@said_once
def command(
    out: Output,
    file: str,
    nproc: int | None,
    steps: int,
    data: str | None,
    seed: int | None,
    reference: bool,
    name: str | None,
    allow: tuple[str, ...],
    trace: str | None,
    calibrate: str | None,
    **kept: Any,
) -> int:
    """Train the program of FILE on local processes, one per device, with its shares.

    The processes run at this machine's speed, all alike: the predicted time is that of the program's cluster.
    """
    from hapdsl.workbench import Workbench

    bench = Workbench(file)
    tree = bench.program(name)
    program = bench.proven(tree).program
    predicted = _predicted(bench, tree)
    devices = program.layout.devices
    if not program.graph.updates:
        nothing_about("training", f"program '{tree.name}' only evaluates; name one that trains, or go without")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # what goes wrong is said once, by us
    from hapdsl.run.checkpoint import folder_of
    from hapdsl.run.checkpoint_read import fits, loaded
    from hapdsl.run.course import Course
    from hapdsl.run.replan import Survivor, train_on
    from hapdsl.run.train import right_number, train  # torch takes seconds, so what is wrong above is said first

    how, log = running(out, kept)
    wished = going(seed, data, **kept)
    changed = wished.start is not None and wished.start.manifest.model_fingerprint not in (
        "",
        program.graph.fingerprint,
    )
    if wished.start is not None and changed and program.graph.updates:
        fits(wished.start, program.graph, loaded(program))
        if first():
            out.say(
                f"note: model '{program.graph.model}' isn't what it was when {wished.start.folder} was written; its parameters and state are alike"
            )
    right_number(nproc, program)  # under torchrun, too, which starts as many as it was told
    _compares(how.check_replicas, Course(wished.start, evaluates=not program.graph.updates).first, steps)
    run = Survivor(bench, tree, program)
    with reports(out, steps, log) as tell, _newest_said(out, wished.saving):
        wishes: dict[str, Any] = {
            "steps": steps,
            "data": wished.data,
            "seed": wished.seed,
            "reference": reference,
            "how": how,
            "told": tell,
            "noted": (lambda said: out.say(f"note: {said}")) if first() else None,
            "allow": frozenset(allow),
            "collect": False,
            "timeout_s": wished.timeout_s,
            "fatal": ending(out),
            "trace": prepare(bench, tree, trace, calibrate),
        }
        if wished.replan and wished.saving is not None:
            found = train_on(run, wished.start, wished.saving, lambda done: out.say(_replanned(done)), **wishes)
        else:
            found = train(
                program, nproc or devices, names=run.names, resume=wished.start, saving=wished.saving, **wishes
            )
    if found is None:
        return 0  # another rank of a torchrun reports
    if run.replans:
        predicted = _predicted(run.bench, run.tree)
    result = {
        **found.as_json(),
        "predicted_s": predicted,
        "program": run.tree.name,
        "nproc": run.program.layout.devices,
    }
    result |= {"data": wished.data, "seed": wished.seed}
    if wished.replan:
        result |= {"replans": [done.as_json() for done in run.replans]}
    if wished.saving is not None:
        result |= {"checkpoint": str(folder_of(wished.saving.folder, steps))}
    if wished.start is not None:
        result |= {"resumed": str(wished.start.folder)}
    if reference:
        result |= {"reference_step_s": found.reference_step_s}
    words = _words(run.program, found, predicted, run.bench.cluster_of(run.tree))
    for kind, verb in (("resumed", "resumed from"), ("checkpoint", "last checkpoint")):
        words += f"\n  {verb} {result[kind]}" if kind in result else ""
    if found.traces is not None:
        more, said = told(run.bench, run.tree, run.program, found.traces, trace, calibrate)
        result, words = result | more, words + said
    out.data(result, words)
    return 0


def _compares(every: int, first_step: int, last: int) -> None:
    """Raises click.UsageError for `--check-replicas` with more steps between comparisons than there are."""
    if every and first_step <= last and last // every == (first_step - 1) // every:
        raise click.UsageError(
            f"--check-replicas {every} compares at steps {every}, {2 * every}, …: none of the steps {first_step} to {last}; "
            f"--check-replicas {last} compares at the last one"
        )


@contextmanager
def _newest_said(out: Output, saving: Saving | None) -> Iterator[None]:
    """Where Ctrl-C ends a run that was saved, say from where it can go on."""
    from hapdsl.run.checkpoint import folder_of, steps

    try:
        yield
    except KeyboardInterrupt:
        if saving is not None and not out.json and first() and (written := steps(saving.folder)):
            out.say(
                f"the newest checkpoint is {folder_of(saving.folder, max(written))}; `--resume {saving.folder}` goes on from it"
            )
        raise


def _replanned(done: Replanned) -> str:
    again = f"from {done.resumed}" if done.resumed is not None else "from the beginning: there was no checkpoint yet"
    return (
        f"{done.why}\n"
        f"  replanned for the {done.devices} devices that are left, in {in_seconds(done.search_s)} ({done.program}); the run goes on {again}"
    )


def _predicted(bench: Workbench, tree: nodes.Program) -> float | None:
    """Seconds a step on the program's cluster; None where it has none."""
    if tree.cluster is None:
        return None
    return bench.cost(tree)[2].sync_s


def _words(program: Program, found: RunResult, predicted: float | None, cluster: Cluster | None) -> str:
    parts = [
        f"{program.name}: {found.steps} steps on {program.layout.devices} processes, {in_seconds(found.step_s)} a step (median)"
    ]
    if predicted is not None:
        real = (
            "" if cluster is not None and cluster.measured else "; this machine's processes aren't slowed to its speeds"
        )
        parts.append(f"  predicted {in_seconds(predicted)} on {program.cluster}{real}")
    if found.loss and not program.graph.updates:
        parts.append(f"  loss {sum(found.loss) / len(found.loss):.5g}, the mean of {len(found.loss)} batches")
    elif found.loss:
        shown = sorted({0, len(found.loss) // 4, len(found.loss) // 2, 3 * len(found.loss) // 4, len(found.loss) - 1})
        parts.append("  loss " + ", ".join(f"{found.loss[k]:.5g} at step {k + found.first_step}" for k in shown))
        wrong = next((k for k, loss in enumerate(found.loss) if not math.isfinite(loss)), None)
        if wrong is not None:
            parts.append(
                f"  the loss is no number from step {wrong + found.first_step} on: try a lower learning rate, `clip 1.0` behind `train`, or look at the data"
            )
    for name, value in found.metrics.items():
        parts.append(f"  {name} {value:.5g}")
    speed = f"{found.samples_s:.4g} samples/s" if found.samples_s is not None else ""
    norm = f"norm of the gradients {found.grad_norm:.4g} at the end" if found.grad_norm is not None else ""
    if speed or norm:
        parts.append("  " + ", ".join(p for p in (speed, norm) if p))
    if found.lines and found.lines[-1].get("skipped"):
        parts.append(
            f"  {found.lines[-1]['skipped']} steps changed nothing: their gradients were too large for f16 (scale now {found.lines[-1]['scale']:g})"
        )
    if found.reference_loss is not None:
        own = f" ({in_seconds(found.reference_step_s)} a step)" if found.reference_step_s is not None else ""
        said = []
        if found.loss_diff is not None:
            said.append(f"loss differs by {found.loss_diff:.2g} at most")
        if found.param_diff is not None:
            said.append(f"parameters by {found.param_diff:.2g} at the end")
        nothing = "nothing to compare: no loss, no trained parameter (check --numeric compares outputs)"
        parts.append(f"  beside one process{own}: {', '.join(said) or nothing}")
    return "\n".join(parts)
