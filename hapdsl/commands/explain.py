"""`hapdsl explain CODE`"""

from __future__ import annotations

import click

from hapdsl.commands.output import Output, json_option


@click.command("explain")
@click.argument("codes", nargs=-1, metavar="[CODE]...")
@json_option
@click.pass_obj
def command(out: Output, codes: tuple[str, ...]) -> None:
    """Say what a diagnostic's code means; without a code, list them all."""
    from hapdsl.lang.codes import CODES, explain

    if not codes:
        found = {code: known.title for code, known in sorted(CODES.items())}
        out.data({"codes": found}, "\n".join(f"{code}  {title}" for code, title in found.items()))
        return
    texts = [explain(code) for code in codes]
    known = [CODES[code.strip().upper()] for code in codes]
    objects = [
        {"code": code.strip().upper(), "title": k.title, "text": k.text, "wrong": k.example_bad, "right": k.example_good}
        for code, k in zip(codes, known, strict=True)
    ]
    out.data(objects[0] if len(objects) == 1 else {"codes": objects}, "\n".join(texts))
