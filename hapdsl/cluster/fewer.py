"""Clusters with devices left out, as text would declare them: without the slowest kinds, and one device alone. (Without one that is lost: `cluster.lost`.)

A device that is given no share still takes part in every collective and in all replicated work; one that is left out doesn't.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hapdsl.cluster.builder import build
from hapdsl.cluster.hardware import Cluster
from hapdsl.lang import nodes


@dataclass(frozen=True)
class Fewer:
    """A smaller cluster as text and as numbers, and in words what is missing."""

    block: nodes.Cluster
    cluster: Cluster
    left_out: str


def fewer(block: nodes.Cluster, cluster: Cluster) -> Iterator[Fewer]:
    """Smaller clusters that a program may rather run on, largest first. `cluster` is what `block` declares, with all its devices in it."""
    if cluster.virtual:  # its nodes stay equally large
        return
    speeds = {d.kind: d.speed("f32") for d in cluster.devices}
    counts = {k: sum(d.kind == k for d in cluster.devices) for k in speeds}
    ranked = sorted(speeds, key=lambda k: -speeds[k])
    for keep in range(len(ranked) - 1, 0, -1):
        gone = ranked[keep:]
        made = _of_kinds(block, f"{block.name}_without_{'_'.join(gone)}", ranked[:keep])
        yield Fewer(made, build(made), ", ".join(f"{counts[k]} {k}" for k in gone))
    if len(cluster) > 1:
        made = _alone(block, f"{block.name}_one_{ranked[0]}", ranked[0])
        yield Fewer(made, build(made), f"all but one {ranked[0]}")


def reduced(
    block: nodes.Cluster, name: str, left: Mapping[str, Sequence[nodes.HostNode]], joined: Sequence[nodes.Part]
) -> nodes.Cluster:
    """A block in which of each node, by its name, stands what is left of it, and of the network what it still joins.

    Devices that no node has any more go, with what was measured on them. What was measured of collectives doesn't hold for fewer devices, so
    formulas take its place; a node that is left alone has no network, and its uplink leads nowhere.
    """
    several = sum(p.count for p in joined) > 1
    kinds = {p.name for hosts in left.values() for host in hosts for p in host.parts}
    body: list[nodes.Statement] = []
    for statement in block.body:
        match statement:
            case nodes.Device() if statement.name in kinds:
                body.append(statement)
            case nodes.Measured(device=kind) if kind in kinds:
                body.append(statement)
            case nodes.HostNode():
                hosts = left.get(statement.name, ())
                body += [host if several else replace(host, uplink=()) for host in hosts]
            case nodes.Network() if several:
                body.append(replace(statement, parts=tuple(joined)))
    return replace(block, name=name, body=tuple(body))


def with_parts(host: nodes.HostNode, parts: Sequence[nodes.Part]) -> nodes.HostNode:
    """A node of other parts; a device that is alone in it has no link."""
    single = sum(p.count for p in parts) == 1
    return replace(host, parts=tuple(parts), link=() if single else host.link)


def _of_kinds(block: nodes.Cluster, name: str, kinds: Collection[str]) -> nodes.Cluster:
    left: dict[str, list[nodes.HostNode]] = {}
    for host in _hosts(block):
        parts = [p for p in host.parts if p.name in kinds]
        if parts:
            left[host.name] = [with_parts(host, parts)]
    joined = [p for s in block.body if isinstance(s, nodes.Network) for p in s.parts if p.name in left]
    return reduced(block, name, left, joined)


def _alone(block: nodes.Cluster, name: str, kind: str) -> nodes.Cluster:
    host, part = next((h, p) for h in _hosts(block) for p in h.parts if p.name == kind)
    return reduced(block, name, {host.name: [with_parts(host, [replace(part, count=1, virtual=False)])]}, ())


def _hosts(block: nodes.Cluster) -> list[nodes.HostNode]:
    return [s for s in block.body if isinstance(s, nodes.HostNode)]
