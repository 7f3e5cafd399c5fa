"""`hapdsl expand FILE`"""

from __future__ import annotations

from pathlib import Path

import click

from hapdsl.commands.options import files, program_output
from hapdsl.commands.output import Output, json_option
from hapdsl.lang.files import keep_tables, write_file


@click.command("expand")
@click.argument("file", metavar="FILE", shell_complete=files)
@click.option("--program", "name", metavar="NAME", help="The program, where FILE has several.")
@click.option(
    "--on", metavar="CLUSTER", shell_complete=files, help="Another cluster: a NAME in FILE, a file, or FILE:NAME."
)
@click.option("--unroll", is_flag=True, help="Write every layer's lines.")
@program_output
@json_option
@click.pass_obj
def command(out: Output, file: str, name: str | None, on: str | None, unroll: bool, output: str | None) -> int:
    """Write a program over virtual devices as one over nodes and devices: plain data parallelism within each node.

    A program that has several axes, or is for a cluster without virtual devices, is written as it is.
    """
    from hapdsl.check.write import write
    from hapdsl.standalone import sources, standalone
    from hapdsl.workbench import Workbench

    bench = Workbench(file)
    tree = bench.program(name)
    block = bench.cluster_block(on or tree.cluster)
    program = bench.proven(tree, on).program
    program.cluster = block.name
    text = standalone(bench, write(program, unroll), block, f"{tree.name} over the devices of its nodes")
    # What is handed out was proven from its text, as `hapdsl check` would.
    written = Workbench(output or "expanded.hap", text)
    written.proven(written.program())
    found = {
        "program": program.name,
        "mesh": dict(program.layout.mesh),
        "instructions": len(program.instructions),
        "output": output,
    }
    if output is not None:
        write_file(Path(output), text)
        keep_tables(sources(bench, bench.model(tree.model)), Path(output))
        out.data(found, f"written to {output}")
    elif out.json:
        out.data({**found, "text": text})
    else:
        click.echo(text, nl=False)
    return 0
