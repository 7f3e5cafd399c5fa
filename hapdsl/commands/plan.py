"""`hapdsl plan FILE`"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from hapdsl.commands.options import About, Real, files, nothing_about, program_output
from hapdsl.commands.output import Output, json_option
from hapdsl.commands.settings import read_settings
from hapdsl.commands.units import indented, memory_table, percent, shares, table
from hapdsl.lang.amounts import in_seconds
from hapdsl.lang.files import check_writable, keep_tables, write_file

if TYPE_CHECKING:
    from hapdsl.cluster import Cluster
    from hapdsl.search.plan import Plan, Progress


BASELINES = {
    "dp_even": "data parallel, even",
    "dp_proportional": "data parallel, by speed",
    "zero": "fully sharded (ZeRO)",
    "tensor_parallel": "tensor parallel",
    "expert_parallel": "expert parallel",  # of models with experts
}
INTERRUPTED = 130


@click.command("plan")
@click.argument("file", metavar="FILE", shell_complete=files)
@click.option("--model", cls=About, about="planning a model", metavar="NAME", help="The model, where FILE has several.")
@click.option(
    "--program",
    "sketch",
    metavar="NAME",
    help="Complete this sketch of FILE: what it says stays, the rest is searched.",
)
@click.option("--cluster", metavar="FILE[:NAME]", shell_complete=files, help="The cluster: a NAME in FILE, or another file's. Without it: FILE's only one, else yours, else a guess.")  # fmt: skip
@click.option("--set", "settings", cls=About, about="planning a model", multiple=True, metavar="K=V", help="Set a parameter of the model; may be repeated.")  # fmt: skip
@click.option("--evaluate", cls=About, about="planning a model", is_flag=True, help="For evaluation: the loss, outputs and metrics, without dropout and updates, by running statistics.")  # fmt: skip
@click.option(
    "--gap", type=Real(0, 1), metavar="FRACTION", default=0.01, show_default=True, help="Stop this close to the bound."
)
@click.option("--time-limit", type=Real(0), metavar="S", help="Stop after so many seconds with the best so far.")
@click.option("--objective", type=click.Choice(["sync", "overlap"]), default="sync", show_default=True, help="sync: stage by stage. overlap: communication beside compute.")  # fmt: skip
@click.option("--all-devices", is_flag=True, help="Leave no device out, even where it is faster without.")
@click.option("--unroll", is_flag=True, help="Write every layer's lines.")
@program_output
@json_option
@click.pass_obj
def command(
    out: Output,
    file: str,
    model: str | None,
    sketch: str | None,
    cluster: str | None,
    settings: tuple[str, ...],
    evaluate: bool,
    gap: float,
    time_limit: float | None,
    objective: str,
    all_devices: bool,
    unroll: bool,
    output: str | None,
) -> int:
    """Find the fastest program and shares for the model in FILE on a cluster, with a bound on how much faster any could be.

    Ctrl-C stops the search and keeps the best so far (exit status 130); a second one drops it.
    """
    from hapdsl.check.write import write
    from hapdsl.cluster.fewer import fewer
    from hapdsl.search.complete import complete
    from hapdsl.search.fewer import plan_or_fewer
    from hapdsl.standalone import sources, standalone
    from hapdsl.virtual import plan_over, planned
    from hapdsl.workbench import Workbench

    bench = Workbench(file)
    tree = None
    if sketch is not None:
        tree = bench.program(sketch)
        nothing_about("planning a model", f"program '{sketch}' is completed, whose header names model and parameters")
        cluster = cluster or tree.cluster
    node = bench.model(tree.model if tree is not None else model)
    values = bench.settings(tree) if tree is not None else read_settings(node, settings)
    graph = bench.graph(node.name, values, train=not evaluate)
    block = bench.cluster_block(cluster)
    hardware = bench.cluster(cluster)
    left_out = ""
    if output is not None:
        check_writable(output, [source.path for source in bench.bundle.sources])
    if hardware.guessed and not out.json:
        out.say("no cluster is described: this machine's cores, guessed. --cluster names one.")
    with _stopping(out) as stop, _progress(out) as progress:
        wishes: dict[str, Any] = {
            "objective": objective,
            "gap": gap,
            "time_limit": time_limit,
            "progress": progress,
            "cancelled": stop.is_set,
        }
        if tree is not None:
            found = complete(
                bench.checked(tree, cluster), tree, hardware.outer() if hardware.virtual else hardware, **wishes
            )
            found = planned(found, hardware) if hardware.virtual else found
        elif hardware.virtual:
            found = plan_over(graph, hardware, name=f"{node.name}_plan", **wishes)
        else:
            smaller = () if all_devices else fewer(block, hardware)
            found, on = plan_or_fewer(graph, hardware, smaller, name=f"{node.name}_plan", **wishes)
            if on is not None:
                block, hardware, left_out = on.block, on.cluster, on.left_out
    found.program.model_args = values
    found.program.cluster = block.name
    text = standalone(bench, write(found.program, unroll), block, f"planned for the {objective} objective")
    # What is handed out was proven from its text, as `hapdsl check` would.
    written = Workbench(output or "plan.hap", text)
    instructions = len(written.proven(written.program()).program.instructions)
    result = _object(found, hardware, output) | {"instructions": instructions}
    result["interrupted"], result["left_out"] = stop.is_set(), left_out
    words = _words(found, hardware, instructions, tree is not None, left_out)
    if output is not None:
        write_file(Path(output), text)
        keep_tables(sources(bench, node), Path(output))
        out.data(result, words + f"\nwritten to {output}")
    elif out.json:
        out.data({**result, "text": text})
    else:
        out.say(words)
        click.echo(text, nl=False)
    return INTERRUPTED if stop.is_set() else 0


def _object(found: Plan, cluster: Cluster, output: str | None) -> dict[str, Any]:
    from hapdsl.cost.basis import basis

    cost = found.cost
    layout = found.program.layout
    used = _classes(found)
    return {
        "model": found.program.graph.model,
        "settings": dict(found.program.model_args),
        "cluster": cluster.name,
        "guessed": cluster.guessed,
        "devices": [d.name for d in cluster.devices],
        "objective": found.objective,
        "cost_s": found.cost_s,
        "sync_s": cost.sync_s,
        "overlap_s": cost.overlap_s,
        "bound_s": found.bound_s,
        "bound_scope": found.bound_scope,
        "bound_any_shares_s": found.bound_any_shares_s,
        "gap": found.gap,
        "search_s": found.search_s,
        "nodes": found.nodes,
        "classes": {
            name: {"units": found.program.graph.classes[name].units, "shares": layout.shares[name][(0,)]}
            for name in used
        },
        "memory_bytes": cost.memory_bytes,
        "prices": basis(found.program, cluster, cost).as_json(),
        "baselines": {name: _baseline(found, name) for name in _asked(found)},
        "program": output,
    }


def _asked(found: Plan) -> list[str]:
    """The baselines that this plan is put beside: those of every model, priced or not, and what else was priced."""
    from hapdsl.search.plan import BASELINES as always

    return [name for name in BASELINES if name in always or name in found.baselines]


def _baseline(found: Plan, name: str) -> float | None:
    candidate = found.baselines.get(name)
    return None if candidate is None else candidate.seconds(found.objective)


def _classes(found: Plan) -> list[str]:
    """The dimension classes that the program cuts."""
    from hapdsl.check.write import shares as statements

    return list(dict.fromkeys(s.cls for s in statements(found.program)))


def _words(found: Plan, cluster: Cluster, instructions: int, sketch: bool, left_out: str) -> str:
    from hapdsl.cost.basis import basis

    program, cost = found.program, found.cost
    kind = "synchronous" if found.objective == "sync" else "overlapped"
    other = (
        f"overlapped {in_seconds(cost.overlap_s)}"
        if found.objective == "sync"
        else f"synchronous {in_seconds(cost.sync_s)}"
    )
    parts = [
        f"{program.graph.model} on {cluster.name}: {in_seconds(found.cost_s)} a step ({kind}; {other})",
        f"  bound {in_seconds(found.bound_s)}, gap {percent(found.gap)}, for {found.bound_scope}",
    ]
    if left_out:
        parts.insert(1, f"  leaves out {left_out}: it is faster without")
    parts.insert(1, f"  {basis(program, cluster, cost).words}")
    if found.bound_any_shares_s is not None:
        parts.append(f"  bound {in_seconds(found.bound_any_shares_s)} for all shares")
    parts.append(f"  {instructions} instructions, proven; search {found.search_s:.1f} s, {found.nodes} nodes")
    rows = [
        (name, str(program.graph.classes[name].units), shares([int(n) for n in program.layout.shares[name][(0,)]]))
        for name in _classes(found)
    ]
    if rows:
        parts += ["", indented(table(("class", "units", "shares"), rows, right=(1,)))]
    parts += ["", indented(memory_table(cluster, cost.memory_bytes))]
    if sketch:  # a baseline isn't among what a sketch leaves open
        return "\n".join(parts)
    rows = []
    for name in _asked(found):
        candidate = found.baselines.get(name)
        if candidate is None:
            why = "doesn't fit, or doesn't exist" if name in found.baselines else "not priced: out of time"
            rows.append((BASELINES[name], "-", why))
        else:
            seconds = candidate.cost.seconds(found.objective)
            rows.append(
                (BASELINES[name], in_seconds(seconds), f"{seconds / found.cost_s:.2f} x" if found.cost_s else "")
            )
    parts += ["", indented(table(("baseline", "a step", "the plan's"), rows, right=(1,)))]
    return "\n".join(parts)


@contextmanager
def _stopping(out: Output) -> Iterator[threading.Event]:
    """An event that Ctrl-C sets; a second Ctrl-C interrupts as usual."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        out.say("stopping with the best so far; Ctrl-C again drops it")

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def _progress(out: Output) -> Iterator[Any]:
    """What the search is doing, on a terminal's stderr."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if out.json or not console.is_terminal:
        yield None
        return
    with console.status("reading") as status:

        def show(news: Progress) -> None:
            best = f", best {in_seconds(news.best_s)}" if news.best_s is not None else ""
            bound = f", bound {in_seconds(news.bound_s)}" if news.bound_s is not None else ""
            status.update(f"{news.doing}{best}{bound}")

        yield show
