"""`hapdsl version`"""

from __future__ import annotations

import platform

import click

from hapdsl import __version__
from hapdsl.commands.output import Output, json_option

FORMAT = 1  # of programs and plans: the number in front of a fingerprint


@click.command("version")
@json_option
@click.pass_obj
def command(out: Output) -> None:
    """Print the version of hapdsl, of the text format and of Python."""
    python = platform.python_version()
    found = {"version": __version__, "format": FORMAT, "python": python}
    out.data(found, f"hapdsl {__version__} (format {FORMAT}, Python {python})")
