"""What there is to say about a text: diagnostics, and of each program whether it is proven and what it costs, line by line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hapdsl.cost.evaluate import Cost, evaluate
from hapdsl.graph.program import Program
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import Diagnostic, HapError
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text
from hapdsl.workbench import Workbench

Object = dict[str, Any]


def formatted(text: str, path: str) -> Object:
    """`text` as the formatter prints it, or `findings` where it doesn't parse."""
    try:
        tree = parse(text, path)
    except HapError as stop:
        return {"findings": [finding(d, path) for d in stop.diagnostics]}
    printed = to_text(tree)
    if parse(printed, path) != tree:  # never write what says something else
        raise AssertionError("the printer changed the meaning of this text")
    return {"text": printed}


def analyse(text: str, path: str, cluster: str | None = None) -> Object:
    """`findings` and `programs` of a text that stands at `path`; `cluster` prices the programs that name none."""
    findings: list[Diagnostic] = []
    programs: list[Object] = []
    try:
        bench = Workbench(path, text)
        ops = bench.ops
    except HapError as stop:
        findings += stop.diagnostics
    else:
        assert ops is not None
        _blocks(bench, findings)
        for program in bench.programs():
            programs.append(_program(bench, program, cluster, findings))
        findings += bench.notes
    return {"findings": [finding(d, path) for d in dict.fromkeys(findings)], "programs": programs}


def finding(d: Diagnostic, path: str) -> Object:
    """A diagnostic as an object; `here` says whether it is about the text at `path` itself."""
    span = {"end_line": d.span.end_line, "end_column": d.span.end_column, "here": d.span.file in ("", path)}
    return {**d.as_json(), **span}


def _blocks(bench: Workbench, findings: list[Diagnostic]) -> None:
    """Models and clusters of the file itself."""
    for model in bench.bundle.of_main(nodes.Model):
        assert isinstance(model, nodes.Model)
        if all(p.default is not None for p in model.parameters):
            try:
                bench.graph(model.name)
            except HapError as stop:
                findings += stop.diagnostics
    for cluster in bench.bundle.of_main(nodes.Cluster):
        assert isinstance(cluster, nodes.Cluster)
        try:
            bench.cluster(cluster.name)
        except HapError as stop:
            findings += stop.diagnostics


def _program(bench: Workbench, program: nodes.Program, on: str | None, findings: list[Diagnostic]) -> Object:
    span = program.span
    found: Object = {
        "name": program.name, "model": program.model, "cluster": program.cluster, "line": span.line, "end_line": span.end_line,
    }  # fmt: skip
    try:
        checked = bench.checked(program)
    except HapError as stop:
        findings += stop.diagnostics
        return {**found, "state": "wrong"}
    findings += checked.diagnostics
    found["instructions"] = len(checked.program.instructions)
    if not checked.ok:
        return {**found, "state": "wrong"}
    if checked.sketch:
        return {**found, "state": "sketch", "note": "a sketch leaves lines open, so it has no cost"}
    found["state"] = "proven"
    try:
        cluster = bench.cluster_of(program) or bench.cluster(on)
        cost = evaluate(checked.program, cluster)
    except HapError as stop:
        return {**found, "note": "; ".join(d.message for d in stop.diagnostics)}
    return {**found, **priced(checked.program, cost), "devices": [d.name for d in cluster.devices], "guessed": cluster.guessed, "cluster": cluster.name}


def priced(program: Program, cost: Cost) -> Object:
    """Totals, memory, and the cost of each line that an instruction comes from."""
    lines: dict[int, Object] = {}
    for instruction, seconds in zip(program.instructions, cost.per_instruction_s, strict=True):
        line = instruction.span.line
        entry = lines.setdefault(line, {"seconds": 0.0, "devices": np.zeros(len(seconds)), "count": 0, "bytes": 0, "words": instruction.op})
        entry["seconds"] += float(seconds.max(initial=0.0))
        entry["devices"] = entry["devices"] + seconds
        entry["count"] += 1
        if instruction.is_collective:
            entry["bytes"] += _moved(program, (v.tensor for v in instruction.inputs))
            entry["words"] = instruction.op if instruction.method is None else f"{instruction.op}, {instruction.method}"
    for entry in lines.values():
        entry["devices"] = [float(s) for s in entry["devices"]]
    return {
        "sync_s": cost.sync_s,
        "overlap_s": cost.overlap_s,
        "memory_bytes": [int(b) for b in cost.memory_bytes],
        "capacity_bytes": [float(b) if np.isfinite(b) else 1e30 for b in cost.capacity_bytes],
        "fits": bool(cost.fits),
        "lines": {str(line): entry for line, entry in lines.items()},
    }


def _moved(program: Program, tensors: Iterable[str]) -> int:
    return sum(program.graph.tensors[t].bytes for t in tensors)
