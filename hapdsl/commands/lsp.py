"""`hapdsl lsp`"""

from __future__ import annotations

import click

from hapdsl.commands.output import Output


@click.command("lsp")
@click.pass_obj
def command(out: Output) -> int:
    """Serve editors over stdin and stdout (Language Server Protocol): diagnostics, hover, definitions, renaming, formatting, fixes.

    Editors start it themselves: docs/editors has an extension for VS Code, and what others need.
    """
    try:
        import pygls  # noqa: F401
    except ImportError:
        from hapdsl.lang.diagnostics import error

        raise error(
            "HAP822", "the language server needs pygls, which isn't installed", help="pip install 'hapdsl[lsp]'"
        ) from None
    from hapdsl.explore.lsp import serve

    return serve()
