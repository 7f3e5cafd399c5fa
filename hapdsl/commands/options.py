"""Kinds of options that several verbs take."""

from __future__ import annotations

import math
from collections.abc import Mapping
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


class About(click.Option):
    """An option that means nothing in some calls of its verb: there it is refused, where it would be silently ignored.

    `about` says what it is about, one thing or several: another option of the verb (`--sweep`), without which it is refused here, or words for what the
    verb finds out by itself (`planning`), and then the verb calls `nothing_about` where it does nothing of the kind.
    """

    def __init__(self, *names: Any, about: str | tuple[str, ...], **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self.about = (about,) if isinstance(about, str) else about

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        for needed in (p for p in ctx.command.params if set(p.opts) & set(self.about)):
            if self.name in opts and needed.name not in opts and not ctx.resilient_parsing:
                which = needed.opts[0]
                given = [o for o in _all_about(which, ctx) if o.name in opts]
                needs = "needs" if len(given) == 1 else "need"
                way = f"{which} {needed.metavar or ''}".rstrip()
                raise click.UsageError(f"{_listed(given)} {needs} {which}: add {way}, or leave {_it(given)} out", ctx)
        return super().handle_parse_result(ctx, opts, args)


def nothing_about(what: str, why: str) -> None:
    """Raises click.UsageError for options about `what` on the command line of a verb that does nothing of the kind; `why`, and what would be done instead."""
    context = click.get_current_context()
    default = click.core.ParameterSource.DEFAULT
    given = [o for o in _all_about(what, context) if context.get_parameter_source(o.name or "") is not default]
    if given:
        are = "is" if len(given) == 1 else "are"
        raise click.UsageError(f"{_listed(given)} {are} about {what}: {why}", context)


def _all_about(what: str, context: click.Context) -> list[About]:
    return [p for p in context.command.params if isinstance(p, About) and what in p.about]


def _listed(options: list[About]) -> str:
    names = [o.opts[0] for o in options]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _it(options: list[About]) -> str:
    return "it" if len(options) == 1 else "them"


class Real(click.FloatRange):
    """A number in a range. NaN compares with nothing, so click's own range lets it through."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number is not None and math.isnan(number):
            self.fail(f"{value} is no number.", param, ctx)
        return number
