"""A cluster without one of its devices, as text would declare it: what a run goes on with when the device is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hapdsl.cluster.builder import build
from hapdsl.cluster.fewer import Fewer, used
from hapdsl.cluster.hardware import Cluster
from hapdsl.lang import nodes


def without(block: nodes.Cluster, cluster: Cluster, device: int) -> Fewer | None:
    """The cluster without device number `device`; None where nothing is left. `cluster` is what `block` declares.

    The other devices keep their order. A node of which there are several becomes one of its own kind. What was measured of
    collectives doesn't hold for fewer devices, so formulas take its place; nodes no longer equally large are no virtual devices.
    """
    if len(cluster) == 1:
        return None
    place = next(k for k, node in enumerate(cluster.nodes) if device in node.devices)
    hosts = {s.name: s for s in block.body if isinstance(s, nodes.HostNode)}
    listed = [name for name, count in _parts(block, hosts) for _ in range(count)]
    smaller = _reduced(hosts[listed[place]], device - cluster.nodes[place].devices[0], set(hosts))
    chosen: list[nodes.HostNode | None] = [hosts[name] for name in listed]
    chosen[place] = smaller
    left = [host for host in chosen if host is not None]
    several = len(left) > 1
    declared = {host.name: host if several else replace(host, uplink=()) for host in left}
    kinds = [part.name for host in declared.values() for part in host.parts]
    body: list[nodes.Statement] = []
    for statement in block.body:
        match statement:
            case nodes.Device() if used(statement.name, kinds, block):
                body.append(statement)
            case nodes.Measured(device=kind) if kind in kinds:
                body.append(statement)
            case nodes.HostNode():
                if smaller is not None and statement.name == listed[place]:
                    body += [declared[n] for n in (statement.name, smaller.name) if n in declared]
                elif statement.name in declared:
                    body.append(declared[statement.name])
            case nodes.Network() if several:
                equal = len({sum(p.count for p in host.parts) for host in left}) == 1
                virtual = equal and any(p.virtual for p in statement.parts)
                parts = tuple(nodes.Part(count, name, virtual) for name, count in _runs([host.name for host in left]))
                body.append(replace(statement, parts=parts))
    name = cluster.devices[device].name
    made = replace(block, name=f"{block.name}_{len(cluster) - 1}", body=tuple(body))
    return Fewer(made, build(made), name)


def _parts(block: nodes.Cluster, hosts: dict[str, nodes.HostNode]) -> list[tuple[str, int]]:
    """The nodes in the order of the devices' numbers, with their counts."""
    networks = [s for s in block.body if isinstance(s, nodes.Network)]
    return [(p.name, p.count) for p in networks[0].parts] if networks else [(name, 1) for name in hosts]


def _reduced(host: nodes.HostNode, number: int, taken: set[str]) -> nodes.HostNode | None:
    """A node without its device number `number`, under a name of its own; None where it had no other."""
    parts: list[nodes.Part] = []
    for part in host.parts:
        here = 0 <= number < part.count
        number -= part.count
        count = part.count - here
        if count:
            parts.append(replace(part, count=count))
    if not parts:
        return None
    name = f"{host.name}_less"
    while name in taken:
        name += "_less"
    single = sum(part.count for part in parts) == 1
    return replace(host, name=name, parts=tuple(parts), link=() if single else host.link)


def _runs(names: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Equal neighbours counted."""
    start = 0
    for k in range(1, len(names) + 1):
        if k == len(names) or names[k] != names[start]:
            yield names[start], k - start
            start = k
