"""The overlapped timeline as a Chrome trace (chrome://tracing, Perfetto): a process per device, a thread per stream."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hapdsl.cost.evaluate import Cost
from hapdsl.graph.program import Instruction, Program

COMPUTE, COMMUNICATION = 0, 1
_STREAMS = {COMPUTE: "compute", COMMUNICATION: "communication"}


def trace_events(program: Program, cost: Cost, devices: Sequence[str] | None = None) -> dict[str, Any]:
    """The trace's object. Times are microseconds, as the format wants them; what takes no time is left out.

    `devices` are their names in order. Format: "Trace Event Format", JSON object form, complete events ("X").
    """
    names = devices or [f"device {d}" for d in range(program.layout.devices)]
    events: list[dict[str, Any]] = []
    for d, name in enumerate(names):
        events.append({"ph": "M", "name": "process_name", "pid": d, "tid": 0, "args": {"name": name}})
        events.append({"ph": "M", "name": "process_sort_index", "pid": d, "tid": 0, "args": {"sort_index": d}})
        events += [
            {"ph": "M", "name": "thread_name", "pid": d, "tid": tid, "args": {"name": stream}} for tid, stream in _STREAMS.items()
        ]
    for k, instruction in enumerate(program.instructions):
        words = _words(program, instruction, k)
        for d in range(len(names)):
            start, end = float(cost.starts_s[k, d]), float(cost.ends_s[k, d])
            if end > start:
                events.append({"ph": "X", "ts": start * 1e6, "dur": (end - start) * 1e6, "pid": d, **words})
    totals = {"program": program.name, "sync_s": cost.sync_s, "overlap_s": cost.overlap_s}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": totals}


def trace_text(program: Program, cost: Cost, devices: Sequence[str] | None = None) -> str:
    """The trace as JSON text."""
    return json.dumps(trace_events(program, cost, devices), allow_nan=False)


def _words(program: Program, instruction: Instruction, k: int) -> dict[str, Any]:
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
