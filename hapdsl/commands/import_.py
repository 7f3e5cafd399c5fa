"""`hapdsl import PACKAGE.MODULE:FACTORY`"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from hapdsl.commands.options import About, files, nothing_about, to_stdout
from hapdsl.commands.output import Output, json_option
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.files import check_writable, write_file


@click.command("import")
@click.argument("factory", metavar="PACKAGE.MODULE:FACTORY")
@click.option("--example", required=True, metavar="ARGUMENTS", help='What forward is called with: "x : f32[batch = 8, 16]; label : i64[batch]".')  # fmt: skip
@click.option(
    "--loss", metavar="NAME", help="cross_entropy or mse_loss of the first result, where the module returns no loss."
)
@click.option(
    "--target",
    cls=About,
    about="--loss",
    default="label",
    show_default=True,
    metavar="NAME",
    help="The entry of --example that --loss compares with.",
)
@click.option(
    "--optimizer",
    cls=About,
    about="training",
    default="adam(lr = 0.001)",
    show_default=True,
    metavar="CALL",
    help="As behind `train loss with`.",
)
@click.option("--ops", type=click.Path(dir_okay=False), metavar="FILE", help="Operators for functions that the theory doesn't know: op NAME for LIBRARY::NAME.")  # fmt: skip
@click.option("--name", metavar="NAME", help="The model's name; the factory's where left out.")
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    shell_complete=files,
    callback=to_stdout,
    help="Write the text here. Without it: to stdout, as with -.",
)
@json_option
@click.pass_obj
def command(
    out: Output,
    factory: str,
    example: str,
    loss: str | None,
    target: str,
    optimizer: str,
    ops: str | None,
    name: str | None,
    output: str | None,
) -> int:
    """Make a model's text from a PyTorch module, through torch.export, without allocating its weights.

    The named module is imported and the factory is called: their code runs. A factory takes no arguments and returns the nn.Module.

    Names of parameters are those of the state_dict; equal layers become a `repeat`; dims that the example names are parameters of the
    model, as are heads and widths.
    """
    from hapdsl.importing.convert import import_module  # torch takes seconds
    from hapdsl.importing.factory import find, make
    from hapdsl.importing.weights import save_tables

    name = name or factory.rpartition(":")[2].rpartition(".")[2].lower()
    if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) is None:
        raise click.UsageError(f"'{name}' can't be a model's name: letters, digits and _ can, --name NAME")
    if output is not None:
        check_writable(output)
    module = make(find(factory), factory)
    wishes = (example, name, loss, target, optimizer, f"imported from {factory}", ops)
    try:
        found = import_module(module, *wishes)
    except HapError:
        if not _lacks_content(module):
            raise
        found = import_module(make(find(factory), factory, weights=True), *wishes)
    if not found.trains:
        nothing_about("training", "there is nothing to train; --loss NAME gives a module a loss that returns none")
    result = {
        "model": found.model,
        "operators": found.operators,
        "parameters": {n: list(s) for n, s in found.shapes.items()},
        "unused": found.unused,
        "tables": sorted(found.tables),
        "remarks": found.remarks,
        "lines": found.text.count("\n"),
        "output": output,
    }
    beside = None
    if output is not None:
        write_file(Path(output), found.text)
        beside = save_tables(output, found.tables)
        out.data(
            result, f"{found.model}: {found.operators} operators, {len(found.shapes)} tensors, written to {output}"
        )
    elif out.json:
        out.data({**result, "text": found.text})
    else:
        click.echo(found.text, nl=False)
    for remark in found.remarks:
        out.say(f"note: {remark}")
    if found.tables:
        kept = f"kept in {beside}" if beside is not None else "kept with -o"
        out.say(f"constants of the module that the text can't say, {kept}: {', '.join(sorted(found.tables))}")
    return 0


def _lacks_content(module: Any) -> bool:
    """Has a module made without weights tensors beside its parameters whose numbers it needs, such as a table that it fills in later?"""
    own = (t for part in module.modules() for t in (*part.buffers(recurse=False), *vars(part).values()))
    return any(getattr(t, "is_meta", False) is True for t in own)
