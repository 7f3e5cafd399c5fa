"""`hapdsl explore [TRACE] FILE`, `hapdsl explore PACKAGE.MODULE:FACTORY`"""

from __future__ import annotations

import re
from pathlib import Path

import click

from hapdsl.commands.options import About, files, nothing_about
from hapdsl.commands.output import Output
from hapdsl.commands.settings import read_settings

WEB_OPTIONS = ("host", "port")
IMPORT_OPTIONS = ("example", "loss", "target", "optimizer", "ops", "name")
FACTORY = re.compile(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*(\.\w+)*")


@click.command("explore")
@click.argument("files", metavar="[TRACE] FILE|PACKAGE.MODULE:FACTORY", shell_complete=files, nargs=-1, required=True)
@click.option("--model", cls=About, about="a FILE", metavar="NAME", help="The model, where FILE has several.")
@click.option(
    "--cluster", metavar="FILE[:NAME]", shell_complete=files, help="The cluster: a NAME in FILE, or another file's."
)
@click.option("--set", "settings", cls=About, about="a FILE", multiple=True, metavar="K=V", help="Set a parameter of the model; may be repeated.")  # fmt: skip
@click.option("--theme", metavar="NAME", help="Colours: textual-dark, textual-light, nord, gruvbox, … (remembered when chosen inside).")  # fmt: skip
@click.option("--example", cls=About, about="importing", metavar="ARGUMENTS", help='With a FACTORY: what forward is called with: "x : f32[batch = 8, 16]; label : i64[batch]".')  # fmt: skip
@click.option("--loss", cls=About, about="importing", metavar="NAME", help="With a FACTORY: cross_entropy or mse_loss of the first result, where the module returns no loss.")  # fmt: skip
@click.option("--target", cls=About, about=("importing", "--loss"), metavar="NAME", help="With a FACTORY: the entry of --example that --loss compares with.")  # fmt: skip
@click.option("--optimizer", cls=About, about="importing", metavar="CALL", help="With a FACTORY: as behind `train loss with`.")  # fmt: skip
@click.option(
    "--ops",
    cls=About,
    about="importing",
    metavar="FILE",
    shell_complete=files,
    help="With a FACTORY: operators for functions that the theory doesn't know.",
)
@click.option("--name", cls=About, about="importing", metavar="NAME", help="With a FACTORY: the model's name.")
@click.option("--web", is_flag=True, help="Show it in a browser instead of this terminal.")
@click.option("--host", cls=About, about="--web", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="With --web: where it listens. Elsewhere than on this machine nobody is asked for a password.")  # fmt: skip
@click.option("--port", cls=About, about="--web", type=click.IntRange(1, 65535), default=8000, show_default=True, metavar="N", help="With --web: the port.")  # fmt: skip
@click.pass_context
def command(
    context: click.Context,
    files: tuple[str, ...],
    model: str | None,
    cluster: str | None,
    settings: tuple[str, ...],
    theme: str | None,
    example: str | None,
    loss: str | None,
    target: str | None,
    optimizer: str | None,
    ops: str | None,
    name: str | None,
    web: bool,
    host: str,
    port: int,
) -> int:
    """Open FILE in the explorer: plans, programs, costs, and an editor that checks as you type.

    TRACE (a .json of `hapdsl run FILE --trace TRACE`) is shown beside what was predicted. A FACTORY is imported as `hapdsl import` does
    it, while the screen is there.
    """
    traces = [f for f in files if f.endswith(".json")]
    others = [f for f in files if not f.endswith(".json")]
    if len(others) != 1 or len(traces) > 1:
        raise click.UsageError("name one FILE, and at most one trace (.json) of a run of it")
    for name_given, what in ((others[0], "the file"), (cluster, "--cluster")):
        if name_given == "-":
            raise click.UsageError(f"{what} can't be stdin, which the screen needs: name a file")
    file, trace = others[0], traces[0] if traces else None
    brings = (
        FACTORY.fullmatch(file) is not None and not file.partition(":")[0].endswith(".hap") and not Path(file).exists()
    )
    _suits(context, brings, trace)
    values = {}
    if settings:
        from hapdsl.workbench import Workbench

        values = read_settings(Workbench(file).model(model), settings)
    if web:
        return _serve(context, None if brings else file, host, port)
    from hapdsl.explore import explore

    bring = None
    if brings:
        from hapdsl.explore.bringing import Bring

        words = [f"--{o}={context.params[o]}" for o in IMPORT_OPTIONS if context.params[o] is not None and o != "name"]
        bring = Bring(file, name or file.rpartition(":")[2].rpartition(".")[2].lower(), tuple(words))
    return explore(file, model=model, cluster=cluster, settings=values, trace=trace, theme=theme, bring=bring)


def _suits(context: click.Context, brings: bool, trace: str | None) -> None:
    """Raises UsageError for options that say nothing about what is opened."""
    if not brings:
        nothing_about("importing", "name a PACKAGE.MODULE:FACTORY")
    if brings and context.params["example"] is None:
        raise click.UsageError(
            'a FACTORY needs --example, as with `hapdsl import`: --example "x : f32[batch = 8, 16]; label : i64[batch]"'
        )
    if brings:
        nothing_about("a FILE", "lengths of an imported model are those of --example")
    if brings and trace is not None:
        raise click.UsageError("a trace is of a run of a FILE")


def _serve(context: click.Context, file: str | None, host: str, port: int) -> int:
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

    if file is not None:
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
            found += [f"{parameter.opts[0]}={one}"]
    return [*found, "--", *context.params["files"]]
