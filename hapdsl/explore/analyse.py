"""What there is to say about a text: diagnostics, and of each program whether it is proven and what it costs, line by line."""

from __future__ import annotations

from typing import Any

import numpy as np

from hapdsl.explore.desk import Desk
from hapdsl.explore.moving import moved
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


def analyse(
    text: str,
    path: str,
    cluster: str | None = None,
    desk: Desk | None = None,
    version: int = 0,
    since: int | None = None,
    document: str | None = None,
) -> Object:
    """`findings` and `programs` of a text that stands at `path`; `cluster` prices the programs that name none.

    Whoever has the answer to the version `since` is told of `lines` only those that cost something else than they did, where they stand now, and
    which are `gone`; of a version that the desk has forgotten, all. `document` tells texts at the same path apart.
    """
    desk = desk or Desk()
    name = document or path
    request = {"path": path, "document": name, "text": text, "cluster": cluster, "version": version}
    reading = desk.reading(request)
    costs = {p.tree.name: _lines(p) for p in reading.programs if p.cost is not None}
    before = desk.told.get((name, since)) if since is not None else None
    old = desk.texts.get((name, since)) if since is not None else None
    programs = []
    for live in reading.programs:
        found, program = _program(live), live.tree.name
        if program in costs and before is not None and old is not None and program in before:
            carried = moved(old, text).carried(before[program])
            found["lines"] = {n: c for n, c in costs[program].items() if carried.get(n) != c}
            found["gone"] = [n for n in carried if n not in costs[program]]
        elif program in costs:
            found["lines"] = costs[program]
        programs.append(found)
    desk.tell((name, version), costs)
    return {"findings": [finding(d, path) for d in reading.diagnostics], "programs": programs}


def _lines(live: LiveProgram) -> dict[int, tuple[object, ...]]:
    """Of each line what `state.LineCost` holds."""
    return {n: (c.seconds, c.devices.tolist(), c.count, c.bytes, c.words) for n, c in live.lines.items()}


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
    return {
        **found,
        "sync_s": cost.sync_s,
        "overlap_s": cost.overlap_s,
        "memory_bytes": [int(b) for b in cost.memory_bytes],
        "capacity_bytes": [float(b) if np.isfinite(b) else 1e30 for b in cost.capacity_bytes],
        "fits": bool(cost.fits),
        "devices": [d.name for d in cluster.devices],
        "guessed": cluster.guessed,
        "cluster": cluster.name,
    }
