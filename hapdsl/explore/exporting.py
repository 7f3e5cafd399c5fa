"""A program written elsewhere: as a file of its own, a drawing, a trace, a chart, a script that trains it; or unrolled in its text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hapdsl.check.write import write
from hapdsl.draw.dot import turn_of
from hapdsl.draw.program import draw_program
from hapdsl.explore.desk import Desk, Opened
from hapdsl.explore.splicing import replaced
from hapdsl.graph.program import Program
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import Report
from hapdsl.lang.files import keep_tables, write_file
from hapdsl.standalone import sources, standalone

Object = dict[str, Any]

SCRIPT = '''"""Trains {program}, a plan of hapdsl for {model} on {cluster}: {devices} devices.

    torchrun --nproc-per-node {devices} {file}      one process per device
    python {file}                       all devices in turn in this process, to try it out

Another source of batches is the first argument: FILE.npz, digits, MODULE:FACTORY. Or write your own `batches`.
"""

import sys
import tempfile
from pathlib import Path

import hapdsl
from hapdsl.lang.files import keep_tables
from hapdsl.run.data import open_feed

STEPS = 100
PLAN = r"""
{text}"""


def batches(plan, source):
    """Global batches, one a step: tensors by the names of the model's inputs ({inputs})."""
    feed = open_feed(source, plan.program.graph)
    for number in range(1, STEPS + 1):
        yield feed.batch(number)


def main(source="random"):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plan.hap")
        path.write_text(PLAN, encoding="utf-8")
        keep_tables([Path(sys.argv[0])], path)  # numbers that the text can't say, if there are any
        plan = hapdsl.load(path)
        step = plan.compile()
    for number, batch in enumerate(batches(plan, source), 1):
        loss = step(batch)
        if number in (1, STEPS) or number % 10 == 0:
            print(f"step {{number}}: {{float(loss):.5g}}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:2])
'''


def text_of(opened: Opened) -> str:
    """The program with all that it needs, as the text of one file."""
    block = opened.bench.cluster_block(opened.tree.cluster)
    return standalone(opened.bench, opened.tree, block)


def made_from(opened: Opened, request: Object) -> list[Path]:
    """The files beside which numbers lie that the text can't say (`init table`): those of the model; of a plan that was found, and has no file yet, the
    request's `sources`."""
    return [*sources(opened.bench, opened.bench.model(opened.tree.model)), *map(Path, request.get("sources", ()))]


def export(desk: Desk, request: Object) -> Object:
    """Write a program to `to`: its suffix says as what. `kind` "chart" makes an .svg a Gantt chart. Says `files` and warnings.

    Raises HapError: what isn't proven, HAP811 another suffix, HAP852 a file that can't be written.
    """
    opened = desk.opened(request)
    target = Path(request["to"])
    report = Report()
    if target.suffix in (".py", ".hap"):
        write_file(target, script(opened, target.name) if target.suffix == ".py" else text_of(opened))
        beside = keep_tables(made_from(opened, request), target)
        files = [target] if beside is None else [target, beside]
    else:
        names = [d.name for d in opened.cluster.devices]
        time = "overlap" if request.get("kind") == "chart" else None
        files = draw_program(opened.program, opened.cost, target, devices=names, report=report, time=time)
    return {"files": [str(f) for f in files], "warnings": [d.message for d in report]}


def script(opened: Opened, file: str) -> str:
    """A Python script that trains the program. The text is a raw string: three quotes in a row can't stand in a program."""
    p = opened.program
    text = text_of(opened).replace('"""', '"" "')
    inputs = ", ".join(t.name for t in p.graph.undivided.of_kind("input")) or "none"
    return SCRIPT.format(
        program=p.name,
        model=p.graph.model,
        cluster=opened.cluster.name,
        devices=p.layout.devices,
        file=file,
        text=text,
        inputs=inputs,
    )


def alone(desk: Desk, request: Object) -> Object:
    """The text of one file that holds the program, for a run, and what it is made from."""
    opened = desk.opened(request)
    made = [str(path) for path in made_from(opened, request)]
    return {"alone": text_of(opened), "devices": opened.program.layout.devices, "sources": made}


def in_turns(program: Program) -> Program:
    """A program whose lines know which turn of a repeat they belong to, though they were written one by one."""
    told = [
        i if i.repeat else replace(i, repeat=turn_of(i, i.outputs, program.graph)[-1:]) for i in program.instructions
    ]
    return replace(program, instructions=told)


def _rolled(body: Iterable[Any]) -> bool:
    """Is there a repeat among statements, or in what they hold?"""
    return any(isinstance(s, nodes.Turns) or _rolled(getattr(s, "body", ())) for s in body)


def unroll(desk: Desk, request: Object) -> Object:
    """The text with the program's repeats written out turn by turn, or rolled where they are written out."""
    opened = desk.opened(request)
    rolled = _rolled(opened.tree.body)
    if not rolled and not opened.program.graph.repeats:
        return {"failed": "the model has no repeat, so there is nothing to roll or unroll"}
    program = opened.program if rolled else in_turns(opened.program)
    fresh = write(program, unroll=rolled)
    fresh = nodes.Program(fresh.name, fresh.model, fresh.args, opened.tree.cluster, fresh.body)
    return {
        "text": replaced(desk.text(request), opened.tree, fresh),
        "said": "written out turn by turn" if rolled else "rolled",
    }
