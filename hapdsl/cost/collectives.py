"""What a collective costs: latency and bytes over the links of its group (the α–β model), or a measured curve.

With n devices, m the largest share and T the whole tensor (both in bytes); B and a are bandwidth and latency of the slowest hop
of a ring through all of them; of the rings within nodes Bi and ai, of a ring with one device a node Bx and ax; k nodes with g
devices at most and c at least in each, r = g/c rounded up; L(n) the least whole number of doublings that reach n:

    all_reduce      ring          2 (n-1)/n T/B + 2 (n-1) a       reduce_scatter, then all_gather, in n-1 steps each
                    tree          2 L(g) (T/Bi + ai) + 2 L(k) (T/Bx + ax)
                                                                  up and down a binomial tree, whole tensors; short messages
                    hierarchical  2 (g-1) (T/c / Bi + ai) + 2 (k-1) (T/k / Bx + ax)
                                                                  scattered within nodes, c rings across them, gathered within
    all_gather      padded        (n-1) m/B + (n-1) a             every step moves a block as long as the largest share
                    grouped       T/B + n L(n) a                  one broadcast per share, each of its own length
                    hierarchical  (k-1) (g m/Bx + ax) + (g-1) (k m/Bi + ai)
                                                                  where g = c: across nodes, then within; padded, too
                                  (g-1) (m + (k-1) g/c m)/Bi + 2 (g-1) ai + (k-1) (g m/Bx + ax)
                                                                  else: within, c parts of each node's block across, within
    reduce_scatter  padded, grouped, hierarchical                 the same backwards
    all_to_all      pairwise      m E + (n-1) a                   E: seconds per byte on the busiest of links, cards, switches
                    hierarchical  (g-1) (m/g / Bi + ai) + (k-1) (g m/k / Bx + ax)
                                                                  where g = c: what is for the j-th devices of all nodes to the
                                                                  node's own j-th, who then talks to these alone
                                  (g-1) ((1 + (k-1) r) m/n / Bi + ai) + (k-1) (g^2 m/n / Bx + ax) + (r-1) ((k-1) g m/n / Bi + ai)
                                                                  else: c such devices in each node, each for r at most, to whom
                                                                  they hand on what has come

The collectives are synchronous: a step lasts as long as its largest block, and a device with an empty share takes part
all the same. n = 1 costs nothing; with one node, or one device in each, hierarchical is the ring. Whatever flows at once through
one card or switch shares it (`hapdsl.cluster.wiring`).

What was measured goes before what a formula says: where any method of a collective has a curve, none without one is chosen, nor priced
below the cheapest that has.

A price depends on the shares through m and T alone, and by one method is a latency plus seconds per byte of both; the cheapest
is the least of such lines. The search relies on that.

Sources: ring, tree and pairwise are those of Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations
in MPICH" (2005); two levels as in MagPIe (Kielmann et al., 1999) and BlueConnect (Cho et al., 2019), of all_to_all as in Träff, Rougier, "MPI
Collectives and Datatypes for Hierarchical All-to-all Communication" (2014), and in Tutel (Hwang et al., 2023). The broadcasts of `grouped` are
pipelined, so each costs its bytes once and a tree's depth in latencies; with the bandwidth and latency of HAP's padded all_gathers
(arXiv 2401.05965: 4 MB on four GPUs of two machines) it crosses them at .45 of the tensor on one device, where the paper saw it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from hapdsl.cluster.hardware import Cluster
from hapdsl.cluster.wiring import Wiring
from hapdsl.graph.program import METHODS


def collective_seconds(
    kind: str,
    method: str | None,
    shares: ArrayLike,
    total: float,
    cluster: Cluster,
    devices: Sequence[int] | None = None,
    wiring: Wiring | None = None,
) -> float:
    """Seconds of one message.

    `shares` holds bytes per device of the group, in its order: of the source for all_gather, of the target for
    reduce_scatter, of the larger of both for all_to_all; all_reduce doesn't read it. `total` is the whole tensor in
    bytes. A message of several operands passes the sums. `devices` is the group (all devices where left out), `wiring` what
    joins it where other groups communicate at the same time (`Cluster.links`). `method` None means the first one.
    """
    group = range(len(cluster)) if devices is None else devices
    n = len(group)
    if n <= 1:
        return 0.0
    joined = cluster.link(group) if wiring is None else wiring
    method = _plainly(kind, METHODS[kind][0] if method is None else method, joined)
    largest = float(np.max(shares)) if kind != "all_reduce" else 0.0
    if cluster.measured and n == len(cluster):  # a curve was measured with all devices, so it says nothing about fewer
        curves = {m: _measured(kind, _plainly(kind, m, joined), largest, total, cluster) for m in METHODS[kind]}
        known = {m: seconds for m, seconds in curves.items() if seconds is not None}
        if method in known:
            return known[method]
        return max(wired_seconds(kind, method, largest, total, joined), min(known.values(), default=0.0))
    return wired_seconds(kind, method, largest, total, joined)


def _measured(kind: str, method: str, largest: float, total: float, cluster: Cluster) -> float | None:
    """What a curve of this method says of all devices, or one of the collective as such; None where there is none."""
    n = len(cluster)
    curve = cluster.measured.get(f"{kind}_{method}")
    if curve is not None:
        return curve.seconds(_moved(kind, method, largest, total, n), n * largest / total if total and largest else 1.0)
    curve = cluster.measured.get(kind)  # of all methods; shares that differ count as if each were the largest
    return None if curve is None else curve.seconds(_moved(kind, "", largest, total, n))


def wired_seconds(kind: str, method: str, largest: float, total: float, wiring: Wiring) -> float:
    """The formulas of this module. Raises ValueError for another collective or method."""
    n, ring = wiring.devices, wiring.ring
    method = _plainly(kind, method, wiring)
    match kind, method:
        case "all_reduce", "ring":
            return 2 * (n - 1) / n * total / ring.bandwidth + 2 * (n - 1) * ring.latency
        case "all_reduce", "tree":
            hops = ((wiring.most, wiring.inside), (wiring.nodes, wiring.across))
            return sum(2 * doublings(count) * (total / hop.bandwidth + hop.latency) for count, hop in hops)
        case "all_reduce", "hierarchical":
            return 2 * _scattered(total / wiring.least, total / wiring.nodes, wiring)
        case (("all_gather" | "reduce_scatter"), "padded"):
            return (n - 1) * largest / ring.bandwidth + (n - 1) * ring.latency
        case (("all_gather" | "reduce_scatter"), "grouped"):
            return total / ring.bandwidth + n * doublings(n) * ring.latency
        case (("all_gather" | "reduce_scatter"), "hierarchical"):
            k, g, c = wiring.nodes, wiring.most, wiring.least
            if g == c:
                return _scattered(k * largest, g * largest, wiring)
            inner = largest * (1 + (k - 1) * g / c)
            return _scattered(inner, g * largest, wiring) + (g - 1) * wiring.inside.latency
        case "all_to_all", "pairwise":
            return largest * wiring.exchange + (n - 1) * ring.latency
        case "all_to_all", "hierarchical":
            k, g = wiring.nodes, wiring.most
            served = -(-g // wiring.least)
            handed_on = (k - 1) * g * largest / n / wiring.inside.bandwidth + wiring.inside.latency
            return (
                _scattered((1 + (k - 1) * served) * largest / n, g * g * largest / n, wiring) + (served - 1) * handed_on
            )
    raise ValueError(f"unknown collective {kind} ({method})")


def _plainly(kind: str, method: str, wiring: Wiring) -> str:
    """The method that is really taken: on one node, or with one device in each, there are no levels. What was measured of it holds then, too."""
    return METHODS[kind][0] if method == "hierarchical" and (wiring.nodes == 1 or wiring.most == 1) else method


def _scattered(inner: float, outer: float, wiring: Wiring) -> float:
    """Seconds of rings on both levels: blocks of `inner` bytes within the nodes, `outer` bytes a node and step across them."""
    inside, across = wiring.inside, wiring.across
    within = (wiring.most - 1) * (inner / inside.bandwidth + inside.latency)
    return within + (wiring.nodes - 1) * (outer / across.bandwidth + across.latency)


def doublings(n: int) -> int:
    """How often 1 is doubled until it reaches n."""
    return (n - 1).bit_length()


def _moved(kind: str, method: str, largest: float, total: float, n: int) -> float:
    """The size a curve is asked at: the whole tensor, as long as the method makes it."""
    return total if kind == "all_reduce" or method == "grouped" else n * largest


def candidates(kind: str, cluster: Cluster, devices: int) -> tuple[str, ...]:
    """The methods that are chosen among for a group of so many devices: those that were measured, where any was, else all."""
    methods = METHODS[kind]
    if not cluster.measured or kind in cluster.measured:
        return methods
    return tuple(m for m in methods if is_measured(kind, m, cluster, devices)) or methods


def is_measured(kind: str, method: str | None, cluster: Cluster, devices: int) -> bool:
    """Does a curve say what a message of so many devices costs by this method (None: the first one)?"""
    if not cluster.measured or devices != len(cluster):
        return False
    if kind in cluster.measured:
        return True
    plain = _plainly(kind, METHODS[kind][0] if method is None else method, cluster.link(range(devices)))
    return f"{kind}_{plain}" in cluster.measured


def best_method(
    kind: str,
    shares: ArrayLike,
    total: float,
    cluster: Cluster,
    devices: Sequence[int] | None = None,
    wiring: Wiring | None = None,
) -> tuple[str, float]:
    """The cheapest of `candidates` and its seconds; the first listed one wins a tie. Arguments as in `collective_seconds`."""
    methods = candidates(kind, cluster, len(cluster) if devices is None else len(devices))
    priced = [(collective_seconds(kind, m, shares, total, cluster, devices, wiring), m) for m in methods]
    seconds, method = min(priced, key=lambda p: p[0])
    return method, seconds
