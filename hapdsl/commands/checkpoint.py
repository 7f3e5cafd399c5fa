"""`hapdsl checkpoint show|export|import`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hapdsl.commands.options import About, files, folders, nothing_about, to_file, to_folder
from hapdsl.commands.output import Output, json_option
from hapdsl.commands.settings import read_settings
from hapdsl.commands.units import table
from hapdsl.lang.amounts import in_bytes

if TYPE_CHECKING:
    from hapdsl.graph.training import TrainingGraph
    from hapdsl.workbench import Workbench


@click.group("checkpoint")
def command() -> None:
    """Look at checkpoints, and turn them into state_dicts and back.

    Checkpoints are written by `hapdsl run --checkpoint DIR`. Files of state_dicts are safetensors; nothing is unpickled.
    """


@command.command("show")
@click.argument("folder", metavar="DIR", shell_complete=folders)
@click.option("--verify", is_flag=True, help="Read all files and compare them with their checksums.")
@json_option
@click.pass_obj
def show(out: Output, folder: str, verify: bool) -> int:
    """Say what the checkpoints in DIR hold, the newest last. Exit status 1 where one is damaged."""
    from hapdsl.lang.diagnostics import Diagnostic, HapError
    from hapdsl.run.checkpoint import find, folder_of, read, steps

    base = Path(folder)
    there = steps(base)
    folders = [folder_of(base, step) for step in there] or [find(base).folder]
    rows, found, wrong = [], [], list[Diagnostic]()
    for each in folders:
        try:
            checkpoint = read(each)
            if verify:
                checkpoint.verify()
        except HapError as stop:
            wrong += stop.diagnostics
            continue
        m = checkpoint.manifest
        size = sum(file.bytes for file in m.files)
        found.append(
            {
                "folder": str(each), "step": m.step, "model": m.model, "program": m.program, "devices": m.devices, "tensors": len(m.tensors),
                "bytes": size, "seed": m.seed, "data": m.data, "hapdsl": m.hapdsl,
            }
        )  # fmt: skip
        rows.append(
            [
                each.name,
                m.model,
                m.program or "imported",
                f"{m.devices}",
                f"{len(m.tensors)}",
                in_bytes(size),
                m.data,
                f"{m.seed}",
            ]
        )
    heads = ["checkpoint", "model", "program", "devices", "tensors", "size", "data", "seed"]
    words = table(heads, rows, right=(3, 4, 5, 7))
    out.diagnose(wrong)
    out.data(
        {"ok": not wrong, "checkpoints": found, "diagnostics": [d.as_json() for d in wrong], "verified": verify},
        words if rows else "",
    )
    return 1 if wrong else 0


@command.command("export")
@click.argument("folder", metavar="DIR", shell_complete=folders)
@click.option(
    "-o",
    "--output",
    required=True,
    callback=to_file,
    metavar="FILE",
    shell_complete=files,
    help="The file to write: model.safetensors.",
)
@click.option("--state", is_flag=True, help="The optimizer's state too.")
@click.option(
    "--like",
    metavar="FILE",
    shell_complete=files,
    help="Take shapes and dtypes from this file, one of the module's own.",
)
@json_option
@click.pass_obj
def export(out: Output, folder: str, output: str, state: bool, like: str | None) -> int:
    """Write the newest checkpoint in DIR (or DIR itself) as one state_dict, with the module's names.

    Shapes are those of the model's text, which may split a dim (heads); --like makes them the module's again.
    """
    from hapdsl.run.checkpoint import find
    from hapdsl.run.checkpoint_state import export as write

    checkpoint = find(folder)
    made = write(checkpoint, Path(output), state, None if like is None else Path(like))
    result = {"checkpoint": str(checkpoint.folder), "step": checkpoint.manifest.step, "output": output, "tensors": made.tensors, "bytes": made.bytes, "missing": made.missing}  # fmt: skip
    words = f"{output}: {len(made.tensors)} tensors, {in_bytes(made.bytes)}, of {checkpoint.folder}"
    if made.missing:
        words += f"\n  not in the checkpoint: {', '.join(made.missing)}"
    out.data(result, words)
    return 0


@command.command("import")
@click.argument("weights", metavar="WEIGHTS", shell_complete=files)
@click.argument("file", metavar="FILE", shell_complete=files)
@click.option(
    "-o",
    "--output",
    required=True,
    callback=to_folder,
    metavar="DIR",
    shell_complete=folders,
    help="The folder to write the checkpoint to, as step 0.",
)
@click.option("--program", "name", metavar="NAME", help="The program whose model it is for, where FILE has several.")
@click.option("--model", cls=About, about="a model", metavar="NAME", help="The model, where FILE has no program.")
@click.option("--set", "settings", cls=About, about="a model", multiple=True, metavar="K=V", help="With --model: set a parameter of it; may be repeated.")  # fmt: skip
@click.option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    default=0,
    show_default=True,
    help="Of the run that will go on from it.",
)
@click.option(
    "--data", default="random", show_default=True, metavar="SOURCE", help="Of the run that will go on from it."
)
@json_option
@click.pass_obj
def import_(out: Output, weights: str, file: str, output: str, name: str | None, model: str | None, settings: tuple[str, ...], seed: int, data: str) -> int:  # fmt: skip
    """Make a checkpoint from WEIGHTS, a state_dict in safetensors, for the model of FILE: `hapdsl run FILE --resume DIR` begins with them.

    The optimizer's state is as at the beginning of a run.
    """
    from hapdsl.workbench import Workbench

    bench = Workbench(file)
    graph = _graph(bench, name, model, settings)
    from hapdsl.run.checkpoint_state import from_file, write_whole
    from hapdsl.run.checkpoint_write import Saving
    from hapdsl.run.course import Course, reserved

    values = from_file(Path(weights), graph, Path(file), seed)
    base = Path(output)
    with reserved(Course(None, Saving(base, 1))):
        made = write_whole(base, graph, values, 0, seed, data)
    size = sum(part.bytes for part in made.manifest.files)
    result = {"checkpoint": str(made.folder), "model": graph.model, "tensors": len(values), "bytes": size}
    out.data(
        result,
        f"{made.folder}: {len(values)} tensors of {graph.model}, {in_bytes(size)}\n  hapdsl run {file} --resume {output}",
    )
    return 0


def _graph(bench: Workbench, name: str | None, model: str | None, settings: tuple[str, ...]) -> TrainingGraph:
    """The training graph of a program, or of a model."""
    if name is not None or (bench.programs() and model is None and not settings):
        tree = bench.program(name)
        nothing_about(
            "a model", f"program '{tree.name}' has its model and parameters from its header; leave --program out"
        )
        return bench.graph_of(tree)
    node = bench.model(model)
    return bench.graph(node.name, read_settings(node, settings))
