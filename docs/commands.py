"""`python docs/commands.py`: docs/commands.md, every verb with its arguments and options, from what `--help` says."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from hapdsl.cli import VERBS, cli
from hapdsl.lang.files import write_file

PAGE = Path(__file__).parent / "commands.md"
HEAD = """# Commands

Every verb, as `hapdsl VERB --help` describes it. (`make commands` makes this page.)

What a verb found goes to stdout, what it says meanwhile to stderr. `--json` prints one object on stdout and nothing else there, on failure too. A FILE of `-` is
stdin, and `-o -` is stdout for texts (`fmt -` prints what it was given in the canonical form). Colours and bars are for terminals; `NO_COLOR=1` leaves colours out.

| exit status | |
|---|---|
| 0 | done, and the answer is yes |
| 1 | done, and the answer is no: a program isn't proven, a file isn't in its form, a plan doesn't fit |
| 2 | bad input; the message has a code (`hapdsl explain CODE` says more), a place, and often what would make it right |
| 130 | interrupted; `plan` and sweeps keep the best so far, `run` its checkpoints, `profile` what it has measured |
| 141 | whoever read the output has closed it |
| 70 | a fault of hapdsl itself, worth a report |
"""


def leaves(
    name: str, command: click.Command, above: click.Context | None = None
) -> Iterator[tuple[str, click.Context]]:
    """Each command that does something, with its whole name."""
    context = click.Context(command, info_name=name, parent=above)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from leaves(below, found, context)
    else:
        yield context.command_path, context


def marked(words: str) -> str:
    """Text of --help in Markdown: names of options as code where they aren't yet, and no angle brackets or bars that a table would take for its own."""
    parts = re.sub(r"\s+", " ", words).replace("|", "\\|").split("`")
    for k in range(0, len(parts), 2):  # between them is code, in which all stands as it is
        plain = parts[k].replace("<", "\\<").replace("*", "\\*")
        parts[k] = re.sub(r"(?<![\w-])(--[a-z][a-z-]*)", r"`\1`", plain)
    return "`".join(parts)


def section(path: str, context: click.Context) -> str:
    """A verb's usage, words and options."""
    command = context.command
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    said = []
    for paragraph in paragraphs:
        plain = "\x08" in paragraph or paragraph.startswith("    ")  # click keeps the lines of such a paragraph
        lines = [line for line in paragraph.replace("\x08", "").split("\n") if line.strip()]
        said.append("\n".join(f"    {line}" for line in lines) if plain else marked(paragraph))
    records = [p.get_help_record(context) for p in command.params if isinstance(p, click.Option)]
    rows = [f"| `{names.replace('|', chr(92) + '|')}` | {marked(words)} |" for names, words in filter(None, records)]
    table = "\n".join(["| | |", "|---|---|", *rows]) if rows else ""
    title = path.removeprefix("hapdsl ")
    return "\n\n".join(part for part in (f"## {title}", f"    {usage}", *said, table) if part)


def page() -> str:
    """The whole page."""
    sections = [section(path, context) for path, context in leaves("hapdsl", cli)]
    assert {s.split("\n")[0].split()[1] for s in sections} == set(VERBS)
    return "\n".join([HEAD, *(f"{s}\n" for s in sections)])


def main() -> int:
    write_file(PAGE, page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
