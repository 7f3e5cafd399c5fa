"""`hapdsl explore [TRACE] FILE`"""

from __future__ import annotations

import click

from hapdsl.commands.output import Output
from hapdsl.commands.settings import read_settings

WEB_OPTIONS = ("host", "port")


@click.command("explore")
@click.argument("files", metavar="[TRACE] FILE", nargs=-1, required=True)
@click.option("--model", metavar="NAME", help="The model, where FILE has several.")
@click.option("--cluster", metavar="FILE[:NAME]", help="The cluster: a NAME in FILE, or another file's.")
@click.option("--set", "settings", multiple=True, metavar="K=V", help="Set a parameter of the model; may be repeated.")
@click.option("--theme", metavar="NAME", help="Colours: textual-dark, textual-light, nord, gruvbox, … (remembered when chosen inside).")  # fmt: skip
@click.option("--web", is_flag=True, help="Show it in a browser instead of this terminal.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="With --web: where it listens. Elsewhere than on this machine nobody is asked for a password.")  # fmt: skip
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True, metavar="N", help="With --web: the port.")  # fmt: skip
@click.pass_context
def command(
    context: click.Context,
    files: tuple[str, ...],
    model: str | None,
    cluster: str | None,
    settings: tuple[str, ...],
    theme: str | None,
    web: bool,
    host: str,
    port: int,
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
    if web:
        return _serve(context, file, host, port)
    given = [o for o in WEB_OPTIONS if context.get_parameter_source(o) is not click.core.ParameterSource.DEFAULT]
    if given:
        raise click.UsageError(f"--{given[0]} says where --web listens: it needs --web")
    return explore(file, model=model, cluster=cluster, settings=values, trace=trace, theme=theme)


def _serve(context: click.Context, file: str, host: str, port: int) -> int:
    """Serve what the other words of the command line ask for."""
    try:
        import textual_serve  # noqa: F401
    except ImportError:
        from hapdsl.lang.diagnostics import error

        raise error(
            "HAP823", "--web needs textual-serve, which isn't installed", help="pip install 'hapdsl[web]'"
        ) from None
    from hapdsl.explore.app import session_of
    from hapdsl.explore.web import serve

    session_of(file)  # says what is wrong with the file here, not in the browser
    out: Output = context.obj
    return serve(_words(context), host, port, out.say)


def _words(context: click.Context) -> list[str]:
    """The command line without what concerns the web."""
    found: list[str] = []
    for parameter in context.command.params:
        name, value = parameter.name or "", context.params.get(parameter.name or "")
        if name in ("web", *WEB_OPTIONS) or not value or not isinstance(parameter, click.Option):
            continue
        for one in value if isinstance(value, tuple) else (value,):
            found += [f"{parameter.opts[-1] if len(parameter.opts) == 1 else parameter.opts[0]}={one}"]
    return [*found, "--", *context.params["files"]]
