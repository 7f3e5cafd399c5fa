"""`hapdsl explore FILE`"""

from __future__ import annotations

import click

from hapdsl.commands.output import Output
from hapdsl.commands.settings import read_settings


@click.command("explore")
@click.argument("file", metavar="FILE")
@click.option("--model", metavar="NAME", help="The model, where FILE has several.")
@click.option("--cluster", metavar="FILE[:NAME]", help="The cluster: a NAME in FILE, or another file's.")
@click.option("--set", "settings", multiple=True, metavar="K=V", help="Set a parameter of the model; may be repeated.")
@click.pass_obj
def command(out: Output, file: str, model: str | None, cluster: str | None, settings: tuple[str, ...]) -> int:
    """Open FILE in the explorer: plans, programs, costs, and an editor that checks as you type."""
    from hapdsl.explore import explore
    from hapdsl.workbench import Workbench

    values = read_settings(Workbench(file).model(model), settings) if settings else {}
    return explore(file, model=model, cluster=cluster, settings=values)
