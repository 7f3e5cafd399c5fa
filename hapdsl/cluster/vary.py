"""The same cluster with one of its quantities changed: what a sweep goes through.

    network     bandwidth of every node's card (uplinks of their own included)
    latency     of the network; of the links within nodes, where there is no network
    link        bandwidth of the links within nodes
    KIND        computing speed of the devices of one kind, in f32; other dtypes keep their ratio to it

Curves that were measured of collectives say nothing about other links, so they are left out where links change. Those of operators by FLOP get
shorter as their device gets faster; those by bytes wait for memory, and stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hapdsl.cluster.hardware import Cluster, Device, OpCurve
from hapdsl.cluster.links import Host, Link
from hapdsl.lang.diagnostics import error


def quantities(cluster: Cluster) -> dict[str, str]:
    """What can be changed, with the dimension of its unit (`lang.units`)."""
    inside = any(node.link is not None for node in cluster.nodes)
    found = {"network": "bandwidth"} if cluster.network is not None else {}
    if found or inside:
        found["latency"] = "time"
    if inside:
        found["link"] = "bandwidth"
    return {**dict.fromkeys((d.kind for d in cluster.devices), "compute"), **found}


def dimension(cluster: Cluster, name: str) -> str:
    """The dimension of a quantity's unit. Raises HAP426 for one that the cluster doesn't have."""
    known = quantities(cluster)
    if name not in known:
        help = f"there are: {', '.join(known)}"
        raise error("HAP426", f"cluster '{cluster.name}' has no '{name}' to change", help=help)
    return known[name]


def vary(cluster: Cluster, name: str, value: float) -> Cluster:
    """The cluster with `name` at `value` (SI units). Raises HAP426 as `dimension` does."""
    dimension(cluster, name)
    network = cluster.network
    if name == "network" and network is not None:
        freed = tuple(replace(node, uplink=None) for node in cluster.nodes)
        return replace(cluster, nodes=freed, network=replace(network, bandwidth=value), measured={})
    if name == "latency" and network is not None:
        return replace(cluster, network=replace(network, latency=value), measured={})
    if name in ("latency", "link"):
        field = "latency" if name == "latency" else "bandwidth"
        return replace(cluster, nodes=_linked(cluster.nodes, field, value), measured={})
    return replace(cluster, devices=tuple(_paced(d, value) if d.kind == name else d for d in cluster.devices))


def _linked(nodes: Sequence[Host], field: str, value: float) -> tuple[Host, ...]:
    def changed(link: Link | None) -> Link | None:
        return None if link is None else replace(link, **{field: value})

    return tuple(replace(node, link=changed(node.link)) for node in nodes)


def _paced(device: Device, speed: float) -> Device:
    factor = speed / device.flops["f32"]
    flops = {dtype: each * factor for dtype, each in device.flops.items()}
    return replace(device, flops=flops, curves={op: _hastened(c, factor) for op, c in device.curves.items()})


def _hastened(curve: OpCurve, factor: float) -> OpCurve:
    """The curves of an operator where its device computes so many times as fast."""
    other = None if curve.other is None else _hastened(curve.other, factor)
    return OpCurve(curve.curve if curve.bytes else curve.curve.scaled(1 / factor), curve.bytes, other)
