"""What there is to say about a text: diagnostics, and of each program whether it is proven and what it costs, line by line."""

from __future__ import annotations

from typing import Any

import numpy as np

from hapdsl.explore.desk import Desk
from hapdsl.lang.diagnostics import Diagnostic, HapError
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text
from hapdsl.live import LiveProgram

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


def analyse(text: str, path: str, cluster: str | None = None, desk: Desk | None = None, version: int = 0) -> Object:
    """`findings` and `programs` of a text that stands at `path`; `cluster` prices the programs that name none."""
    desk = desk or Desk()
    reading = desk.reading({"path": path, "text": text, "cluster": cluster, "version": version})
    return {
        "findings": [finding(d, path) for d in reading.diagnostics],
        "programs": [_program(p) for p in reading.programs],
    }


def finding(d: Diagnostic, path: str) -> Object:
    """A diagnostic as an object; `here` says whether it is about the text at `path` itself."""
    span = {"end_line": d.span.end_line, "end_column": d.span.end_column, "here": d.span.file in ("", path)}
    return {**d.as_json(), **span}


def _program(live: LiveProgram) -> Object:
    tree, cost, cluster = live.tree, live.cost, live.cluster
    found: Object = {
        "name": tree.name, "model": tree.model, "cluster": tree.cluster, "line": tree.span.line, "end_line": tree.span.end_line,
        "state": live.state, "note": live.note,
    }  # fmt: skip
    if live.checked is not None:
        found["instructions"] = len(live.checked.program.instructions)
    if cost is None or cluster is None:
        return found
    lines = {
        str(line): {
            "seconds": c.seconds,
            "devices": [float(s) for s in c.devices],
            "count": c.count,
            "bytes": c.bytes,
            "words": c.words,
        }
        for line, c in live.lines.items()
    }
    return {
        **found,
        "sync_s": cost.sync_s,
        "overlap_s": cost.overlap_s,
        "memory_bytes": [int(b) for b in cost.memory_bytes],
        "capacity_bytes": [float(b) if np.isfinite(b) else 1e30 for b in cost.capacity_bytes],
        "fits": bool(cost.fits),
        "lines": lines,
        "devices": [d.name for d in cluster.devices],
        "guessed": cluster.guessed,
        "cluster": cluster.name,
    }
