"""A cluster corrected by what a run has measured: `hapdsl run --calibrate OUT.hap`.

Per kind of device and operator, and per method of a collective, all instructions of the run together say by which factor prices are wrong (the
geometric mean, weighted by seconds). What had a table gets it again with its times multiplied, under the operator's own name; what had none gets
one from the instructions themselves. Peaks rise where something was faster than they allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hapdsl.cluster.describe import table_lines
from hapdsl.cluster.fit import monotone
from hapdsl.cluster.hardware import Cluster, Curve, OpCurve, lookup
from hapdsl.cluster.settings import read_device
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import Report
from hapdsl.lang.nodes import Quantity
from hapdsl.lang.parse import parse

SIZES = tuple(1024.0 * 4**k for k in range(10))  # of messages whose formula becomes a table
DENSE = 8.0  # FLOP a byte, as in profiles
LEAST_S = 2e-6  # what is shorter than this is the clock's


@dataclass(frozen=True)
class Ran:
    """An operator call on one device: `predicted` and `measured` seconds of one call."""

    device: int
    op: str
    dtype: str
    flops: float
    moved: float
    predicted: float
    measured: float


@dataclass(frozen=True)
class Sent:
    """A message of all devices: seconds, and what its method costs on the cluster by bytes of the whole tensor, cut evenly."""

    kind: str
    method: str
    predicted: float
    measured: float
    formula: Curve


@dataclass(frozen=True)
class Change:
    """What a table's times, or a formula's, are multiplied with."""

    what: str
    factor: float
    samples: int


def calibrate(
    block: nodes.Cluster, cluster: Cluster, ran: Iterable[Ran], sent: Iterable[Sent]
) -> tuple[nodes.Cluster, list[Change]]:
    """The corrected block of `block` (which declares all its devices itself, and is what `cluster` was built from), and what has changed."""
    changes: list[Change] = []
    lines: list[str] = []
    replaced: set[tuple[str, str | None]] = set()
    devices = {d.kind: d for d in cluster.devices}
    peaks: dict[str, tuple[dict[str, float], float]] = {}
    by_op: dict[tuple[str, str, str], list[Ran]] = {}
    for call in ran:
        if call.predicted > 0 and call.measured > LEAST_S:
            by_op.setdefault((cluster.devices[call.device].kind, call.op, call.dtype), []).append(call)
    for (kind, op, dtype), calls in by_op.items():
        name = op if dtype == "f32" else f"{op}.{dtype}"
        factor = _factor([(c.predicted, c.measured) for c in calls])
        had = lookup(devices[kind].curves, op, dtype)
        made: OpCurve | None = _scaled(had, factor) if had is not None else _own(calls, devices[kind].launch)
        while made is not None:
            lines += table_lines(f"{name} on {kind}", made.curve.points, not made.bytes)
            made = made.other
        replaced.add((name, kind))
        changes.append(Change(f"{name} on {kind}", factor, len(calls)))
        speeds, bandwidth = peaks.setdefault(kind, ({}, 0.0))
        best = {dtype: max(c.flops / c.measured for c in calls)}
        peaks[kind] = (
            {**speeds, dtype: max(speeds.get(dtype, 0.0), best[dtype])},
            max(bandwidth, *(c.moved / c.measured for c in calls)),
        )
    by_method: dict[tuple[str, str], list[Sent]] = {}
    for message in sent:
        if message.predicted > 0 and message.measured > LEAST_S:
            by_method.setdefault((message.kind, message.method), []).append(message)
    for (kind, method), messages in by_method.items():
        name = f"{kind}_{method}"
        factor = _factor([(m.predicted, m.measured) for m in messages])
        curve = cluster.measured.get(name) or cluster.measured.get(kind) or messages[0].formula
        for skew, table in curve.tables or ((1.0, curve),):
            points = monotone((size, s * factor) for size, s in table.points)
            lines += table_lines(name + (f" at {skew:g}" if skew > 1 else ""), points, False)
        replaced.add((name, None))
        changes.append(Change(name, factor, len(messages)))
    body = [s for s in block.body if not (isinstance(s, nodes.Measured) and (s.kind, s.device) in replaced)]
    body = [_risen(s, *peaks[s.name]) if isinstance(s, nodes.Device) and s.name in peaks else s for s in body]
    new = parse("cluster c {\n" + "\n".join(lines) + "\n}\n", "<calibrated>").items[0]
    assert isinstance(new, nodes.Cluster)
    return replace(block, body=(*body, *new.body), inline=False), changes


def _factor(pairs: Sequence[tuple[float, float]]) -> float:
    logs = np.log([measured / predicted for predicted, measured in pairs])
    return float(np.exp(np.average(logs, weights=[measured for _, measured in pairs])))


def _scaled(curve: OpCurve, factor: float) -> OpCurve:
    other = _scaled(curve.other, factor) if curve.other is not None else None
    return OpCurve(curve.curve.scaled(factor), curve.bytes, other)


def _own(calls: Sequence[Ran], launch: float) -> OpCurve:
    """A table of the calls themselves; of calls of one size, a line through them and the launch."""
    by_flop = sum(c.flops for c in calls) > DENSE * sum(c.moved for c in calls)
    samples = [(c.flops if by_flop else max(c.moved, 1.0), c.measured) for c in calls]
    points = monotone(samples)
    if len(points) < 2:
        size, seconds = samples[0][0], float(np.exp(np.mean([np.log(s) for _, s in samples])))
        points = ((size, seconds), (4 * size, seconds + 3 * max(seconds - launch, 0.0)))
    return OpCurve(Curve(points), not by_flop)


def _risen(device: nodes.Device, speeds: dict[str, float], bandwidth: float) -> nodes.Device:
    """The device with peaks that allow what was measured; efficiencies keep what they come to."""
    old = read_device(device, Report())
    assert old is not None
    compute = {d: max(s, speeds.get(d, 0.0)) for d, s in old.flops.items()} | {
        d: s for d, s in speeds.items() if d not in old.flops and s > old.speed(d)
    }
    best = max(bandwidth, old.bandwidth)
    if compute == dict(old.flops) and best == old.bandwidth:
        return device
    drop = {"compute": old.flops["f32"] / compute["f32"], "memory": old.bandwidth / best}
    efficiency = {"compute": 1.0, "memory": 1.0, **old.efficiency}
    scaled = {name: part * drop.get(name, min(drop.values())) for name, part in efficiency.items()}
    given = {s.name: s for s in device.settings}
    given["compute"] = nodes.Setting(
        "compute", tuple(nodes.Setting(d, Quantity(_digits(s / 1e9), "GFLOP/s")) for d, s in compute.items())
    )
    given["bandwidth"] = nodes.Setting("bandwidth", Quantity(_digits(best / 1e9), "GB/s"))
    given["efficiency"] = nodes.Setting(
        "efficiency", tuple(nodes.Setting(n, nodes.Number(_digits(p))) for n, p in scaled.items())
    )
    return replace(device, settings=tuple(given.values()))


def _digits(value: float) -> float:
    return float(f"{value:.6g}")
