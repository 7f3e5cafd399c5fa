"""A plan in words: what is sharded and how, who takes how much, what limits the step. The facts; the screen adds the comparison."""

from __future__ import annotations

from typing import Any

import numpy as np

from hapdsl.cost.comparison import busy, volumes
from hapdsl.cost.parts import anywhere
from hapdsl.explore.desk import Desk, Opened
from hapdsl.graph.program import Program
from hapdsl.search.readback import cut_classes

Object = dict[str, Any]
NAMED = 5  # tensors of one kind that are named


def overview(desk: Desk, request: Object) -> Object:
    """Facts about one priced program. Raises HapError for what isn't proven."""
    opened = desk.opened(request)
    return dict(desk.remember(("overview", opened.key), lambda: _facts(opened)))


def _facts(opened: Opened) -> Object:
    program, cost, cluster = opened.program, opened.cost, opened.cluster
    compute, _ = busy(program, cost)
    in_stages = sum(s.comm_s for s in cost.stages)
    worked = np.sum([s.compute_s for s in cost.stages], axis=0) if cost.stages else np.zeros(len(cluster))
    slowest = dict.fromkeys(range(len(cluster)), 0.0)
    for stage in cost.stages:
        if stage.compute_s.size and stage.compute_s.max() > 0:
            slowest[int(stage.compute_s.argmax())] += float(stage.compute_s.max())
    return {
        "model": program.graph.model,
        "cluster": cluster.name,
        "guessed": cluster.guessed,
        "measured": [*sorted(cluster.measured), *sorted({f"{op} on {d.kind}" for d in cluster.devices for op in d.curves})],
        "devices": [d.name for d in cluster.devices],
        "kinds": [d.kind for d in cluster.devices],
        "turns": program.graph.turns,
        "instructions": len(program.instructions),
        "collectives": sum(i.is_collective for i in program.instructions),
        "sync_s": cost.sync_s,
        "overlap_s": cost.overlap_s,
        "communication_s": float(in_stages),
        "compute_s": float(cost.sync_s - in_stages),
        "compute_devices": [float(s) for s in compute],
        "waiting": [float(s) for s in (cost.sync_s - in_stages) - worked],
        "slowest": sorted(((d, s) for d, s in slowest.items() if s > 0), key=lambda f: -f[1])[:2],
        "memory": [int(b) for b in cost.memory_bytes],
        "capacity": [float(b) if np.isfinite(b) else 1e30 for b in cost.capacity_bytes],
        "holders": [[name, size] for name, size in cost.memory.holders(_fullest(opened), 3)],
        "volumes": [
            {"collective": v.collective, "method": v.method, "messages": v.messages, "bytes": v.bytes, "seconds": v.seconds} for v in volumes(program, cost)
        ],
        "shares": shares_of(program),
        "sharded": _sharded(program),
    }  # fmt: skip


def _fullest(opened: Opened) -> int:
    return int((opened.cost.memory_bytes / opened.cost.capacity_bytes).argmax())


def shares_of(program: Program) -> list[Object]:
    """Units per device of each class that some value is cut by: {class, units, axes, shares}."""
    found = []
    for cls in cut_classes(program) if len(program.layout.mesh) == 1 else program.graph.classes:
        for axes, units in program.layout.shares.get(cls, {}).items():
            found.append(
                {
                    "class": cls,
                    "units": program.graph.classes[cls].units,
                    "axes": list(axes),
                    "shares": [int(n) for n in units],
                }
            )
    return found


def _sharded(program: Program) -> list[Object]:
    """Per kind (params, state, inputs, values) and placement: how many tensors and bytes are held or made so, and some names."""
    graph = program.graph
    groups: dict[tuple[str, str, str], list[str]] = {}
    seen: set[tuple[str, str]] = set()
    for instruction in program.instructions:
        if not (instruction.is_compute or instruction.op in ("param", "state", "input")):
            continue
        for value in instruction.outputs:
            tensor = graph.tensors[value.tensor]
            kind = {
                "param": "parameters",
                "frozen": "parameters",
                "buffer": "parameters",
                "state": "optimizer state",
                "input": "inputs",
            }.get(tensor.kind)
            kind = kind or {"forward": "activations", "backward": "gradients", "update": "updates"}.get(
                instruction.section, "sums"
            )
            if kind in ("updates", "sums") or (value.tensor, str(value)) in seen:
                continue
            seen.add((value.tensor, str(value)))
            placement, by = _how(program, value)
            groups.setdefault((kind, placement, by), []).append(value.tensor)
    found = []
    for (kind, placement, by), names in groups.items():
        size = sum(graph.tensors[n].bytes for n in names)
        short = list(dict.fromkeys(map(anywhere, names)))
        found.append(
            {
                "kind": kind,
                "placement": placement,
                "by": by,
                "count": len(names),
                "bytes": size,
                "names": short[:NAMED],
                "more": max(0, len(short) - NAMED),
            }
        )
    order = ["inputs", "parameters", "optimizer state", "activations", "gradients"]
    return sorted(found, key=lambda f: (order.index(f["kind"]), -f["bytes"]))


def _how(program: Program, value: Any) -> tuple[str, str]:
    """(sharded | replicated | partial, the classes it is cut by)."""
    kinds = {p.kind for p in value.placement}
    classes = program.graph.tensors[value.tensor].classes
    by = " and ".join(
        dict.fromkeys(str(classes[p.dim]) for p in value.placement if p.kind == "S" and p.dim is not None)
    )
    if "S" in kinds:
        return "sharded", by
    return ("partial" if "P" in kinds else "replicated"), ""
