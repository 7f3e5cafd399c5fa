"""`hapdsl cost FILE`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hapdsl.commands.options import About, files
from hapdsl.commands.output import Output, json_option
from hapdsl.commands.units import indented, memory_table, table
from hapdsl.lang.amounts import in_bytes, in_seconds

if TYPE_CHECKING:
    from hapdsl.cluster import Cluster
    from hapdsl.cost.evaluate import Cost

SHOWN = 24  # stages of a program in words; --json has all


@click.command("cost")
@click.argument("file", metavar="FILE", shell_complete=files)
@click.option(
    "--on", metavar="CLUSTER", shell_complete=files, help="Another cluster: a NAME in FILE, a file, or FILE:NAME."
)
@click.option("--program", "name", metavar="NAME", help="Only this one of FILE's programs.")
@click.option("--sweep", "range_", metavar="NAME=LOW..HIGH", help="Change one quantity of the cluster, and show where the best plan changes: network=1..100Gbit/s.")  # fmt: skip
@click.option(
    "--points",
    cls=About,
    about="--sweep",
    type=click.IntRange(2, 1000),
    metavar="N",
    default=9,
    show_default=True,
    help="How many values a sweep looks at.",
)
@click.option("--model", cls=About, about=("--sweep", "planning"), metavar="NAME", help="The model that a sweep plans, where FILE has several.")  # fmt: skip
@click.option("--set", "settings", cls=About, about=("--sweep", "planning"), multiple=True, metavar="K=V", help="Set a parameter of that model; may be repeated.")  # fmt: skip
@click.option(
    "--objective",
    cls=About,
    about="--sweep",
    type=click.Choice(["sync", "overlap"]),
    default="sync",
    show_default=True,
    help="What a sweep compares.",
)
@json_option
@click.pass_obj
def command(
    out: Output,
    file: str,
    on: str | None,
    name: str | None,
    range_: str | None,
    points: int,
    model: str | None,
    settings: tuple[str, ...],
    objective: str,
) -> int:
    """Price the complete programs of FILE: two totals, stages, memory. Exit status 1 if one doesn't fit into memory.

    A sweep prices them at each value of a quantity of the cluster, and plans FILE's model anew wherever the best plan changes
    (unless --program says which one is meant).
    """
    from hapdsl.cost.basis import basis
    from hapdsl.workbench import Workbench

    bench = Workbench(file)
    if range_ is not None:
        from hapdsl.commands.sweep import swept

        return swept(out, bench, range_, points, on, name, model, settings, objective)
    programs = [bench.program(name)] if name is not None else bench.programs()
    if name is None and len(programs) > 1:
        programs = [p for p in programs if not bench.checked(p, on).sketch]
    if not programs:
        programs = [bench.program()]  # says what is missing
    objects: list[dict[str, Any]] = []
    words: list[str] = []
    fits = True
    for program in programs:
        checked, cluster, cost = bench.cost(program, on)
        fits = fits and cost.fits
        found = {"program": program.name, "model": program.model, "cluster": cluster.name, "guessed": cluster.guessed}
        rests_on = basis(checked.program, cluster, cost)
        objects.append({**found, "prices": rests_on.as_json(), **cost.as_json()})
        words.append(_words(f"{program.name} for {program.model} on {cluster.name}", cluster, cost, rests_on.words))
    # One program is the object itself; several stand in a list, with the first one's keys beside it.
    result = objects[0] if len(objects) == 1 else {**objects[0], "programs": objects}
    out.data(result, "\n\n".join(words))
    return 0 if fits else 1


def _words(title: str, cluster: Cluster, cost: Cost, rests_on: str) -> str:
    parts = [
        f"{title}: synchronous {in_seconds(cost.sync_s)}, overlapped {in_seconds(cost.overlap_s)} a step",
        f"  {rests_on}",
    ]
    if not cost.fits:
        parts.append("  does not fit into memory")
    rows = []
    for k, stage in enumerate(cost.stages[:SHOWN]):
        what = "compute" if stage.collective is None else stage.collective
        method = f" {stage.method}" if stage.method not in (None, "ring", "pairwise") else ""
        tensors = ", ".join(stage.tensors[:2]) + (
            f" and {len(stage.tensors) - 2} more" if len(stage.tensors) > 2 else ""
        )
        moved = in_bytes(stage.bytes) if stage.collective else ""
        comm = in_seconds(stage.comm_s) if stage.collective else ""
        fastest, slowest = float(stage.compute_s.min()), float(stage.compute_s.max())
        rows.append((str(k), what + method, tensors, moved, comm, in_seconds(fastest), in_seconds(slowest)))
    head = ("stage", "collective", "tensors", "size", "takes", "compute from", "to")
    parts += ["", indented(table(head, rows, right=(0, 3, 4, 5, 6)))]
    if len(cost.stages) > SHOWN:
        rest = sum(s.seconds for s in cost.stages[SHOWN:])
        parts.append(
            f"  and {len(cost.stages) - SHOWN} more stages of {in_seconds(rest)} together (--json has them all)"
        )
    parts += ["", indented(memory_table(cluster, cost.memory_bytes))]
    return "\n".join(parts)
