"""Clusters with devices left out, as text would declare them: without the slowest kinds, and one device alone.

A device that is given no share still takes part in every collective and in all replicated work; one that is left out doesn't.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    """Smaller clusters that a program may rather run on, largest first. `cluster` is what `block` declares.

    What was measured with all devices doesn't hold for fewer, so formulas take its place.
    """
    speeds = {d.kind: d.speed("f32") for d in cluster.devices}
    if cluster.virtual:  # its nodes stay equally large
        return
    counts = {k: sum(d.kind == k for d in cluster.devices) for k in speeds}
    ranked = sorted(speeds, key=lambda k: -speeds[k])
    for keep in range(len(ranked) - 1, 0, -1):
        gone = ranked[keep:]
        made = _reduced(block, f"{block.name}_without_{'_'.join(gone)}", ranked[:keep])
        yield Fewer(made, build(made), ", ".join(f"{counts[k]} {k}" for k in gone))
    if len(cluster) > 1:
        made = _reduced(block, f"{block.name}_one_{ranked[0]}", ranked[:1], alone=True)
        yield Fewer(made, build(made), f"all but one {ranked[0]}")


def _reduced(block: nodes.Cluster, name: str, kinds: list[str], alone: bool = False) -> nodes.Cluster:
    body: list[nodes.Statement] = []
    hosts: dict[str, nodes.HostNode] = {}
    for statement in block.body:
        match statement:
            case nodes.Device() if used(statement.name, kinds, block):
                body.append(statement)
            case nodes.Measured(device=device) if device in kinds:
                body.append(statement)
            case nodes.HostNode():
                parts = tuple(p for p in statement.parts if p.name in kinds)
                if parts and not (alone and hosts):
                    parts = (replace(parts[0], count=1, virtual=False),) if alone else parts
                    single = sum(p.count for p in parts) == 1
                    hosts[statement.name] = replace(statement, parts=parts, link=() if single else statement.link)
                    body.append(hosts[statement.name])
            case nodes.Network() if not alone:
                joined = tuple(p for p in statement.parts if p.name in hosts)
                if sum(p.count for p in joined) > 1:
                    body.append(replace(statement, parts=joined))
    if not any(isinstance(s, nodes.Network) for s in body):  # one node is left, and its uplink leads nowhere
        body = [replace(s, uplink=()) if isinstance(s, nodes.HostNode) else s for s in body]
    return replace(block, name=name, body=tuple(body))


def used(name: str, kinds: list[str], block: nodes.Cluster) -> bool:
    """Is a device of one of the kinds, or what one of them is made from?"""
    bases = {s.name: s.base for s in block.body if isinstance(s, nodes.Device)}
    for kind in kinds:
        each: str | None = kind
        while each is not None:
            if each == name:
                return True
            each = bases.get(each)
    return False
