"""A timeline as a Chrome trace (chrome://tracing, Perfetto): a process per device, a thread per stream, a counter of its memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hapdsl.cost.evaluate import Cost
from hapdsl.draw.timeline import timeline
from hapdsl.graph.program import Instruction, Program

Floats = NDArray[np.float64]
COMPUTE, COMMUNICATION = 0, 1
_STREAMS = {COMPUTE: "compute", COMMUNICATION: "communication"}


def trace_events(
    program: Program, cost: Cost, devices: Sequence[str] | None = None, kind: str = "overlap"
) -> dict[str, Any]:
    """The trace's object. Times are microseconds, as the format wants them; what takes no time is left out.

    `devices` are their names in order, `kind` is "overlap" or "sync" (`hapdsl.draw.timeline`). Format: "Trace Event Format", JSON object form,
    complete events ("X"), and counters ("C") of the bytes held while an instruction runs, in program order.
    """
    starts, ends = timeline(program, cost, kind)
    names = devices or [f"device {d}" for d in range(program.layout.devices)]
    events = named(names)
    for k, instruction in enumerate(program.instructions):
        words = describe(program, instruction, k)
        for d in range(len(names)):
            start, end = float(starts[k, d]), float(ends[k, d])
            if end > start:
                events.append({"ph": "X", "ts": start * 1e6, "dur": (end - start) * 1e6, "pid": d, **words})
    for d in range(len(names)):
        events += _memory(cost, starts, d)
    totals = {"program": program.name, "sync_s": cost.sync_s, "overlap_s": cost.overlap_s}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": totals}


def named(devices: Sequence[str]) -> list[dict[str, Any]]:
    """The events that name devices and their streams."""
    events: list[dict[str, Any]] = []
    for d, name in enumerate(devices):
        events.append({"ph": "M", "name": "process_name", "pid": d, "tid": 0, "args": {"name": name}})
        events.append({"ph": "M", "name": "process_sort_index", "pid": d, "tid": 0, "args": {"sort_index": d}})
        events += [
            {"ph": "M", "name": "thread_name", "pid": d, "tid": tid, "args": {"name": stream}}
            for tid, stream in _STREAMS.items()
        ]
    return events


def trace_text(program: Program, cost: Cost, devices: Sequence[str] | None = None, kind: str = "overlap") -> str:
    """The trace as JSON text."""
    return json.dumps(trace_events(program, cost, devices, kind), allow_nan=False)


def _memory(cost: Cost, starts: Floats, d: int) -> Iterator[dict[str, Any]]:
    """What a device holds, whenever it is another amount; a stream that starts something early doesn't hold it early."""
    held, now = -1, 0.0
    for k, live in enumerate(cost.memory.live[:, d]):
        now = max(now, float(starts[k, d]))
        if int(live) != held:
            held = int(live)
            yield {"ph": "C", "name": "memory", "pid": d, "ts": now * 1e6, "args": {"bytes": held}}


def describe(program: Program, instruction: Instruction, k: int) -> dict[str, Any]:
    """What one instruction's events say on every device."""
    args: dict[str, Any] = {
        "instruction": k,
        "inputs": [str(v) for v in instruction.inputs],
        "outputs": [str(v) for v in instruction.outputs],
    }
    if instruction.is_collective:
        args["bytes"] = sum(program.graph.tensors[v.tensor].bytes for v in instruction.inputs)
        args["method"] = instruction.method
    first = str(instruction.outputs[0]) if instruction.outputs else ""
    more = f" +{len(instruction.outputs) - 1}" if len(instruction.outputs) > 1 else ""
    return {
        "name": f"{instruction.op} {first}{more}",
        "cat": "collective" if instruction.is_collective else instruction.section,
        "tid": COMMUNICATION if instruction.is_collective else COMPUTE,
        "args": args,
    }
