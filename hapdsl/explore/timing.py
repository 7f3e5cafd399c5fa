"""When each device computes and communicates, and what it holds: predicted, and as a trace says it was measured."""

from __future__ import annotations

import json
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


def measured(opened: Opened, path: Path) -> Object:
    """The last step of a trace, as rows per device, and what each instruction took on its slowest device.

    Raises HapError HAP821 for a file that is no trace of this program, HAP120 for none.
    """
    events, name, said = _events(path)
    program = opened.program
    count = len(program.instructions)
    wanted = {d.name: d.name for d in opened.cluster.devices}
    own = [e for e in events if e.get("ph") == "X" and isinstance((e.get("args") or {}).get("instruction"), int)]
    steps = [int(e["args"].get("step", 0)) for e in own]
    if not own or (name and name != program.name) or any(not 0 <= e["args"]["instruction"] < count for e in own):
        whose = f" (it is of '{name}')" if name and name != program.name else ""
        raise error(
            "HAP821",
            f"{path.name} is no trace of '{program.name}'{whose}",
            help=f"hapdsl run FILE --trace {path.name} writes one",
        )
    last = [e for e, s in zip(own, steps, strict=True) if s == max(steps)]
    operations = {_operation(e) for e in last if not str(e.get("name", "")).startswith("wait for")}
    if any(program.instructions[k].op != op for k, op in operations):
        raise error(
            "HAP821", f"{path.name} is a trace of another text of '{program.name}'", help="run the program as it is now"
        )
    begin = min(float(e["ts"]) for e in last)
    pids = sorted({int(e["pid"]) for e in last})
    rows = []
    took: dict[int, dict[int, float]] = {}
    for pid in pids:
        bars: tuple[list[list[float]], list[list[float]]] = ([], [])
        for e in (e for e in last if int(e["pid"]) == pid):
            k, start = int(e["args"]["instruction"]), (float(e["ts"]) - begin) * 1e-6
            if str(e.get("cat")) == "wait":
                continue
            seconds = float(e.get("dur", 0.0)) * 1e-6
            bars[int(program.instructions[k].is_collective)].append([start, start + seconds, k])
            took.setdefault(k, {})[pid] = took.get(k, {}).get(pid, 0.0) + seconds
        rows.append(
            {
                "devices": [_device(events, pid, wanted, opened)],
                "compute": sorted(bars[0]),
                "communication": sorted(bars[1]),
                "memory": [],
                "capacity": 1e30,
                "peak": 0,
            }
        )
    slowest = {str(k): max(by.values()) for k, by in took.items()}
    total = max((float(e["ts"]) + float(e.get("dur", 0.0)) - begin) * 1e-6 for e in last)
    lines: dict[str, float] = {}
    for number, seconds in slowest.items():
        line = str(program.instructions[int(number)].span.line)
        lines[line] = lines.get(line, 0.0) + seconds
    return {
        "total": total,
        "rows": rows,
        "took": slowest,
        "lines": lines,
        "file": path.name,
        "was_measured": bool(said.get("measured")),
    }


def _operation(event: Object) -> tuple[int, str]:
    return int(event["args"]["instruction"]), str(event.get("name", "")).split(" ")[0]


def _device(events: list[Object], pid: int, wanted: dict[str, str], opened: Opened) -> str:
    said = next(
        (
            e["args"]["name"]
            for e in events
            if e.get("ph") == "M" and e.get("name") == "process_name" and e.get("pid") == pid
        ),
        None,
    )
    return str(said or (opened.cluster.devices[pid].name if pid < len(opened.cluster) else f"process {pid}"))


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
