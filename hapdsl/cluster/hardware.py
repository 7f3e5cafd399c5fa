"""Devices, links and clusters as the cost model reads them: FLOP/s, bytes, bytes/s and seconds.

`hapdsl.cluster.build` makes a Cluster from text, `hapdsl.cluster.guess` from the machine at hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hapdsl.cluster.links import Host, Link
from hapdsl.cluster.wiring import Wiring, wire

Floats = NDArray[np.float64]
_Entry = TypeVar("_Entry")


class Interference(NamedTuple):
    """In a second in which a device computes beside a message of its own, it does 1 - `compute` seconds of its computing, and 1 - `message` seconds
    of the message. Both are 0 where something else moves the bytes. Together they are at most 1: where that is reached, nothing is gained."""

    compute: float = 0.0
    message: float = 0.0


@dataclass(frozen=True, slots=True)
class Device:
    """One device. `flops` maps a dtype to FLOP/s ("f32" is always there); `memory` is in bytes, `bandwidth`
    in bytes/s to that memory, `launch` in seconds per kernel. `interference` is what computing and a message of the device take from each other.

    `efficiency` says what part of these peaks operators reach: of an operator ("matmul"), of one in a dtype ("matmul.f16"), and,
    where it says nothing of an operator, "compute" of the speed and "memory" of the bandwidth. `curves` are what was measured of operators. `tiles` says in tiles of what length
    an operator computes its tiled dims: what is left over costs as much as a full one.
    """

    name: str
    kind: str
    flops: Mapping[str, float]
    memory: float
    bandwidth: float
    launch: float = 0.0
    efficiency: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, OpCurve] = field(default_factory=dict)
    tiles: Mapping[str, int] = field(default_factory=dict)
    interference: Interference = field(default_factory=Interference)

    def reach(self, op: str, dtype: str) -> tuple[float, float]:
        """(FLOP/s, bytes/s) that an operator comes to at best."""
        own = lookup(self.efficiency, op, dtype)
        compute, memory = (
            (own, own) if own is not None else (self.efficiency.get("compute", 1.0), self.efficiency.get("memory", 1.0))
        )
        return self.speed(dtype) * compute, self.bandwidth * memory

    def speed(self, dtype: str) -> float:
        """FLOP/s of a dtype. One that isn't listed runs like f32, and f64 at half of that."""
        listed = self.flops.get(dtype)
        if listed is not None:
            return listed
        return self.flops["f32"] / 2 if dtype == "f64" else self.flops["f32"]


def lookup(table: Mapping[str, _Entry], op: str, dtype: str) -> _Entry | None:
    """What a table says of an operator: under its name, or under one that it continues with `_` (conv2d for conv2d_input_grad, the longest
    first); of one name the entry of the dtype ("matmul.f16") first."""
    if not table:
        return None
    name = op
    while name:
        for key in (f"{name}.{dtype}", name):
            if key in table:
                return table[key]
        name = name.rpartition("_")[0]
    return None


def in_whole_tiles(flops: ArrayLike, lengths: Iterable[ArrayLike], tiles: ArrayLike) -> Floats:
    """FLOP where dims of these lengths are computed in tiles of some length: each is rounded up to it. Numbers, or arrays over devices."""
    done = np.asarray(flops, dtype=float)
    for length in lengths:
        held = np.maximum(length, 1)
        done = done * (-(-held // np.asarray(tiles)) * tiles / held)
    return done


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured seconds at some sizes (bytes, or FLOP of an operator), both ascending: straight lines between the points and beyond the last.

    Below the first point the first line goes on, but never under zero. Of a collective that was measured with uneven shares, too, `tables` holds
    its curves by skew (how many times an even share the largest one is), ascending, and `points` lie on or below all of them.
    """

    points: tuple[tuple[float, float], ...]
    tables: tuple[tuple[float, Curve], ...] = ()

    def seconds(self, size: float, skew: float | None = None) -> float:
        """Seconds at a size. Between the skews that were measured straight lines, beyond them the nearest."""
        if skew is not None and self.tables:
            return float(
                np.interp(skew, [s for s, _ in self.tables], [curve.seconds(size) for _, curve in self.tables])
            )
        xs, ys = zip(*self.points, strict=True)
        k = min(max(int(np.searchsorted(xs, size, side="right")), 1), len(xs) - 1)
        slope = (ys[k] - ys[k - 1]) / (xs[k] - xs[k - 1])
        return max(0.0, ys[k - 1] + slope * (size - xs[k - 1]))

    @property
    def start(self) -> float:
        """The size from which on it takes time: where the first line, going on below the first point, comes to zero. Not above 0 where it doesn't."""
        (x0, y0), (x1, y1) = self.points[:2]
        return x0 - y0 * (x1 - x0) / (y1 - y0) if y1 > y0 else 0.0

    def scaled(self, factor: float) -> Curve:
        """The curve with all of its seconds multiplied."""
        tables = tuple((skew, curve.scaled(factor)) for skew, curve in self.tables)
        return Curve(tuple((size, seconds * factor) for size, seconds in self.points), tables)

    def at(self, sizes: Floats) -> Floats:
        """The same as `seconds` for an array of sizes."""
        xs, ys = (np.array(column) for column in zip(*self.points, strict=True))
        k = np.clip(np.searchsorted(xs, sizes, side="right"), 1, len(xs) - 1)
        slopes = (ys[k] - ys[k - 1]) / (xs[k] - xs[k - 1])
        return np.asarray(np.maximum(0.0, ys[k - 1] + slopes * (sizes - xs[k - 1])))


@dataclass(frozen=True, slots=True)
class OpCurve:
    """Measured seconds of an operator on one device, launch included, by its FLOP or (`bytes`) by the bytes that it reads and writes.

    Where it was measured by both, `other` is the second curve: the larger of both counts.
    """

    curve: Curve
    bytes: bool = False
    other: OpCurve | None = None

    def at(self, flops: Floats, moved: Floats) -> Floats:
        """Seconds for arrays of FLOP and of bytes."""
        found = self.curve.at(moved if self.bytes else flops)
        return found if self.other is None else np.maximum(found, self.other.at(flops, moved))


def _together(devices: Sequence[Device], name: str) -> Device:
    """The devices of a node as one, named and of a kind by what it is made of."""
    dtypes = {dtype for d in devices for dtype in d.flops}
    kind = "+".join(sorted(d.kind for d in devices))
    return Device(
        name,
        kind,
        {dtype: sum(d.speed(dtype) for d in devices) for dtype in sorted(dtypes)},
        min(d.memory for d in devices),
        sum(d.bandwidth for d in devices),
        max(d.launch for d in devices),
        interference=_worst([d.interference for d in devices]),
    )


def _worst(of: Sequence[Interference]) -> Interference:
    """What several devices together take from each other: as much computing as the worst, and of messages what that leaves."""
    compute = max(i.compute for i in of)
    return Interference(compute, min(max(i.message for i in of), 1 - compute))


@dataclass(frozen=True)
class Reach:
    """What one operator comes to: FLOP/s and bytes/s per device (float arrays [devices]), and (devices, curve) where it was measured. `tiles` are
    the lengths of its tiles per device (int array [devices]), None where there are none."""

    speeds: Floats
    bandwidths: Floats
    curves: tuple[tuple[NDArray[np.int64], OpCurve], ...] = ()
    tiles: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Cluster:
    """Devices in order, the nodes they stand in, and the network between the nodes (None with a single node).

    `measured` maps a collective ("all_reduce", "all_gather_grouped", …) to what a profile saw when all devices took
    part. `guessed` says that nobody wrote these numbers down. Where nodes are `virtual`, each stands for one device in programs of one axis
    (paper §3); all have equally many devices then.
    """

    name: str
    devices: tuple[Device, ...]
    nodes: tuple[Host, ...]
    network: Link | None = None
    measured: Mapping[str, Curve] = field(default_factory=dict)
    guessed: bool = False
    virtual: bool = False
    within: Cluster | None = field(default=None, repr=False)  # of what `outer` made: what it was made of

    def outer(self) -> Cluster:
        """What the nodes look like from outside, one device each: the speed and bandwidth of all its devices together, the memory of its smallest
        one (parameters are whole on each). Messages within nodes aren't in it, but it knows where to look for them: `within` is this cluster. What was
        measured with all devices says something of messages among nodes only where each is one device."""
        devices = tuple(_together([self.devices[d] for d in node.devices], node.name) for node in self.nodes)
        hosts = tuple(Host(node.name, (k,), None, node.uplink) for k, node in enumerate(self.nodes))
        measured = self.measured if len(self.nodes) == len(self) else {}
        return Cluster(self.name, devices, hosts, self.network, measured, within=self)

    def node_speeds(self) -> list[list[float]]:
        """FLOP/s (f32) of each node's own devices."""
        return [[self.devices[d].speed("f32") for d in node.devices] for node in self.nodes]

    def __len__(self) -> int:
        return len(self.devices)

    def link(self, devices: Sequence[int]) -> Wiring:
        """What joins one group of devices that communicates alone. Cost: O(devices); cached."""
        return self.links((tuple(devices),))[0]

    def links(self, groups: Iterable[Sequence[int]]) -> tuple[Wiring, ...]:
        """What joins each group, where all groups communicate at once (`hapdsl.cluster.wiring`). Cost: O(devices); cached."""
        key = tuple(tuple(g) for g in groups)
        found = self._links.get(key)
        if found is None:
            found = self._links[key] = wire(self.nodes, self.network, self._node_of, key)
        return found

    @cached_property
    def _links(self) -> dict[tuple[tuple[int, ...], ...], tuple[Wiring, ...]]:
        return {}

    @cached_property
    def _node_of(self) -> dict[int, int]:
        return {d: k for k, node in enumerate(self.nodes) for d in node.devices}

    def kinds(self) -> list[list[int]]:
        """Devices that nothing tells apart, grouped: the same speed, memory and launch, in nodes that are alike.

        Groups stand in the order of their first device.
        """
        found: dict[tuple[object, ...], list[int]] = {}
        for d, device in enumerate(self.devices):
            node = self.nodes[self._node_of[d]]
            mates = sorted(self.devices[m].kind for m in node.devices)
            speeds = tuple(sorted(device.flops.items()))
            measured = (*sorted(device.efficiency.items()), *sorted(device.curves), *sorted(device.tiles.items()))
            hardware = (
                device.kind,
                speeds,
                device.memory,
                device.bandwidth,
                device.launch,
                device.interference,
                measured,
            )
            found.setdefault((*hardware, tuple(mates), node.link, node.uplink), []).append(d)
        return list(found.values())

    # -- the same as arrays over devices, for the cost model --------------------------

    def speeds(self, dtype: str) -> Floats:
        """FLOP/s per device for a dtype, float array [devices]."""
        found = self._speeds.get(dtype)
        if found is None:
            found = self._speeds[dtype] = np.array([d.speed(dtype) for d in self.devices])
        return found

    @cached_property
    def _speeds(self) -> dict[str, Floats]:
        return {}

    def reach(self, op: str, dtype: str) -> Reach:
        """What an operator comes to on each device; cached."""
        found = self._reach.get((op, dtype))
        if found is None:
            sorts: dict[int, tuple[OpCurve, list[int]]] = {}  # by id: devices of a kind share their curves
            for d, device in enumerate(self.devices):
                curve = lookup(device.curves, op, dtype)
                if curve is not None:
                    sorts.setdefault(id(curve), (curve, []))[1].append(d)
            best = np.array([d.reach(op, dtype) for d in self.devices])
            curves = tuple((np.array(members), curve) for curve, members in sorts.values())
            tiles = np.array([lookup(d.tiles, op, dtype) or 1 for d in self.devices], dtype=np.int64)
            found = self._reach[op, dtype] = Reach(best[:, 0], best[:, 1], curves, tiles if tiles.max() > 1 else None)
        return found

    @cached_property
    def _reach(self) -> dict[tuple[str, str], Reach]:
        return {}

    @cached_property
    def bandwidths(self) -> Floats:
        """Bytes/s to memory per device, float array [devices]."""
        return np.array([d.bandwidth for d in self.devices])

    @cached_property
    def launches(self) -> Floats:
        """Seconds per kernel launch, float array [devices]."""
        return np.array([d.launch for d in self.devices])

    @cached_property
    def interferences(self) -> Floats:
        """What computing and messages of each device take from each other, float array [devices, 2]: of computing, of the message."""
        return np.array([d.interference for d in self.devices])

    @cached_property
    def memories(self) -> Floats:
        """Bytes of memory per device, float array [devices]."""
        return np.array([d.memory for d in self.devices])


def weightless(cluster: Cluster) -> Cluster:
    """A cluster on which every message begins at once."""

    def alone(link: Link | None) -> Link | None:
        return None if link is None else replace(link, latency=0.0)

    return replace(
        cluster, nodes=tuple(replace(n, link=alone(n.link)) for n in cluster.nodes), network=alone(cluster.network)
    )
