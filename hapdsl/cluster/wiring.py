"""What joins the devices of a group while it communicates: the links it crosses, shared with the groups beside it.

A hop inside a node counts where a group has several devices of that node; it is one link per device, and all such devices
together get no more than the node's switch lets through. The network counts where a group spans nodes: a node has one
network card (its uplink), which all groups that leave it share, and all cards together get no more than the network's switch
lets through. Without a switch there is full bisection: nothing but a device's link or a node's card limits it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hapdsl.cluster.links import Host, Link


@dataclass(frozen=True, slots=True)
class Hop:
    """Bytes/s of one flow, and seconds until its first byte is there."""

    bandwidth: float
    latency: float


NO_HOP = Hop(math.inf, 0.0)


@dataclass(frozen=True, slots=True)
class Wiring:
    """What the prices of collectives read of one group.

    `ring` is the slowest hop of a ring through all `devices`, laid so that it enters and leaves each node once. `exchange` are
    the seconds for each byte that a device holds and sends to all devices in equal parts, all at once (all_to_all). `inside`
    is the slowest hop of rings within the nodes, `across` that of a ring with one device a node. The group has devices in `nodes`
    nodes, from `least` to `most` in one.
    """

    devices: int
    ring: Hop
    exchange: float
    inside: Hop = NO_HOP
    across: Hop = NO_HOP
    nodes: int = 1
    most: int = 1
    least: int = 1

    @staticmethod
    def uniform(devices: int, bandwidth: float, latency: float) -> Wiring:
        """`devices` devices in one node, a link each, full bisection."""
        hop = Hop(bandwidth, latency)
        return Wiring(devices, hop, (devices - 1) / devices / bandwidth, hop, NO_HOP, 1, devices, devices)


def wire(
    hosts: Sequence[Host],
    network: Link | None,
    host_of: Mapping[int, int],
    groups: Sequence[Sequence[int]],
) -> tuple[Wiring, ...]:
    """One Wiring per group, where all groups communicate at once. Cost: O(devices)."""
    counts: list[dict[int, int]] = []
    inside: dict[int, int] = {}  # devices of a node that talk within it
    leaving: dict[int, int] = {}  # groups that leave a node
    crossing = 0  # flows through the network, when each group is a ring
    exchanged = 0.0  # of each byte of a device, what crosses the network in an all_to_all, summed over devices
    for group in groups:
        count: dict[int, int] = {}
        for d in group:
            count[host_of[d]] = count.get(host_of[d], 0) + 1
        counts.append(count)
        for host, number in count.items():
            if number > 1:
                inside[host] = inside.get(host, 0) + number
            if len(count) > 1:
                leaving[host] = leaving.get(host, 0) + 1
        if len(count) > 1:
            crossing += len(count)
            exchanged += sum(s * (len(group) - s) for s in count.values()) / len(group)
    between = network or Link(math.inf, 0.0)
    return tuple(_wiring(hosts, between, len(g), c, inside, leaving, crossing, exchanged) for g, c in zip(groups, counts, strict=True))  # fmt: skip


def _wiring(
    hosts: Sequence[Host],
    network: Link,
    devices: int,
    count: dict[int, int],
    inside: dict[int, int],
    leaving: dict[int, int],
    crossing: int,
    exchanged: float,
) -> Wiring:
    within, across, exchange = NO_HOP, NO_HOP, 0.0
    to_all = (devices - 1) / devices  # of each byte of a device, what it sends away
    for host, number in count.items():
        link = hosts[host].link
        if number > 1 and link is not None:
            within = _slower(within, Hop(min(link.bandwidth, link.switch / inside[host]), link.latency))
            exchange = max(exchange, to_all / link.bandwidth, to_all * inside[host] / link.switch)
        if len(count) > 1:
            uplink = hosts[host].uplink
            card = (network.bandwidth if uplink is None else uplink) / leaving[host]
            across = _slower(across, Hop(min(card, network.switch / crossing), network.latency))
            exchange = max(exchange, number * (devices - number) / devices / card, exchanged / network.switch)
    numbers = count.values()
    return Wiring(devices, _slower(within, across), exchange, within, across, len(count), max(numbers), min(numbers))


def _slower(a: Hop, b: Hop) -> Hop:
    return Hop(min(a.bandwidth, b.bandwidth), max(a.latency, b.latency))
