"""Plans side by side, and what they would cost on other hardware."""

from __future__ import annotations

from collections.abc import Callable
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from hapdsl.cluster import Cluster
from hapdsl.cluster.vary import quantities, vary
from hapdsl.cost.comparison import aligned, anywhere, busy
from hapdsl.cost.evaluate import Stage
from hapdsl.explore.desk import Desk, Opened
from hapdsl.lang.diagnostics import HapError
from hapdsl.search.shares import Stages, shares_of

Object = dict[str, Any]
Say = Callable[[Object], None]
SPAN, POINTS = 16.0, 33  # a slider goes from 1/16 to 16 times; points of its strip
UNITS = {"bandwidth": ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1.0, "B/s")), "time": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")),
         "compute": ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1.0, "FLOP/s"))}  # fmt: skip


def _opened(desk: Desk, request: Object) -> list[Opened | str]:
    """The programs of a request; words for one that can't be priced."""
    found: list[Opened | str] = []
    for reference in request["plans"]:
        try:
            found.append(desk.opened({**reference, "cluster": request.get("cluster")}))
        except HapError as stop:
            found.append(stop.diagnostics[0].message)
    return found


def compare(desk: Desk, request: Object) -> Object:
    """Totals of all plans, and for each but the first: rows by tensor, stages and devices beside the first one's."""
    found = _opened(desk, request)
    plans = [{"trouble": f} if isinstance(f, str) else _totals(f) for f in found]
    first = found[0]
    pairs: list[Object | None] = []
    for other in found[1:]:
        if isinstance(first, str) or isinstance(other, str):
            pairs.append(None)
        else:
            pairs.append(desk.remember(("compare", first.key, other.key), lambda a=first, b=other: _pair(a, b)))  # type: ignore[misc]
    return {"plans": plans, "pairs": pairs}


def _totals(o: Opened) -> Object:
    compute, comm = busy(o.program, o.cost)
    return {
        "name": o.program.name, "model": o.program.graph.model, "cluster": o.cluster.name, "sync_s": o.cost.sync_s, "overlap_s": o.cost.overlap_s,
        "communication_s": float(sum(s.comm_s for s in o.cost.stages)), "stages": len(o.cost.stages),
        "memory": [int(b) for b in o.cost.memory_bytes], "fits": bool(o.cost.fits), "devices": [d.name for d in o.cluster.devices],
        "compute_s": [float(s) for s in compute], "collectives_s": [float(s) for s in comm],
    }  # fmt: skip


def _pair(a: Opened, b: Opened) -> Object:
    if a.program.graph.fingerprint != b.program.graph.fingerprint:
        return {"other_model": True}
    rows = aligned(a.program, a.cost, b.program, b.cost)
    lines = [
        {
            "tensor": r.tensor,
            "a": list(r.a),
            "b": list(r.b),
            "a_s": r.a_s,
            "b_s": r.b_s,
            "turns": r.turns,
            "same": r.same,
        }
        for r in rows
    ]
    shares = [
        {"class": c, "a": [int(n) for n in x[(0,)]], "b": [int(n) for n in y[(0,)]]}
        for c, x in a.program.layout.shares.items()
        if (0,) in x
        and (y := b.program.layout.shares.get(c, {}))
        and (0,) in y
        and not np.array_equal(x[(0,)], y[(0,)])
    ]
    return {"lines": lines, "stages": _stages(a.cost.stages, b.cost.stages), "shares": shares}


def _stages(a: list[Stage], b: list[Stage]) -> list[Object]:
    """Stages of both in order, those of the same message on one row."""
    keys = [[(s.collective, tuple(sorted({anywhere(t) for t in s.tensors}))) for s in side] for side in (a, b)]
    found: list[Object] = []

    def row(x: Stage | None, y: Stage | None) -> None:
        shown = x or y
        assert shown is not None
        name = (
            "compute"
            if shown.collective is None
            else f"{shown.collective} {', '.join(dict.fromkeys(map(anywhere, shown.tensors[:2])))}{'…' if len(shown.tensors) > 2 else ''}"
        )
        sides = [None if s is None else [s.comm_s, float(s.compute_s.max(initial=0.0))] for s in (x, y)]
        found.append({"name": name, "a": sides[0], "b": sides[1]})

    for tag, i1, i2, j1, j2 in SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes():
        if tag == "equal":
            for i, j in zip(range(i1, i2), range(j1, j2), strict=True):
                row(a[i], b[j])
        else:
            for i in range(i1, i2):
                row(a[i], None)
            for j in range(j1, j2):
                row(None, b[j])
    return found


# -- other hardware -----------------------------------------------------------------------


def whatif(desk: Desk, request: Object, say: Say, waiting: Callable[[], bool]) -> None:
    """Tell the sliders; what each plan costs with `factors` (by quantity); then costs over the range of `slider`."""
    found = _opened(desk, request)
    good = [(k, o) for k, o in enumerate(found) if not isinstance(o, str)]
    factors: dict[str, float] = request.get("factors") or {}
    sliders: dict[str, Object] = {}
    for _, o in good:
        for name, measure in quantities(o.cluster).items():
            sliders.setdefault(name, {"name": name, "measure": measure, "value": value_of(o.cluster, name)})
    for s in sliders.values():
        s["text"] = in_unit(s["value"] * factors.get(s["name"], 1.0), s["measure"])
    now = {str(k): _seconds(o, factors) for k, o in good}
    say({"sliders": list(sliders.values()), "now": now, "base": {str(k): o.cost.sync_s for k, o in good}})
    chosen = request.get("slider")
    if chosen not in sliders:
        return
    points = [float(f) for f in np.geomspace(1 / SPAN, SPAN, POINTS)]
    key = (
        "strip",
        chosen,
        tuple(sorted((n, f) for n, f in factors.items() if n != chosen)),
        tuple(o.key for _, o in good),
    )
    strip: dict[float, list[float]] = desk.remember(key, dict)
    fresh = False
    for factor in points:
        if factor not in strip:
            if fresh and waiting():
                say({"dropped": True})
                return
            fresh = True
            strip[factor] = [_seconds(o, {**factors, chosen: factor}) for _, o in good]
    say(
        {
            "strip": {
                "slider": chosen,
                "points": points,
                "plans": [str(k) for k, _ in good],
                "seconds": [strip[f] for f in points],
            }
        }
    )


def _seconds(o: Opened, factors: dict[str, float]) -> float:
    """A plan's synchronous cost with its cluster's quantities multiplied; those that it doesn't have don't count."""
    cluster = o.cluster
    known = quantities(cluster)
    for name, factor in factors.items():
        if name in known and factor != 1.0:
            cluster = vary(cluster, name, value_of(o.cluster, name) * factor)
    if cluster is o.cluster:
        return o.cost.sync_s
    if len(o.program.layout.mesh) > 1:
        from hapdsl.cost.evaluate import evaluate

        return evaluate(o.program, cluster).sync_s
    return Stages(o.program, cluster).seconds(shares_of(o.program.layout))[0]


def value_of(cluster: Cluster, name: str) -> float:
    """What a quantity is now, in SI units; of links that differ the first one's."""
    links = [node.link for node in cluster.nodes if node.link is not None]
    if name == "network" and cluster.network is not None:
        return cluster.network.bandwidth
    if name == "latency":
        return cluster.network.latency if cluster.network is not None else links[0].latency if links else 1e-6
    if name == "link":
        return links[0].bandwidth
    return next(d.flops["f32"] for d in cluster.devices if d.kind == name)


def in_unit(value: float, measure: str) -> str:
    """`12.5 GB/s`, three digits."""
    size, unit = next(((s, u) for s, u in UNITS[measure] if value >= s), UNITS[measure][-1])
    return f"{value / size:.3g} {unit}"
