"""Which collectives may share a message, and what they cost at least when they do.

Gradients on their way to an update, parameters on their way to their first reader and updated parameters on their way
back are small and many; the scheduler groups them into buckets of BUCKET bytes, so that a plan of many small parameters
is not a plan of many small messages.

A bound can't know the groups. It splits the price of a message into what one more byte costs at least (`light`) and
what a message costs however small it is (`floor`): any message takes at least its floor + the sum of the light prices of its operands.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hapdsl.cluster.hardware import Cluster, Curve, Link
from hapdsl.cost.collectives import collective_seconds
from hapdsl.graph.program import COLLECTIVES, METHODS
from hapdsl.graph.training import TrainingGraph

BUCKET = 25 * 2**20  # bytes; a full bucket is sent

# Shared messages that a bound may count, each at most once: what moves, and the kinds of collective that count. Gradients,
# parameters and updated parameters travel at different times, so they never share a message.
SHARED: dict[str, tuple[str, tuple[str, ...]]] = {
    "all_reduce of gradients": ("gradients", ("all_reduce",)),
    "reduce_scatter of gradients": ("gradients", ("reduce_scatter",)),
    "all_gather of parameters": ("params", ("all_gather",)),
    "updated parameters": ("updated", COLLECTIVES),
}


class Buckets:
    """Knows for each tensor whether its collectives may be grouped with others."""

    def __init__(self, training: TrainingGraph) -> None:
        self.gradients = {
            name
            for name, k in training.producer.items()
            if training.nodes[k].section != "update"
            and training.readers[name]
            and all(training.nodes[r].section == "update" for r in training.readers[name])
        }
        self.params = {t.name for t in training.of_kind("param", "frozen", "buffer")}
        self.updated = {new for old, new in training.updates.items() if old in self.params}
        self._joining = self.gradients | self.params | self.updated
        # the least that a message with such operands can carry
        self.smallest = min((training.tensors[n].bytes for n in self._joining), default=0)

    def joins(self, tensor: str) -> bool:
        return tensor in self._joining


class Split:
    """The prices of a cluster's messages as a floor and a price per byte.

    `smallest` is the least number of bytes (whole tensors) that any message holds. Formulas split into latency and
    bandwidth. A measured curve f splits into a = max(0, f(0)), the line through its first two points carried back to 0,
    and the largest r with a + r b <= f(b) for all b >= smallest: f is made of straight lines, so that is decided at
    its corners, at `smallest`, and by the slope of its last line.
    """

    def __init__(self, cluster: Cluster, smallest: float) -> None:
        self.cluster = cluster
        self.smallest = smallest
        self.light = replace(
            cluster,
            nodes=tuple(replace(n, link=_weightless(n.link)) for n in cluster.nodes),
            network=_weightless(cluster.network),
            measured={kind: self._rate(curve) for kind, curve in cluster.measured.items()},
        )

    def floor(self, shared: str) -> float:
        """Seconds that any message of one of SHARED takes beside its bytes: the least over kinds and methods."""
        if len(self.cluster) < 2:
            return 0.0
        measured = self.cluster.measured
        found = []
        for kind, method in [(k, m) for k in SHARED[shared][1] for m in METHODS[k]]:
            curve = measured.get(f"{kind}_{method}") or measured.get(kind)
            if curve is not None:
                found.append(_intercept(curve))
            else:
                found.append(collective_seconds(kind, method, np.zeros(len(self.cluster)), 0.0, self.cluster))
        return min(found)

    def _rate(self, curve: Curve) -> Curve:
        base = _intercept(curve)
        (b0, s0), (b1, s1) = curve.points[-2:]
        sizes = [b for b, _ in curve.points if b >= self.smallest] + [self.smallest]
        slopes = [(curve.seconds(b) - base) / b for b in sizes if b > 0]
        rate = max(0.0, min([(s1 - s0) / (b1 - b0), *slopes]))
        return Curve(((0.0, 0.0), (1.0, rate)))


def _weightless(link: Link | None) -> Link | None:
    return None if link is None else replace(link, latency=0.0)


def _intercept(curve: Curve) -> float:
    (b0, s0), (b1, s1) = curve.points[:2]
    return max(0.0, s0 - b0 * (s1 - s0) / (b1 - b0))
