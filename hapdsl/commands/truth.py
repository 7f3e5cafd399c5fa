"""`hapdsl run --trace FILE --calibrate OUT`: what a run has measured beside what was predicted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hapdsl.commands.options import files
from hapdsl.commands.units import indented, table
from hapdsl.lang.amounts import in_seconds
from hapdsl.lang.diagnostics import error
from hapdsl.lang.files import check_writable, write_file

if TYPE_CHECKING:
    from hapdsl.graph.program import Program
    from hapdsl.lang import nodes
    from hapdsl.run.tracing import Traces
    from hapdsl.workbench import Workbench

_Function = TypeVar("_Function", bound=Callable[..., Any])
SHOWN = 16  # kinds of instructions in words; --json has all


def truth_options(function: _Function) -> _Function:
    """`--trace` and `--calibrate`."""
    for option in (
        click.option(
            "--calibrate",
            metavar="OUT",
            shell_complete=files,
            help="Write the program's cluster here, corrected by what the last steps took.",
        ),
        click.option(
            "--trace",
            metavar="OUT",
            shell_complete=files,
            help="Write when each instruction of the last steps ran on each rank: .json for chrome://tracing or Perfetto.",
        ),
    ):
        function = option(function)
    return function


def prepare(bench: Workbench, tree: nodes.Program, trace: str | None, calibrate: str | None) -> bool:
    """Is this run to be traced? Raises HapError HAP852 for files that can't be written, HAP745 where there is no cluster to correct."""
    for path in (trace, calibrate):
        if path is not None:
            check_writable(path, [source.path for source in bench.bundle.sources])
    if calibrate is not None and tree.cluster is None:
        raise error(
            "HAP745",
            f"program '{tree.name}' names no cluster to correct",
            tree.span,
            "write `on CLUSTER` into its header",
        )
    return trace is not None or calibrate is not None


def told(
    bench: Workbench, tree: nodes.Program, program: Program, traces: Traces, trace: str | None, calibrate: str | None
) -> tuple[dict[str, Any], str]:
    """Write what was asked for; returns keys for --json and words."""
    from hapdsl.run.observed import rows, seconds, trace_text

    cluster = bench.cluster_of(tree)
    cost = bench.cost(tree)[2] if cluster is not None else None
    measured = seconds(program, traces)
    found = rows(program, cost, measured)
    listed = [
        {"kind": r.kind, "count": r.count, "predicted_s": r.predicted_s, "measured_s": r.measured_s} for r in found
    ]
    result: dict[str, Any] = {"instructions": listed}
    cells = [
        (
            r.kind,
            str(r.count),
            in_seconds(r.predicted_s),
            in_seconds(r.measured_s),
            f"{r.measured_s / r.predicted_s:.2f} x" if r.predicted_s else "",
        )
        for r in found[:SHOWN]
    ]
    words = ["", indented(table(("instructions", "count", "predicted", "measured", ""), cells, right=(1, 2, 3, 4)))]
    if len(found) > SHOWN:
        words.append(
            f"  and {len(found) - SHOWN} more kinds of {in_seconds(sum(r.measured_s for r in found[SHOWN:]))} together (--json has them all)"
        )
    if trace is not None:
        write_file(
            Path(trace), trace_text(program, traces, [d.name for d in cluster.devices] if cluster is not None else None)
        )
        result["trace"] = trace
        words.append(f"  trace written to {trace}")
    if calibrate is not None:
        changes = _calibrated(bench, tree, program, traces, measured, calibrate)
        result["calibrated"] = {"file": calibrate, "factors": {c.what: c.factor for c in changes}}
        words.append(f"  corrected cluster written to {calibrate}: {len(changes)} tables")
    return result, "\n".join(words)


def _calibrated(
    bench: Workbench, tree: nodes.Program, program: Program, traces: Traces, measured: Any, path: str
) -> list[Any]:
    from dataclasses import replace

    from hapdsl.cluster import build
    from hapdsl.cluster.calibrate import calibrate
    from hapdsl.lang.nodes import File
    from hapdsl.lang.print import to_text
    from hapdsl.run.observed import calls, hidden, messages

    assert tree.cluster is not None
    block, cluster = bench.cluster_block(tree.cluster), bench.cluster(tree.cluster)
    cost = bench.cost(tree)[2]
    sent = messages(program, cluster, cost, measured, hidden(program, traces))
    made, changes = calibrate(block, cluster, calls(program, cluster, cost, measured), sent)
    made = replace(made, leading=(*made.leading, f"corrected by a run of {program.name}: {len(changes)} tables"))
    build(made)
    write_file(Path(path), to_text(File((made,))))
    return changes
