"""`hapdsl explain CODE`, `hapdsl explain OPERATOR`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hapdsl.commands.output import Output, json_option

if TYPE_CHECKING:
    from hapdsl.theory.reference import Entry


def known(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """What TAB gives: codes and operators that begin so."""
    from hapdsl.lang.codes import CODES

    return [n for n in (*CODES, *_names()) if n.startswith(incomplete)]


@click.command("explain")
@click.argument("names", nargs=-1, metavar="[CODE or OPERATOR]...", shell_complete=known)
@json_option
@click.pass_obj
def command(out: Output, names: tuple[str, ...]) -> None:
    """Say what a diagnostic's code means, or what an operator of the standard theory does: its rules, costs and gradient.

    Without a name, list all codes.
    """
    from hapdsl.lang.codes import CODES

    if not names:
        found = {code: known.title for code, known in sorted(CODES.items())}
        out.data({"codes": found}, "\n".join(f"{code}  {title}" for code, title in found.items()))
        return
    operators = _operators(names)
    texts: list[str] = []
    objects: list[dict[str, Any]] = []
    for name in names:
        text, said = _operator(operators[name]) if name in operators else _code(name)
        texts.append(text)
        objects.append(said)
    plural = "operators" if all(n in operators for n in names) else "codes"
    out.data(objects[0] if len(objects) == 1 else {plural: objects}, "\n".join(texts))


def _operators(names: tuple[str, ...]) -> dict[str, Entry]:
    """The operators among the names; the theory isn't read for codes alone."""
    from hapdsl.lang.codes import CODES

    if all(n.strip().upper() in CODES for n in names):
        return {}
    from hapdsl.theory.reference import entries

    return {n: entries()[n] for n in names if n in entries()}


def _operator(found: Entry) -> tuple[str, dict[str, Any]]:
    from hapdsl.theory.reference import plain

    return plain(found), found.as_json()


def _code(name: str) -> tuple[str, dict[str, Any]]:
    from hapdsl.lang.codes import CODES, explain

    text = explain(name, _names())
    k = CODES[name.strip().upper()]
    return text, {
        "code": name.strip().upper(),
        "title": k.title,
        "text": k.text,
        "wrong": k.example_bad,
        "right": k.example_good,
    }


def _names() -> list[str]:
    from hapdsl.theory.library import standard

    return list(standard())
