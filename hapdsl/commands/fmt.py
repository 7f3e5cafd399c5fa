"""`hapdsl fmt FILE… [--check]`"""

from __future__ import annotations

from pathlib import Path

import click

from hapdsl.commands.output import Output, json_option
from hapdsl.lang.diagnostics import Diagnostic, HapError
from hapdsl.lang.files import write_file


@click.command("fmt")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a file would change.")
@json_option
@click.pass_obj
def command(out: Output, files: tuple[str, ...], check: bool) -> int:
    """Print files in the canonical form: the layout changes, comments and meaning stay."""
    changed: list[str] = []
    found: list[Diagnostic] = []
    texts: dict[str, str] = {}
    for file in dict.fromkeys(files):
        try:
            if _format(file, check, texts):
                changed.append(file)
        except HapError as problem:
            found.extend(problem.diagnostics)
    out.diagnose(found, texts)
    result = {"changed": changed, "ok": not found, "diagnostics": [d.as_json() for d in found]}
    out.data(result, "\n".join(changed))
    if changed and not out.json:
        out.say(f"{len(changed)} of {len(files)} {'would change' if check else 'changed'}")
    return 2 if found else 1 if check and changed else 0


def _format(file: str, check: bool, texts: dict[str, str]) -> bool:
    """Format one file; True if its text changes. Raises HapError where it can't be read, parsed or written."""
    from hapdsl.lang.load import empty
    from hapdsl.lang.parse import parse, read_text
    from hapdsl.lang.print import to_text

    text = texts[file] = read_text(file)
    tree = parse(text, file)
    if not tree.items:
        raise empty(file)
    canonical = to_text(tree)
    if canonical == text:
        return False
    if parse(canonical, file) != tree:  # never write what says something else
        raise AssertionError(f"the printer changed the meaning of {file}")
    if not check:
        write_file(Path(file), canonical)
    return True
