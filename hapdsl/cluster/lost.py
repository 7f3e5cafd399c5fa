"""A cluster without one of its devices, as text would declare it: what a run goes on with when the device is lost."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from hapdsl.cluster.builder import build
from hapdsl.cluster.fewer import Fewer, reduced, with_parts
from hapdsl.cluster.hardware import Cluster
from hapdsl.lang import nodes


def without(block: nodes.Cluster, cluster: Cluster, device: int) -> Fewer | None:
    """The cluster without device number `device`; None where nothing is left. `cluster` is what `block` declares.

    The other devices keep their order. A node of which there are several becomes one of its own kind; nodes no longer equally large are
    no virtual devices.
    """
    if len(cluster) == 1:
        return None
    place = next(k for k, node in enumerate(cluster.nodes) if device in node.devices)
    hosts = {s.name: s for s in block.body if isinstance(s, nodes.HostNode)}
    network = next((s for s in block.body if isinstance(s, nodes.Network)), None)
    listed = [p.name for p in network.parts for _ in range(p.count)] if network is not None else list(hosts)
    smaller = _less(hosts[listed[place]], device - cluster.nodes[place].devices[0], set(hosts))
    remaining = [hosts[name] if k != place else smaller for k, name in enumerate(listed)]
    there = [host for host in remaining if host is not None]
    left: dict[str, list[nodes.HostNode]] = {host.name: [host] for host in there if host is not smaller}
    if smaller is not None:
        left.setdefault(listed[place], []).append(smaller)
    equal = len({sum(p.count for p in host.parts) for host in there}) == 1
    virtual = equal and network is not None and any(p.virtual for p in network.parts)
    joined = [nodes.Part(len(list(run)), name, virtual) for name, run in groupby(host.name for host in there)]
    made = reduced(block, f"{block.name}_{len(cluster) - 1}", left, joined)
    return Fewer(made, build(made), cluster.devices[device].name)


def _less(host: nodes.HostNode, number: int, taken: set[str]) -> nodes.HostNode | None:
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
    return replace(with_parts(host, parts), name=name)
