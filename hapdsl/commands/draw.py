"""`hapdsl draw FILE -o OUT`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hapdsl.commands.options import About, files, nothing_about, to_file
from hapdsl.commands.output import Output, json_option
from hapdsl.commands.settings import read_settings

if TYPE_CHECKING:
    from pathlib import Path

    from hapdsl.lang.diagnostics import Report
    from hapdsl.workbench import Workbench


@click.command("draw")
@click.argument("file", metavar="FILE", shell_complete=files)
@click.option("-o", "--output", required=True, callback=to_file, metavar="OUT", shell_complete=files, help="A .dot, .svg or .png picture, or the .json timeline of a program (for chrome://tracing or Perfetto).")  # fmt: skip
@click.option("--program", "name", metavar="NAME", help="The program, where FILE has several.")
@click.option("--model", metavar="NAME", help="Draw a model's training graph instead.")
@click.option("--cluster", metavar="NAME", help="Draw a cluster's nodes and links instead.")
@click.option("--set", "settings", cls=About, about="a model", multiple=True, metavar="K=V", help="Set a parameter of the model; may be repeated.")  # fmt: skip
@click.option(
    "--on",
    cls=About,
    about="a program",
    metavar="CLUSTER",
    shell_complete=files,
    help="Another cluster for the costs: a NAME in FILE, a file, or FILE:NAME.",
)
@click.option("--timeline", "time", cls=About, about="a program", type=click.Choice(["overlap", "sync"]), is_flag=False, flag_value="overlap", help="Draw when things happen (overlap, where nothing is said): .svg is a Gantt chart with idle time marked, .json a trace.")  # fmt: skip
@json_option
@click.pass_obj
def command(
    out: Output,
    file: str,
    output: str,
    name: str | None,
    model: str | None,
    cluster: str | None,
    settings: tuple[str, ...],
    on: str | None,
    time: str | None,
) -> int:
    """Draw the program of FILE, or the training graph of its model, or its cluster.

    With --timeline: when each device computes and communicates, and when it is idle.
    Colours are placements, collectives have a shape of their own, layers are boxes; what a step waits for has a red border. Without Graphviz's dot the .dot is written.
    """
    from hapdsl.lang.diagnostics import Report
    from hapdsl.workbench import Workbench

    bench = Workbench(file)
    report = Report()
    _one_thing(name, model, cluster)
    of_program = bool(bench.programs()) or any(option is not None for option in (name, on, time))
    chosen = name is not None or cluster is not None
    if model is not None or (not chosen and (settings or (not of_program and bench.bundle.models))):
        nothing_about(
            "a program", "a model has neither a price nor a time; without --model and --set a program is drawn"
        )
        files = _model(bench, model, settings, output, report)
    elif cluster is not None or not of_program:
        nothing_about("a program", "a cluster has neither a price nor a time; without --cluster a program is drawn")
        nothing_about("a model", "a cluster has no parameters; without --cluster a model is drawn")
        files = _cluster(bench, cluster, output, report)
    else:
        nothing_about(
            "a model", "a program has its model's parameters from its header; without --program a model is drawn"
        )
        files = _program(bench, name, on, output, report, time)
    out.diagnose(report)
    found = {"files": files, "diagnostics": [d.as_json() for d in report]}
    out.data(found, "\n".join(str(f) for f in files))
    return 0


def _one_thing(name: str | None, model: str | None, cluster: str | None) -> None:
    """Raises click.UsageError for options that are about different things."""
    named = [
        option
        for option, given in (("--program", name), ("--model", model), ("--cluster", cluster))
        if given is not None
    ]
    if len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)}: a drawing shows one of them")


def _model(bench: Workbench, name: str | None, settings: tuple[str, ...], output: str, report: Report) -> list[Path]:
    from hapdsl.draw.program import draw_graph

    node = bench.model(name)
    return draw_graph(bench.graph(node.name, read_settings(node, settings)), output, report=report)


def _cluster(bench: Workbench, name: str | None, output: str, report: Report) -> list[Path]:
    from hapdsl.draw.program import draw_cluster

    return draw_cluster(bench.cluster(name), output, report=report)


def _program(
    bench: Workbench, name: str | None, on: str | None, output: str, report: Report, time: str | None
) -> list[Path]:
    from hapdsl.draw.program import draw_program

    tree = bench.program(name)
    if tree.cluster is None and on is None and time is None:
        return draw_program(bench.proven(tree).program, None, output, report=report)
    checked, cluster, cost = bench.cost(tree, on)
    names = [d.name for d in cluster.devices]
    return draw_program(checked.program, cost, output, devices=names, report=report, time=time)
