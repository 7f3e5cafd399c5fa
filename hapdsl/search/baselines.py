"""What people run today, as programs of the same space: data parallelism, ZeRO, tensor parallelism.

Each is the cheapest program within a restriction, under shares that are even or proportional to speed; so a baseline is
never worse than its textbook form.
"""

from __future__ import annotations

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.program import Layout, Program
from hapdsl.graph.training import Node, TrainingGraph
from hapdsl.search.astar import Limits, best_first
from hapdsl.search.eliminate import TooWide
from hapdsl.search.plan import Candidate
from hapdsl.search.prices import cutting_planes
from hapdsl.search.restriction import Restriction
from hapdsl.search.schedule import Scheduler
from hapdsl.search.shares import layout_of, proportional
from hapdsl.search.space import Space
from hapdsl.theory.placements import Placement
from hapdsl.theory.rules import Rule


def batch_class(training: TrainingGraph) -> str | None:
    """The class of the first dim of the first input: the batch."""
    for tensor in training.of_kind("input"):
        if tensor.classes and tensor.classes[0] is not None and training.classes[tensor.classes[0]].units > 1:
            return tensor.classes[0]
    return None


def _class_of_rule(training: TrainingGraph, node: Node, rule: Rule) -> str | None:
    for names, placements in ((node.inputs, rule.inputs), (node.outputs, rule.outputs)):
        for name, p in zip(names, placements, strict=True):
            if p.kind == "S":
                return training.tensors[name].classes[p.dim]
    return None


def data_parallel(training: TrainingGraph, sharded_state: bool) -> Restriction | None:
    """Every call that can be cut along the batch is; parameters are replicated, or all sharded (ZeRO)."""
    batch = batch_class(training)
    if batch is None:
        return None
    by_batch = {
        id(node): any(_class_of_rule(training, node, r) == batch and r.index is not None for r in node.rules)
        for node in training.nodes
        if node.section != "update"
    }

    def allow(node: Node, rule: Rule) -> bool:
        if node.section == "update":
            can_shard = bool(training.shardable(node.inputs[0]))
            return (rule.index is not None) == (sharded_state and can_shard)
        cut = _class_of_rule(training, node, rule)
        return cut == batch if by_batch[id(node)] else cut is None

    def allow_held(param: str, placement: Placement) -> bool:
        return (placement.kind == "S") == (sharded_state and bool(training.shardable(param)))

    return Restriction(allow, allow_held)


def tensor_parallel(training: TrainingGraph) -> Restriction | None:
    """Nothing is cut along the batch."""
    batch = batch_class(training)
    if batch is None:
        return None
    return Restriction(lambda node, rule: _class_of_rule(training, node, rule) != batch)


def baselines(training: TrainingGraph, cluster: Cluster, objective: str = "sync") -> dict[str, Candidate | None]:
    """Every baseline's best program and its cost; None where it doesn't exist or doesn't fit into memory."""
    n = len(cluster)
    even = proportional(training, [1.0] * n)
    by_speed = proportional(training, cluster.speeds("f32"))
    plain, zero, tensor = data_parallel(training, False), data_parallel(training, True), tensor_parallel(training)
    wanted = (
        ("dp_even", plain, (even,)),
        ("dp_proportional", plain, (by_speed,)),
        ("zero", zero, (even, by_speed)),
        ("tensor_parallel", tensor, (even, by_speed)),
    )
    found: dict[str, Candidate | None] = {}
    for name, restriction, cuts in wanted:
        options = [] if restriction is None else [_cheapest(training, cluster, layout_of(s, n), restriction, name, objective) for s in cuts]
        fitting = [c for c in options if c is not None and c.cost.fits]
        found[name] = min(fitting, key=lambda c: _seconds(c, objective), default=None)
    return found


def _seconds(candidate: Candidate, objective: str) -> float:
    return candidate.cost.sync_s if objective == "sync" else candidate.cost.overlap_s


def _cheapest(
    training: TrainingGraph, cluster: Cluster, layout: Layout, restriction: Restriction, name: str, objective: str
) -> Candidate | None:
    space = Space(training, layout, cluster, restriction, objective)
    scheduler = Scheduler(space.conversions)
    try:
        pricing = cutting_planes(space.graph, iterations=3)
    except TooWide:
        return None
    if pricing.elimination is None or not pricing.elimination.feasible:
        return None

    def candidate(assignment: tuple[int, ...]) -> Candidate:
        choice = space.choice(assignment)
        program: Program = scheduler.program(choice, name)
        return Candidate(program, evaluate(program, cluster, space.pricer), choice)

    def price(assignment: tuple[int, ...]) -> float:
        return _seconds(candidate(assignment), objective)

    result = best_first(pricing.elimination, price, gap=0.01, limits=Limits(leaves=20))
    return candidate(result.assignment) if result.assignment is not None else None

