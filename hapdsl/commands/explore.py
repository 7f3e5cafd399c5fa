"""`hapdsl explore [TRACE] FILE`"""

from __future__ import annotations

import click

from hapdsl.commands.output import Output
from hapdsl.commands.settings import read_settings


@click.command("explore")
@click.argument("files", metavar="[TRACE] FILE", nargs=-1, required=True)
@click.option("--model", metavar="NAME", help="The model, where FILE has several.")
@click.option("--cluster", metavar="FILE[:NAME]", help="The cluster: a NAME in FILE, or another file's.")
@click.option("--set", "settings", multiple=True, metavar="K=V", help="Set a parameter of the model; may be repeated.")
@click.option("--theme", metavar="NAME", help="Colours: textual-dark, textual-light, nord, gruvbox, … (remembered when chosen inside).")
@click.pass_obj
def command(
    out: Output, files: tuple[str, ...], model: str | None, cluster: str | None, settings: tuple[str, ...], theme: str | None
) -> int:
    """Open FILE in the explorer: plans, programs, costs, and an editor that checks as you type.

    TRACE (a .json of `hapdsl run FILE --trace TRACE`) is shown beside what was predicted.
    """
    from hapdsl.explore import explore

    traces = [f for f in files if f.endswith(".json")]
    others = [f for f in files if not f.endswith(".json")]
    if len(others) != 1 or len(traces) > 1:
        raise click.UsageError("name one FILE, and at most one trace (.json) of a run of it")
    file, trace = others[0], traces[0] if traces else None
    values = {}
    if settings:
        from hapdsl.workbench import Workbench

        values = read_settings(Workbench(file).model(model), settings)
    return explore(file, model=model, cluster=cluster, settings=values, trace=trace, theme=theme)
