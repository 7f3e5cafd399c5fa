"""Kinds of options that several verbs take."""

from __future__ import annotations

import math
from typing import Any

import click
from click.shell_completion import CompletionItem


def to_stdout(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """What `-o` names; `-o -` is stdout, as if it weren't there."""
    return None if value in ("-", None) else to_file(context, parameter, value)


def to_file(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """What `-o` names, where it has to be a file."""
    return _named("file", context, parameter, value)


def to_folder(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """What `-o` names, where it has to be a folder."""
    return _named("folder", context, parameter, value)


def _named(what: str, context: click.Context, parameter: click.Parameter, value: str) -> str:
    if value in ("-", ""):
        wrong = "this doesn't go to stdout" if value else f"an empty name is no {what}'s"
        raise click.BadParameter(f"{wrong}: name a {what}.", context, parameter)
    return value


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What TAB gives where a file stands: the shell's own completion."""
    return [CompletionItem(incomplete, type="file")]


def folders(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What TAB gives where a folder stands."""
    return [CompletionItem(incomplete, type="dir")]


program_output = click.option(
    "-o",
    "--output",
    metavar="OUT",
    shell_complete=files,
    callback=to_stdout,
    help="Write the program here, with all that it needs. Without it: to stdout, as with -.",
)


class Real(click.FloatRange):
    """A number in a range. NaN compares with nothing, so click's own range lets it through."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number is not None and math.isnan(number):
            self.fail(f"{value} is no number.", param, ctx)
        return number
