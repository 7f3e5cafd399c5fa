"""`hapdsl explore FILE`"""

from __future__ import annotations

import click

from hapdsl.commands.output import Output


@click.command("explore")
@click.argument("file", metavar="FILE")
@click.option("--model", metavar="NAME", help="The model, where FILE has several.")
@click.option("--cluster", metavar="FILE[:NAME]", help="The cluster: a NAME in FILE, or another file's.")
@click.pass_obj
def command(out: Output, file: str, model: str | None, cluster: str | None) -> int:
    """Open FILE in the explorer: plans, programs, costs, and an editor that checks as you type."""
    from hapdsl.explore import explore

    return explore(file, model=model, cluster=cluster)
