"""How a verb speaks: one JSON object, or words; diagnostics with their source line; faults as diagnostics."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from hapdsl.lang.diagnostics import Diagnostic, HapError
from hapdsl.lang.near import near

_Function = TypeVar("_Function", bound=Callable[..., Any])
# What may be missing, by the name that is imported, and what to ask pip for.
PACKAGES = {
    "torch": "torch",
    "textual": "textual",
    "scipy": "scipy",
    "numpy": "numpy",
    "lark": "lark",
    "graphviz": "graphviz",
    "rich": "rich",
    "safetensors": "safetensors",
    "sklearn": "'hapdsl[digits]'",
    "transformers": "'hapdsl[models]'",
    "timm": "'hapdsl[models]'",
}
FULL = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
)  # stdout is a file, and its disk is full; other files say so by themselves
LARGEST_SHOWN = 4 * 2**20  # of a file whose line is shown again


@dataclass
class Output:
    """Where a verb's results go: with `json`, one object on stdout and nothing else there."""

    json: bool = False

    def data(self, found: Mapping[str, Any], words: str = "") -> None:
        """The result: the object with --json, else the words; both on stdout."""
        if self.json:
            click.echo(json.dumps(plain(found), indent=2, allow_nan=False))
        elif words:
            click.echo(words.rstrip("\n"))

    def say(self, words: str) -> None:
        """Narration, on stderr."""
        click.echo(words, err=True)

    def diagnose(self, diagnostics: Iterable[Diagnostic], files: Mapping[str, str] | None = None) -> None:
        """Diagnostics in words, on stderr (with --json they stand in the object instead)."""
        if self.json:
            return
        from hapdsl.lang.show import render

        for found in diagnostics:
            self.say(render(found, source_of(found.span.file, files or {})))


def json_option(function: _Function) -> _Function:
    """`--json`; main looks for it too, so that bad command lines are answered in kind."""
    return click.option("--json", "_json", is_flag=True, expose_value=False, help="One JSON object on stdout.")(
        function
    )


def failure(diagnostics: Iterable[Diagnostic]) -> dict[str, Any]:
    """The object of any verb that could not do its work."""
    return {"ok": False, "diagnostics": [d.as_json() for d in diagnostics]}


def plain(value: Any) -> Any:
    """A value as JSON knows it: numpy's numbers as Python's, paths as text, and null for what isn't finite."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


def source_of(file: str, files: Mapping[str, str]) -> str | None:
    """The text that a position points into, where it can be had."""
    if file in files:
        return files[file]
    if file == "-":
        from hapdsl.lang.parse import read_text

        with suppress(HapError):
            return read_text(file)
    from hapdsl.lang.resources import theory_folder

    for path in (Path(file), theory_folder() / Path(file).name if file.startswith("theory/") else None):
        with suppress(OSError, ValueError):
            if path is not None and path.is_file() and path.stat().st_size <= LARGEST_SHOWN:
                return path.read_text(encoding="utf-8-sig", errors="replace")
    return None


# -- faults ---------------------------------------------------------------------------


def fault_status(problem: BaseException) -> int:
    """The exit status of what stopped a verb."""
    match problem:
        case HapError():
            return problem.status
        case click.exceptions.Exit():
            return problem.exit_code
        case click.ClickException() | RecursionError():
            return 2
        case ModuleNotFoundError(name=str(name)) if name.partition(".")[0] in PACKAGES:
            return 2
        case OSError(errno=number, filename=None) if number in FULL:
            return 2
        case KeyboardInterrupt() | click.Abort():
            return 130
    return 70


def fault(out: Output, problem: BaseException) -> None:
    """Say what stopped a verb: as the object with --json, else on stderr."""
    match problem:
        case click.exceptions.Exit():
            return
        case HapError() if getattr(problem, "said", False):  # by another rank of this torchrun
            return
        case HapError(diagnostics=diagnostics):
            found = list(diagnostics)
        case click.exceptions.NoArgsIsHelpError() if not out.json:
            out.say(problem.format_message())
            return
        case click.ClickException():
            found = [_usage(problem)]
        case KeyboardInterrupt() | click.Abort():
            if out.json:
                out.data({**failure(()), "interrupted": True})
            else:
                out.say("interrupted")
            return
        case RecursionError():
            found = [Diagnostic("HAP104", "nested too deeply", help="give inner parts names of their own")]
        case ModuleNotFoundError(name=str(name)) if name.partition(".")[0] in PACKAGES:
            found = [_missing(name.partition(".")[0])]
        case OSError(errno=number, filename=None) if number in FULL:
            found = [Diagnostic("HAP852", f"the output can't be written: {problem.strerror}")]
        case _:
            found = [_inside(problem)]
    if out.json:
        out.data(failure(found))
    else:
        out.diagnose(found)


def ending(out: Output) -> Callable[[HapError], None]:
    """For what a thread finds while the verb itself may wait for ever: it is said like any other fault, and the process ends."""

    def fatal(stop: HapError) -> None:
        try:
            fault(out, stop)
        finally:  # whatever has become of stdout
            os._exit(stop.status)

    return fatal


def _usage(problem: click.ClickException) -> Diagnostic:
    context = getattr(problem, "ctx", None)
    verb = context.command_path if context is not None else "hapdsl"
    message = " ".join(problem.format_message().split())
    if isinstance(problem, click.exceptions.NoArgsIsHelpError):
        message = "no command is given"
    hint = f"`{verb} --help` says what there is"
    if context is not None and isinstance(context.command, click.Group):
        typed = message.partition("'")[2].rpartition("'")[0]
        hint = f"{near(typed, context.command.list_commands(context))} {hint}".lstrip()
    return Diagnostic("HAP850", message[:1].lower() + message[1:].rstrip("."), help=hint)


def _missing(name: str) -> Diagnostic:
    hint = f"`pip install {PACKAGES[name]}`; `hapdsl doctor` shows what else is there"
    return Diagnostic("HAP853", f"{name} isn't installed, and this command needs it", help=hint)


def _inside(problem: BaseException) -> Diagnostic:
    """A fault of ours: where it happened in one line, the whole story in a file."""
    import tempfile
    import traceback

    last = traceback.extract_tb(problem.__traceback__)[-1:]
    where = f" ({Path(last[0].filename).name}:{last[0].lineno})" if last else ""
    words = f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}{where}"
    hint = "please report it with the command and its files"
    with suppress(OSError), tempfile.NamedTemporaryFile("w", prefix="hapdsl-", suffix=".log", delete=False) as stream:
        stream.write(f"{sys.argv}\n")
        stream.writelines(traceback.format_exception(problem))
        hint += f"; details are in {stream.name}"
    return Diagnostic("HAP899", f"an error inside hapdsl: {words}", help=hint)
