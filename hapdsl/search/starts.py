"""The shares that a search begins with."""

from __future__ import annotations

import numpy as np

from hapdsl.cluster.hardware import Cluster
from hapdsl.graph.training import TrainingGraph
from hapdsl.search.pairs import shares_key
from hapdsl.search.shares import Shares, proportional


def starts(training: TrainingGraph, cluster: Cluster, fixed: Shares) -> list[Shares]:
    """By speed; the batch by speed and the rest even; even; by memory; without the slowest kind of device. `fixed` classes keep their shares."""
    speeds, batch = cluster.speeds("f32"), training.batch
    by_speed, even = proportional(training, speeds), proportional(training, np.ones(len(cluster)))
    wanted = [by_speed, {**even, batch: by_speed[batch]} if batch is not None else even, even]
    wanted.append(proportional(training, np.minimum(cluster.memories, 1e18)))
    if len(cluster.kinds()) > 1 and speeds.max() > speeds.min():
        wanted.append(proportional(training, np.where(speeds > speeds.min(), speeds, 0.0)))
    found: dict[tuple[object, ...], Shares] = {}
    for each in wanted:
        shares = {**each, **fixed}
        found.setdefault(shares_key(shares), shares)
    return list(found.values())
