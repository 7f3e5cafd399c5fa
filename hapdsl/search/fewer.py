"""A plan on all devices, or on fewer where that is faster: each set of devices is a problem of its own.

A share of zero is not the same: such a device still joins every message and repeats what is replicated.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hapdsl.cluster.fewer import Fewer
from hapdsl.cluster.hardware import Cluster
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.diagnostics import HapError
from hapdsl.search.astar import FalseBound
from hapdsl.search.plan import Plan
from hapdsl.search.planner import plan
from hapdsl.search.spaces import floor


def plan_or_fewer(
    training: TrainingGraph,
    cluster: Cluster,
    smaller: Iterable[Fewer],
    *,
    time_limit: float | None = None,
    **wishes: Any,
) -> tuple[Plan, Fewer | None]:
    """The best plan, and the smaller cluster that it is for (None: for all devices). `wishes` are those of `plan`.

    Raises HapError as `plan` does: what doesn't fit on all devices doesn't fit on fewer.
    """
    started = time.monotonic()
    found = plan(training, cluster, time_limit=time_limit, **wishes)
    left = None if time_limit is None else time_limit - (time.monotonic() - started)
    return or_fewer(training, found, smaller, time_limit=left, **wishes)


def or_fewer(
    training: TrainingGraph, found: Plan, smaller: Iterable[Fewer], *, time_limit: float | None = None, **wishes: Any
) -> tuple[Plan, Fewer | None]:
    """A plan for all devices, or a better one for fewer, with the baselines of the first.

    A smaller cluster whose devices together couldn't do the work in the time of the plan at hand isn't searched.
    """
    started = time.monotonic()
    on: Fewer | None = None
    for option in smaller:
        left = None if time_limit is None else time_limit - (time.monotonic() - started)
        if (left is not None and left <= 0) or (wishes.get("cancelled") or (lambda: False))():
            break
        if floor(training, option.cluster) >= found.cost_s:
            continue
        quick = {**wishes, "baselines": False, "progress": None}
        try:
            other = plan(training, option.cluster, time_limit=left, **quick)
        except FalseBound:
            raise
        except HapError:
            continue  # what doesn't fit there is no better
        if other.cost_s < found.cost_s * (1 - 1e-9):
            found, on = (
                replace(other, baselines=found.baselines, search_s=found.search_s + time.monotonic() - started),
                option,
            )
    return found, on
