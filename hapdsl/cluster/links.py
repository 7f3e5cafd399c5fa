"""Links as a cluster declares them, and the nodes that they join."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """`over { bandwidth = …, latency = …, switch = … }`.

    `bandwidth` (bytes/s each way) is that of one device within a node, of one node's card in the network; `latency` is in
    seconds; `switch` are the bytes/s that all of them together get through (infinite: full bisection).
    """

    bandwidth: float
    latency: float
    switch: float = math.inf


@dataclass(frozen=True, slots=True)
class Host:
    """One node: the numbers of its devices, the link that joins them (None where it has a single device), and the bytes/s of
    its card to the network (None where it is the network's)."""

    name: str
    devices: tuple[int, ...]
    link: Link | None = None
    uplink: float | None = None
