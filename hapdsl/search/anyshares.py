"""A bound that holds for all shares: prices proportional to speed.

With devices priced by their speed, a sharded call costs the same however its class is cut: device d does a part x_d of
F flops in x_d F / v_d seconds, weighted by v_d / V, in total F / V. Replicated calls cost the same under all shares anyway, and a
collective's largest share is at least the fair one. So one more elimination, over the same choices, bounds every program under every cut.
"""

from __future__ import annotations

import numpy as np

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.compute import compute_dtype
from hapdsl.graph.program import Layout, conversion
from hapdsl.graph.training import TrainingGraph
from hapdsl.search.eliminate import TooWide, eliminate
from hapdsl.search.space import Space
from hapdsl.theory.placements import Placement


class _AnyShares(Space):
    """The space with prices that hold for every cut; one component, whose price is 1."""

    def _compute(self, k: int) -> np.ndarray:
        node = self.training.nodes[k]
        speeds = self.cluster.speeds(compute_dtype(node))
        weights = speeds / speeds.sum()
        flops = float(np.asarray(node.instance.flops({})).max())
        costs = []
        for rule in self.rules[k]:
            if rule.index is not None:
                costs.append(flops / float(speeds.sum()))
            else:
                costs.append(float((self.pricer.price(self.instruction(node, rule)).seconds * weights).sum()))
        return np.array([costs])

    def step_seconds(self, name: str, source: Placement, target: Placement) -> float:
        kind = conversion(source, target)
        assert kind is not None
        total = float(self.training.tensors[name].bytes)
        fair = np.full(len(self.cluster), total if kind == "all_reduce" else total / len(self.cluster))
        return self.cheapest(kind, fair, total, joins=self.buckets.joins(name))


def bound_any_shares(training: TrainingGraph, layout: Layout, cluster: Cluster) -> float | None:
    """Seconds that no program of the space takes less than, under any shares (synchronous cost). None where too wide."""
    space = _AnyShares(training, layout, cluster)
    try:
        return eliminate(space.graph, np.ones(1)).bound
    except TooWide:
        return None
