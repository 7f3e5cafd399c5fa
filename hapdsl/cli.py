"""The command line: `hapdsl VERB …`. Each verb lives in `hapdsl/commands/` and is imported when it is called.

stdout is data, stderr is narration. Exit status: 0 done and the answer is yes, 1 done and the answer is no, 2 bad
input, 130 interrupted, 70 a fault of hapdsl itself.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from hapdsl.commands.output import Output, fault, fault_status

# Shown by --help without importing anything.
VERBS = {
    "check": "Prove programs, or say what is wrong at which line.",
    "fmt": "Print files in the canonical form.",
    "plan": "Find a program and shares for a model on a cluster.",
    "cost": "Price programs on a cluster.",
    "compare": "Put programs side by side and show what differs.",
    "why": "Say what other choices in a plan would cost.",
    "run": "Run a program on local processes.",
    "checkpoint": "Look at checkpoints; export and import weights.",
    "profile": "Measure this cluster and write it down.",
    "import": "Make a model's text from a PyTorch module.",
    "expand": "Write a program over nodes as one over all their devices.",
    "draw": "Draw a program, a model or a cluster; when a step does what.",
    "explore": "Open the explorer.",
    "lsp": "Serve editors: diagnostics, hover, definitions, renaming, fixes.",
    "explain": "Say what a diagnostic's code means.",
    "doctor": "Say what is installed, what works here, and what to do.",
    "completion": "Print a shell's completion script.",
    "version": "Print the version.",
}

MODULES = {"import": "import_"}  # a verb that Python keeps for itself


class Verbs(click.Group):
    """A group whose commands are imported by name, so that `hapdsl --help` starts at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        found = importlib.import_module(f"hapdsl.commands.{MODULES.get(cmd_name, cmd_name)}").command
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=lambda ctx, _, value: _version(ctx) if value else None, help="Print the version.")  # fmt: skip
def cli() -> None:
    """Plan, prove and run one model on devices that differ.

    A model, a cluster and a program are text (.hap). `hapdsl VERB --help` says what a verb takes.
    """


def _version(ctx: click.Context) -> None:
    from hapdsl import __version__

    click.echo(f"hapdsl {__version__}")
    ctx.exit(0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status. Nothing that a user types leaves a traceback."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal may not know every character
    out = Output(json="--json" in arguments)
    if "_HAPDSL_COMPLETE" in os.environ:
        from click.shell_completion import shell_complete

        from hapdsl.commands.completion import COMPLETE

        return shell_complete(cli, {}, "hapdsl", COMPLETE, os.environ[COMPLETE])
    try:
        # Not click's own main: it turns a closed pipe into an exit status that here says "no".
        with _few_collections(), cli.make_context("hapdsl", arguments, obj=out) as context:
            status = cli.invoke(context)
        _flush()
        return status if isinstance(status, int) else 0
    except BrokenPipeError:
        _hush()
        return 141
    except BaseException as problem:
        status = fault_status(problem)
        try:
            fault(out, problem)
            _flush()
        except OSError:  # a reader that has gone, a full disk: there is nowhere left to say it
            _hush()
        return status


@contextmanager
def _few_collections() -> Iterator[None]:
    """Trees and graphs are hundreds of thousands of objects that live to the end; looking through them for cycles again and again takes a fifth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _flush() -> None:
    """Write out what is still held; a process may have been started without a stdout."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _hush() -> None:
    """Whoever read our output has enough, or can't be reached. Python would complain again when it closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())
