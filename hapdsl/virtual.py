"""Clusters whose nodes are virtual devices: programs over nodes, and over all their devices.

A program of one axis on such a cluster has a share for each node. What is priced, drawn and run is its expansion over nodes × devices
(`hapdsl.check.expand`), every collective by its cheapest method.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hapdsl.check.expand import expand
from hapdsl.cluster import Cluster
from hapdsl.cost.evaluate import Cost, evaluate
from hapdsl.cost.methods import with_cheapest_methods
from hapdsl.cost.pricing import Pricer
from hapdsl.graph.program import Program
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError

if TYPE_CHECKING:
    from hapdsl.search.plan import Candidate, Plan, Progress
    from hapdsl.search.reorder import Written

SCOPE = "nodes as single devices"


def positions(tree: nodes.Program, cluster: Cluster | None) -> int | None:
    """How many devices a written program has on a cluster: nodes where they are virtual, unless its mesh has several axes."""
    if cluster is None:
        return None
    meshes = [s for s in tree.body if isinstance(s, nodes.Mesh)]
    over_all = not cluster.virtual or any(len(mesh.axes) > 1 for mesh in meshes)
    return len(cluster) if over_all else len(cluster.nodes)


def spread(program: Program, cluster: Cluster | None) -> Program:
    """A program over virtual devices as one over all devices; any other as it is."""
    layout = program.layout
    if cluster is None or not cluster.virtual or len(layout.mesh) > 1 or layout.devices != len(cluster.nodes):
        return program
    return with_cheapest_methods(expand(program, cluster.node_speeds()), cluster)


def plan_over(graph: TrainingGraph, cluster: Cluster, *, time_limit: float | None = None, **wishes: Any) -> Plan:
    """The best plan on a cluster, over its nodes where these are virtual devices. `wishes` are those of `hapdsl.search.planner.plan`, and so are the errors.

    Over nodes there are two searches, one that prices lines with what nodes do inside for them and one without, and the better expansion is the plan: what is
    cut for free among nodes may need a message within, and what several lines need within is sent once, which prices of lines don't know.
    """
    from hapdsl.search.astar import FalseBound
    from hapdsl.search.planner import plan

    if not cluster.virtual:
        return plan(graph, cluster, time_limit=time_limit, **wishes)
    started = time.monotonic()
    found = planned(plan(graph, cluster.outer(), time_limit=time_limit, **wishes), cluster)
    left = None if time_limit is None else time_limit - (time.monotonic() - started)
    if (left is not None and left <= 0) or (wishes.get("cancelled") or (lambda: False))():
        return found
    seen = cluster.outer()
    roomy = tuple(
        replace(d, memory=d.memory * len(n.devices)) for d, n in zip(seen.devices, cluster.nodes, strict=True)
    )
    outside = replace(seen, devices=roomy, within=None)  # seen so, a node holds what its devices hold together
    told = wishes.get("progress")

    def progress(news: Progress) -> None:
        """What it does; the best so far is still the first one's, since what this one prices leaves out what nodes do inside."""
        if told is not None:
            told(replace(news, doing=f"{news.doing}, nodes from outside", best_s=found.cost_s, bound_s=None, make=None))

    try:
        second = plan(graph, outside, time_limit=left, **{**wishes, "baselines": False, "progress": progress})
    except FalseBound:
        raise
    except HapError:
        return found
    other = planned(second, cluster)
    better = other if other.cost_s < found.cost_s * (1 - 1e-9) and other.cost.fits else found
    return replace(
        better, baselines=found.baselines, search_s=time.monotonic() - started, nodes=found.nodes + other.nodes
    )


def planned(found: Plan, cluster: Cluster) -> Plan:
    """A plan that was made for `cluster.outer()`, over all devices of `cluster`: its program and baselines expanded and priced there.

    The search priced each line with what nodes do inside for it; what is reported is the expansion's price. The bound is one for nodes whose
    devices share all work without a loss and need no messages among themselves. Where a baseline's expansion is the faster one, it is the plan, with the
    bound for all shares.
    """
    from hapdsl.search.anyshares import bound_under

    program, cost = _in_order(found.program, cluster, found.objective, found.written)
    made = replace(found, program=program, cost=cost, bound_scope=f"{found.bound_scope}; {SCOPE}")
    bound = bound_under(found.program.graph, found.program.layout, cluster.outer(), found.objective)
    made = replace(made, bound_s=min(bound, made.cost_s))  # they may be equal but for rounding
    baselines = {
        name: over_all(c, cluster, found.objective) if c is not None else None for name, c in found.baselines.items()
    }
    best = min(
        (c for c in baselines.values() if c is not None and c.cost.fits),
        key=lambda c: c.seconds(found.objective),
        default=None,
    )
    if best is not None and best.seconds(found.objective) < made.cost_s:
        program = replace(best.program, name=found.program.name)
        every, scope = found.bound_any_shares_s or 0.0, f"all shares; {SCOPE}"
        made = replace(
            made, program=program, cost=best.cost, bound_s=min(every, best.seconds(found.objective)), bound_scope=scope
        )
    return replace(made, baselines=baselines)


def over_all(candidate: Candidate, cluster: Cluster, objective: str) -> Candidate:
    """A program for virtual devices as one over all devices, in its best order; any other as it is."""
    if not cluster.virtual:
        return candidate
    program, cost = _in_order(candidate.program, cluster, objective)
    return replace(candidate, program=program, cost=cost)


def _in_order(
    program: Program, cluster: Cluster, objective: str, written: Written | None = None
) -> tuple[Program, Cost]:
    """The expansion of a program over nodes, put into its best order: what fits over nodes leaves gaps within them."""
    from hapdsl.search.reorder import reordered

    made = spread(program, cluster)
    pricer = Pricer(made.graph, made.layout, cluster)
    made = reordered(made, pricer, objective, written)
    return made, evaluate(made, cluster, pricer)
