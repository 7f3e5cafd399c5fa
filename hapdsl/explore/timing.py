"""When each device computes and communicates, and what it holds: predicted, and as a trace says it was measured."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hapdsl.draw.timeline import timeline as times
from hapdsl.explore.desk import Desk, Opened
from hapdsl.lang.diagnostics import error

Object = dict[str, Any]
LARGEST = 512 * 2**20  # bytes of a trace that is read


def timeline(desk: Desk, request: Object) -> Object:
    """Rows of devices that do the same: bars (start, end, instruction) of both streams, and steps (time, bytes) of memory.

    `kind` is "overlap" or "sync", `trace` a file whose measured step is laid beside. Raises HapError for what isn't proven, HAP821 for
    another file than a trace of this program.
    """
    opened = desk.opened(request)
    kind = str(request.get("kind", "overlap"))
    found: Object = dict(desk.remember(("timeline", kind, opened.key), lambda: _predicted(opened, kind)))
    if request.get("trace"):
        found["measured"] = measured(opened, Path(request["trace"]))
    return found


def _predicted(opened: Opened, kind: str) -> Object:
    program, cost = opened.program, opened.cost
    starts, ends = times(program, cost, kind)
    groups: dict[bytes, list[int]] = {}
    for d in range(program.layout.devices):
        key = np.concatenate(
            [starts[:, d], ends[:, d], cost.memory.live[:, d].astype(float), cost.capacity_bytes[d : d + 1]]
        )
        groups.setdefault(key.tobytes(), []).append(d)
    rows = []
    for members in groups.values():
        d = members[0]
        bars: tuple[list[list[float]], list[list[float]]] = ([], [])
        for k in np.flatnonzero(ends[:, d] > starts[:, d]):
            bars[int(program.instructions[k].is_collective)].append([float(starts[k, d]), float(ends[k, d]), int(k)])
        rows.append({
            "devices": [opened.cluster.devices[m].name for m in members], "compute": bars[0], "communication": bars[1],
            "memory": _memory(opened, starts, d), "capacity": float(min(cost.capacity_bytes[d], 1e30)), "peak": int(cost.memory_bytes[d]),
        })  # fmt: skip
    return {
        "kind": kind,
        "total": float(ends.max(initial=0.0)),
        "rows": rows,
        "instructions": [[i.span.line, i.op, "collective" if i.is_collective else i.section, str(i.outputs[0]) if i.outputs else ""] for i in program.instructions],
        "predicted": [float(s.max(initial=0.0)) for s in cost.per_instruction_s],
    }  # fmt: skip


def _memory(opened: Opened, starts: Any, d: int) -> list[list[float]]:
    """What a device holds, whenever it is another amount."""
    found: list[list[float]] = []
    now = 0.0
    for k, live in enumerate(opened.cost.memory.live[:, d]):
        now = max(now, float(starts[k, d]))
        if not found or found[-1][1] != int(live):
            found.append([now, int(live)])
    return found


@dataclass(frozen=True)
class _Ran:
    """What a trace says of one instruction: the process that did it, in which step, and when (in seconds, from wherever the trace begins)."""

    instruction: int
    op: str  # nothing where it only waited
    pid: int
    step: int
    waited: bool
    start: float
    seconds: float


def measured(opened: Opened, path: Path) -> Object:
    """The last step of a trace, as rows per device, and by line what its instructions took on their slowest devices.

    Raises HapError HAP821 for a file that is no trace of this program, HAP120 for none.
    """
    events, name, said = _events(path)
    instructions = opened.program.instructions
    own = _ran(events, path)
    if (
        not own
        or (name and name != opened.program.name)
        or any(not 0 <= e.instruction < len(instructions) for e in own)
    ):
        whose = f" (it is of '{name}')" if name and name != opened.program.name else ""
        raise error(
            "HAP821",
            f"{path.name} is no trace of '{opened.program.name}'{whose}",
            help=f"hapdsl run FILE --trace {path.name} writes one",
        )
    newest = max(e.step for e in own)
    last = [e for e in own if e.step == newest]
    if any(e.op not in ("", instructions[e.instruction].op) for e in last):
        raise error(
            "HAP821",
            f"{path.name} is a trace of another text of '{opened.program.name}'",
            help="run the program as it is now",
        )
    begin = min(e.start for e in last)
    rows = []
    took: dict[int, dict[int, float]] = {}
    for pid in sorted({e.pid for e in last}):
        bars: tuple[list[list[float]], list[list[float]]] = ([], [])
        for e in (e for e in last if e.pid == pid and not e.waited):
            start = e.start - begin
            bars[int(instructions[e.instruction].is_collective)].append([start, start + e.seconds, e.instruction])
            by = took.setdefault(e.instruction, {})
            by[pid] = by.get(pid, 0.0) + e.seconds
        rows.append(
            {
                "devices": [_device(events, pid, opened)],
                "compute": sorted(bars[0]),
                "communication": sorted(bars[1]),
                "memory": [],
                "capacity": 1e30,
                "peak": 0,
            }
        )
    lines: dict[str, float] = {}
    for k, by in took.items():
        line = str(instructions[k].span.line)
        lines[line] = lines.get(line, 0.0) + max(by.values())
    return {
        "total": max(e.start + e.seconds for e in last) - begin,
        "rows": rows,
        "lines": lines,
        "was_measured": bool(said.get("measured")),
    }


def _ran(events: list[Object], path: Path) -> list[_Ran]:
    """The events that are about instructions. Raises HapError HAP821 for one without a time, or a process."""
    found = []
    for e in events:
        args = e.get("args")
        if e.get("ph") != "X" or not isinstance(args, dict) or not isinstance(args.get("instruction"), int):
            continue
        name = str(e.get("name", ""))
        try:
            start, seconds = float(e["ts"]) * 1e-6, float(e.get("dur", 0.0)) * 1e-6
            pid, step = int(e["pid"]), int(args.get("step", 0))
        except (KeyError, TypeError, ValueError, OverflowError):
            start = seconds = math.nan
            pid = step = 0
        if not (math.isfinite(start) and math.isfinite(seconds)):
            raise error("HAP821", f"{path.name} is no trace: '{name}' lacks a number (ts, dur, pid or step)")
        op = "" if name.startswith("wait for") else name.split(" ")[0]
        found.append(_Ran(args["instruction"], op, pid, step, e.get("cat") == "wait", start, seconds))
    return found


def _device(events: list[Object], pid: int, opened: Opened) -> str:
    """What the trace calls a process, else the device of its number."""
    for e in events:
        if e.get("ph") == "M" and e.get("name") == "process_name" and e.get("pid") == pid:
            args = e.get("args")
            if isinstance(args, dict) and args.get("name"):
                return str(args["name"])
    return opened.cluster.devices[pid].name if 0 <= pid < len(opened.cluster) else f"process {pid}"


def _events(path: Path) -> tuple[list[Object], str, Object]:
    """(events, program, what else is said) of a trace in either form of the format."""
    try:
        if path.stat().st_size > LARGEST:
            raise error("HAP821", f"{path.name} is larger than {LARGEST // 2**20} MiB")
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise error("HAP120", f"{path} can't be read: {problem.strerror or problem}") from None
    except ValueError:
        raise error(
            "HAP821", f"{path.name} holds no JSON", help="hapdsl run FILE --trace OUT.json writes a trace"
        ) from None
    events = found.get("traceEvents") if isinstance(found, dict) else found
    if not isinstance(events, list) or not all(isinstance(e, dict) for e in events):
        raise error("HAP821", f"{path.name} is no trace", help="hapdsl run FILE --trace OUT.json writes one")
    other = found.get("otherData") if isinstance(found, dict) else None
    other = other if isinstance(other, dict) else {}
    return events, str(other.get("program", "")), other
