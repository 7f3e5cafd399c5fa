"""A bound that holds for all shares: prices proportional to speed.

With devices weighted by their speed, a sharded call costs the same however its class is cut: device d does a part x_d of
F flops in x_d F / v_d seconds, weighted by v_d / V, in total F / V. Replicated calls cost the same under all shares
anyway, and a collective's largest share is at least the fair one. So one more elimination, over the same choices, bounds
every program under every cut.

The weights w_d must be the same for all calls, or they would bound no stage (a stage lasts as long as one device, not as
each call's slowest). So they follow the speeds of the dtype with most of the work; a call of another dtype, with speeds
u_d, costs at least F min_d w_d / u_d. In the same way its bytes, each of which some device moves at b_d bytes/s, cost at
least their sum times min_d w_d / b_d.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hapdsl.cluster.hardware import Cluster, Interference
from hapdsl.cost.compute import compute_dtype
from hapdsl.graph.program import Layout
from hapdsl.graph.training import Node, TrainingGraph
from hapdsl.search.baselines import MESSAGES
from hapdsl.search.conversions import Conversions, Sizes
from hapdsl.search.drawn import instruction
from hapdsl.search.eliminate import TooWide, eliminate
from hapdsl.search.prices import cutting_planes
from hapdsl.search.space import Space, Table
from hapdsl.search.structure import Structure
from hapdsl.theory.dtypes import DTYPE_BYTES
from hapdsl.theory.placements import Placement

LONGEST = 1_000_000  # an index longer than this isn't looked at length by length


class _FairShares(Conversions):
    """Every conversion at the least its largest share can be."""

    def sizes(self, name: str, kind: str, source: Placement, target: Placement) -> tuple[Sizes, float]:
        total = float(self.training.tensors[name].bytes)
        return np.full(len(self.cluster), total if kind == "all_reduce" else total / len(self.cluster)), total


class _AnyShares(Space):
    """The space with prices that hold for every cut; one component, whose price is 1."""

    def make_conversions(self) -> Conversions:
        self._weights = weights(self.training, self.cluster)
        return _FairShares(self.structure, self.layout, self.cluster, self.pricer)

    def alike(self) -> list[list[int]]:
        return [list(range(len(self.cluster)))]

    def compute(self, k: int) -> Table:
        node = self.training.nodes[k]
        tensors = self.training.tensors
        traffic = float(sum(tensors[n].bytes for n in (*node.inputs, *node.outputs)))
        for at, elements in node.instance.reads({}).items():  # cut in any way, the pieces that are read come to no less
            table = tensors[node.inputs[at]]
            traffic += min(0.0, float(elements) * DTYPE_BYTES[table.dtype] - table.bytes)
        per_byte = float((self._weights / self.cluster.bandwidths).min())
        per_flop = float((self._weights / self.cluster.speeds(compute_dtype(node))).min())
        costs = []
        for rule in self.rules[k]:
            if rule.index is None:  # every device does all of it, whatever the shares
                costs.append(float((self.pricer.price(instruction(node, rule)).seconds * self._weights).sum()))
                continue
            once = max(least_flops(node, rule.index) * per_flop, traffic * per_byte)
            costs.append(once * self.training.times(node.section))
        return np.array([costs])


def weights(training: TrainingGraph, cluster: Cluster) -> Table:
    """One weight per device, adding up to 1: its speed for the dtype that most of the model's flops are in."""
    work: dict[str, float] = {"f32": 0.0}
    for node in training.nodes:
        dtype = compute_dtype(node)
        flops = training.times(node.section) * float(np.max(node.instance.flops({})))
        work[dtype] = work.get(dtype, 0.0) + flops
    speeds = cluster.speeds(max(work, key=lambda d: work[d]))
    return np.asarray(speeds / speeds.sum())


def least_flops(node: Node, index: str) -> float:
    """What all devices together do at least when `index` is cut: extent times the least flops per element of any piece.

    For a declaration that is linear in the index that is the whole; others (a square, say) make pieces cheaper. Cost:
    O(extent), nothing for LONGEST and more, which bounds nothing.
    """
    extent = node.instance.extents[index]
    if extent > LONGEST:
        return 0.0
    lengths = np.arange(1, extent + 1)
    return float((np.asarray(node.instance.flops({index: lengths})) / lengths).min() * extent)


def bound_any_shares(
    training: TrainingGraph, layout: Layout, cluster: Cluster, structure: Structure | None = None
) -> float | None:
    """Seconds that no program of the space takes less than, under any shares (synchronous cost). None where too wide.

    `layout` only says how many devices there are. Of virtual devices no messages within are counted. What was measured with uneven shares counts
    as the least of all that was measured: uneven ones may take less time than even ones.
    """
    measured = {kind: replace(curve, tables=()) for kind, curve in cluster.measured.items()}
    space = _AnyShares(training, layout, replace(outside(cluster), measured=measured), structure=structure)
    try:
        return eliminate(space.graph, np.ones(1)).bound
    except TooWide:
        return None


def outside(cluster: Cluster) -> Cluster:
    """Virtual devices by themselves: without what they are made of, and with the least launch within. A call may be launched on one device of a node alone, and
    where calls were measured their launch is part of that."""
    whole = cluster.within
    if whole is None:
        return cluster
    launches = [
        min(0.0 if d.curves else d.launch for d in map(whole.devices.__getitem__, n.devices)) for n in whole.nodes
    ]
    devices = tuple(replace(d, launch=least) for d, least in zip(cluster.devices, launches, strict=True))
    return replace(cluster, devices=devices, within=None)


def bound_under(training: TrainingGraph, layout: Layout, cluster: Cluster, objective: str = "sync") -> float:
    """Seconds that no program takes less than under one layout; of virtual devices no messages within are counted, nor what
    messages slow down or keep waiting, which is another matter for each of the devices within. 0 where too wide."""
    structure = Structure(training, None, MESSAGES)
    seen = outside(cluster)
    seen = replace(seen, devices=tuple(replace(d, interference=Interference()) for d in seen.devices))
    space = Space(training, layout, seen, None, objective, structure, serial=False)
    try:
        return cutting_planes(space.graph).bound
    except TooWide:
        return 0.0
