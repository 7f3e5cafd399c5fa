"""What a collective costs: latency and bytes over the links of its group (the α–β model), or a measured curve.

With n devices, bandwidth B, latency a, m the largest share and T the whole tensor (both in bytes):

    all_reduce      ring      2 (n-1)/n T / B + 2 (n-1) a     reduce-scatter, then all-gather, in n-1 steps each
    all_gather      padded    (n-1) m / B + (n-1) a           every step moves a block as long as the largest share
    all_gather      grouped   1.35 T / B + n a                one broadcast per share, each of its own length
    reduce_scatter  padded, grouped                           the same backwards
    all_to_all      pairwise  max(n-1, s (n-s)) / n m / B + (n-1) a

The collectives are synchronous: a step lasts as long as its largest block, and a device with an empty share takes part
all the same. n = 1 costs nothing. s is `Link.sharers`: where s devices of the group stand behind one network card, each
of them sends to the n-s devices elsewhere through it. Rings cross a card once, so the others don't depend on s.

Sources: the ring terms are those of Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations
in MPICH" (2005). 1.35 puts the crossover of padded and grouped at 1.8 times the fair share on four devices, where HAP
(arXiv 2401.05965, its measurement at 4 MB on four GPUs of two machines) saw it; gloo over 100 Mbit/s crosses at 1.6
to 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from hapdsl.cluster.hardware import Cluster, Link
from hapdsl.graph.program import METHODS

GROUPED = 1.35


def collective_seconds(
    kind: str,
    method: str | None,
    shares: ArrayLike,
    total: float,
    cluster: Cluster,
    devices: Sequence[int] | None = None,
    link: Link | None = None,
) -> float:
    """Seconds of one message.

    `shares` holds bytes per device of the group, in its order: of the source for all_gather, of the target for
    reduce_scatter, of the larger of both for all_to_all; all_reduce doesn't read it. `total` is the whole tensor in
    bytes. A message of several operands passes the sums. `devices` is the group (all devices where left out), `link`
    its link where other groups communicate at the same time (`Cluster.links`). `method` None means the first one.
    """
    group = range(len(cluster)) if devices is None else devices
    n = len(group)
    if n <= 1:
        return 0.0
    method = METHODS[kind][0] if method is None else method
    largest = float(np.max(shares)) if kind != "all_reduce" else 0.0
    if n == len(cluster):  # a curve was measured with all devices, so it says nothing about fewer
        curve = cluster.measured.get(f"{kind}_{method}")
        if curve is not None:
            return curve.seconds(_moved(kind, method, largest, total, n))
        curve = cluster.measured.get(kind)
        if curve is not None:  # of all methods; shares that differ count as if each were the largest
            return curve.seconds(_moved(kind, "", largest, total, n))
    return link_seconds(kind, method, largest, total, n, cluster.link(group) if link is None else link)


def link_seconds(kind: str, method: str, largest: float, total: float, n: int, link: Link) -> float:
    """The formulas of this module, for `n` devices over one link."""
    match kind, method:
        case "all_reduce", _:
            return 2 * (n - 1) / n * total / link.bandwidth + 2 * (n - 1) * link.latency
        case "all_gather" | "reduce_scatter", "grouped":
            return GROUPED * total / link.bandwidth + n * link.latency
        case "all_gather" | "reduce_scatter", _:
            return (n - 1) * largest / link.bandwidth + (n - 1) * link.latency
        case "all_to_all", _:
            blocks = max(n - 1, link.sharers * (n - link.sharers))
            return blocks / n * largest / link.bandwidth + (n - 1) * link.latency
    raise ValueError(f"unknown collective {kind} ({method})")


def _moved(kind: str, method: str, largest: float, total: float, n: int) -> float:
    """The size a curve is asked at: the whole tensor, as long as the method makes it."""
    return total if kind == "all_reduce" or method == "grouped" else n * largest


def best_method(
    kind: str,
    shares: ArrayLike,
    total: float,
    cluster: Cluster,
    devices: Sequence[int] | None = None,
    link: Link | None = None,
) -> tuple[str, float]:
    """The cheapest method and its seconds; the first listed one wins a tie. Arguments as in `collective_seconds`."""
    priced = [(collective_seconds(kind, m, shares, total, cluster, devices, link), m) for m in METHODS[kind]]
    seconds, method = min(priced, key=lambda p: p[0])
    return method, seconds
