"""`hapdsl fmt FILE… [--check]`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hapdsl.commands.options import files
from hapdsl.commands.output import Output, json_option
from hapdsl.lang.diagnostics import Diagnostic, HapError
from hapdsl.lang.files import write_file

STDIN = "-"  # as in hapdsl.lang.parse, which is imported late


@click.command("fmt")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=files)
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a file would change.")
@json_option
@click.pass_obj
def command(out: Output, files: tuple[str, ...], check: bool) -> int:
    """Print files in the canonical form: the layout changes, comments and meaning stay.

    A FILE of - is stdin, and its canonical form goes to stdout.
    """
    changed: list[str] = []
    found: list[Diagnostic] = []
    texts: dict[str, str] = {}
    printed: dict[str, str] = {}
    files = tuple(dict.fromkeys(files))
    for file in files:
        try:
            canonical = printed[file] = _canonical(file, texts)
            if canonical == texts[file]:
                continue
            if not check and file != STDIN:
                write_file(Path(file), canonical)
            changed.append(file)
        except HapError as problem:
            found.extend(problem.diagnostics)
    out.diagnose(found, texts)
    result: dict[str, Any] = {"changed": changed, "ok": not found, "diagnostics": [d.as_json() for d in found]}
    piped = {} if check or STDIN not in printed else {"text": printed[STDIN]}
    named = changed if check else [file for file in changed if file != STDIN]
    out.data(result | piped, piped.get("text") or "\n".join(named))
    if named and not out.json:
        out.say(f"{len(named)} of {len(files)} {'would change' if check else 'changed'}")
    return 2 if found else 1 if check and changed else 0


def _canonical(file: str, texts: dict[str, str]) -> str:
    """The canonical form of a file, whose text is kept in `texts`. Raises HapError where it can't be read or parsed."""
    from hapdsl.lang.load import empty
    from hapdsl.lang.parse import parse, read_text
    from hapdsl.lang.print import to_text

    texts[file] = read_text(file)
    tree = parse(texts[file], file)
    if not tree.items:
        raise empty(file)
    canonical = to_text(tree)
    if parse(canonical, file) != tree:  # never write what says something else
        raise AssertionError(f"the printer changed the meaning of {file}")
    return canonical
