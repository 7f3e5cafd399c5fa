"""A cluster as a picture: the network, its nodes, the devices in them, and what every link carries."""

from __future__ import annotations

import math

from hapdsl.cluster.hardware import Cluster as Machines
from hapdsl.cluster.hardware import Device
from hapdsl.cluster.links import Host, Link
from hapdsl.draw.picture import Box, Cluster, Edge, Picture, to_dot
from hapdsl.lang.amounts import in_bytes, in_seconds

NETWORK, SWITCH = "#dbe4f3", "#eef1f6"
KINDS = ("#b9d7fb", "#b5ebc6", "#fdcf9c", "#d9d0fb", "#a8ecf4", "#f9c9e2", "#f5e6a3", "#d5dae2")


def cluster_dot(cluster: Machines) -> str:
    """The DOT text of a cluster. Nodes that are alike are drawn once, marked "×N". Cost: linear in devices."""
    return to_dot(_picture(cluster))


def _picture(cluster: Machines) -> Picture:
    kinds = list(dict.fromkeys(d.kind for d in cluster.devices))
    colour = {kind: KINDS[min(k, len(KINDS) - 1)] for k, kind in enumerate(kinds)}
    boxes: list[Box] = []
    edges: list[Edge] = []
    frames: dict[tuple[str, ...], Cluster] = {}
    network = cluster.network
    if network is not None:
        boxes.append(Box("network", tuple(_link(network)), (NETWORK,)))
    for host, names in _alike(cluster):
        frames[host.name,] = Cluster(_frame(names) + ("  (one virtual device)" if cluster.virtual else ""), below=True)
        inside: dict[str, list[Device]] = {}
        for d in host.devices:
            inside.setdefault(cluster.devices[d].kind, []).append(cluster.devices[d])
        entry = None
        if host.link is not None:
            entry = len(boxes)
            boxes.append(Box("link of each device", tuple(_link(host.link)), (SWITCH,), group=(host.name,)))
        for kind, devices in inside.items():
            count = f"{len(devices)} × " if len(devices) > 1 else ""
            boxes.append(Box(count + kind, tuple(_device(devices[0])), (colour[kind],), "box", group=(host.name,)))
            if entry is not None:
                edges.append(Edge(entry, len(boxes) - 1))
            elif network is not None:
                edges.append(Edge(0, len(boxes) - 1, _uplink(host), strong=True))
        if entry is not None and network is not None:
            edges.append(Edge(0, entry, _uplink(host), strong=True))
    facts = f"{len(cluster)} devices of {len(kinds)} kind{'s' * (len(kinds) > 1)} in {len(cluster.nodes)} node{'s' * (len(cluster.nodes) > 1)}"
    notes = (facts, *(("measured: " + ", ".join(sorted(cluster.measured)),) if cluster.measured else ()))
    return Picture(cluster.name, notes, boxes, edges, frames)


def _alike(cluster: Machines) -> list[tuple[Host, list[str]]]:
    """Nodes with equal devices, links and cards: the first of each, and the names of all."""
    found: dict[object, tuple[Host, list[str]]] = {}
    for host in cluster.nodes:
        kinds = tuple(cluster.devices[d].kind for d in host.devices)
        found.setdefault((kinds, host.link, host.uplink), (host, []))[1].append(host.name)
    return list(found.values())


def _frame(names: list[str]) -> str:
    """`old  ×2` for old.0 and old.1."""
    if len(names) == 1:
        return names[0]
    return f"{', '.join(dict.fromkeys(name.rpartition('.')[0] or name for name in names))}  ×{len(names)}"


def _link(link: Link) -> list[str]:
    lines = [f"{_rate(link.bandwidth)}, {in_seconds(link.latency)}"]
    if math.isfinite(link.switch):
        lines.append(f"all together {_rate(link.switch)}")
    return lines


def _uplink(host: Host) -> str:
    """What a node's card carries, where that isn't what the network says of all of them."""
    return "" if host.uplink is None else _rate(host.uplink)


def _device(device: Device) -> list[str]:
    unit, size = ("TFLOP/s", 1e12) if max(device.flops.values()) >= 1e11 else ("GFLOP/s", 1e9)
    speeds = ", ".join(f"{dtype} {flops / size:.3g}" for dtype, flops in device.flops.items())
    return [f"{unit}: {speeds}", f"{in_bytes(device.memory)} at {_rate(device.bandwidth)}"]


def _rate(bandwidth: float) -> str:
    """In decimal units, as links are sold and written in clusters."""
    return f"{bandwidth / 1e9:.4g} GB/s"
