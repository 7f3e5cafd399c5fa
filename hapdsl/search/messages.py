"""Which collectives may share a message, and what they cost at least when they do.

Gradients on their way to an update, parameters on their way to their first reader and updated parameters on their way back are
small and many; the scheduler groups them into buckets of BUCKET bytes, so that a plan of many small parameters
is not a plan of many small messages.
"""

from __future__ import annotations

from dataclasses import replace

from hapdsl.cluster.hardware import Cluster, Curve, Link
from hapdsl.graph.training import TrainingGraph

BUCKET = 25 * 2**20  # bytes; a full bucket is sent


class Buckets:
    """Knows for each tensor whether its collectives may be grouped with others."""

    def __init__(self, training: TrainingGraph) -> None:
        self.gradients = {
            name
            for name, readers in training.readers.items()
            if readers and name in training.producer and all(training.nodes[k].section == "update" for k in readers)
        }
        self.params = {t.name for t in training.of_kind("param", "frozen", "buffer")}
        self.updated = {new for old, new in training.updates.items() if old in self.params}

    def joins(self, tensor: str) -> bool:
        return tensor in self.gradients or tensor in self.params or tensor in self.updated


def frictionless(cluster: Cluster) -> Cluster:
    """The cluster with no latency: what one more operand adds to a message at least."""

    def light(link: Link | None) -> Link | None:
        return None if link is None else replace(link, latency=0.0)

    return replace(
        cluster,
        nodes=tuple(replace(n, link=light(n.link)) for n in cluster.nodes),
        network=light(cluster.network),
        measured={kind: _rate(curve) for kind, curve in cluster.measured.items()},
    )


def _rate(curve: Curve) -> Curve:
    """A line through the origin at the least seconds per byte of a curve."""
    rates = [s / b for b, s in curve.points if b > 0]
    (b0, s0), (b1, s1) = curve.points[-2:]
    rate = max(0.0, min(*rates, (s1 - s0) / (b1 - b0)))
    return Curve(((0.0, 0.0), (1.0, rate)))
