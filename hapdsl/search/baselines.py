"""What people run today, as programs of the same space: data parallelism, ZeRO, tensor parallelism, expert parallelism.

Each is the cheapest program within a restriction, under shares that are even or proportional to speed, its lines in the order that
`reorder` finds, like a plan's; so a baseline is never worse than its textbook form.
"""

from __future__ import annotations

import math
from dataclasses import replace

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.evaluate import evaluate
from hapdsl.cost.numbers import Numbers
from hapdsl.cost.pricing import Pricer
from hapdsl.graph.training import Node, TrainingGraph
from hapdsl.search.astar import Limits, best_first
from hapdsl.search.drawn import Drawn
from hapdsl.search.eliminate import TooWide
from hapdsl.search.milp import by_milp
from hapdsl.search.plan import BASELINES, Candidate
from hapdsl.search.prices import cutting_planes
from hapdsl.search.reorder import reordered, without_unread
from hapdsl.search.restriction import Restriction
from hapdsl.search.schedule import Scheduler
from hapdsl.search.shares import Shares, layout_of, proportional
from hapdsl.search.space import Space
from hapdsl.search.structure import Structure
from hapdsl.theory.placements import Placement
from hapdsl.theory.rules import Rule

LEAVES = 20  # true evaluations per baseline and shares at most
WORK = 6_000  # calls to schedule per baseline and shares
GAP = 0.01
SECONDS = 5.0  # of HiGHS per baseline and shares, where tables would be too wide
MESSAGES = ("all_reduce of gradients", "reduce_scatter of gradients")  # those whose latency guides


def _class_of_rule(training: TrainingGraph, node: Node, rule: Rule) -> str | None:
    for names, placements in ((node.inputs, rule.inputs), (node.outputs, rule.outputs)):
        for name, p in zip(names, placements, strict=True):
            if p.kind == "S":
                return training.tensors[name].classes[p.dim]
    return None


def data_parallel(training: TrainingGraph, sharded_state: bool) -> Restriction | None:
    """Every call that can be cut along the batch is; parameters are replicated, or all sharded (ZeRO)."""
    batch = training.batch
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
    batch = training.batch
    if batch is None:
        return None
    return Restriction(lambda node, rule: _class_of_rule(training, node, rule) != batch)


def expert_classes(training: TrainingGraph) -> set[str]:
    """The classes of dims that stand for experts: a call that sums something has them in a parameter of its own, in what it reads beside, and in what it makes."""
    found = set()
    for node in training.nodes:
        kinds = [training.tensors[n].kind for n in node.inputs]
        sums = any(r.outputs[0].kind == "P" and any(p.kind == "S" for p in r.inputs) for r in node.rules)
        if node.section == "forward" and sums and "param" in kinds and set(kinds) != {"param"}:
            found |= {_class_of_rule(training, node, r) for r in node.rules if _throughout(r)}
    return {c for c in found if c is not None and c != training.batch}


def _throughout(rule: Rule) -> bool:
    return all(p.kind == "S" for p in (*rule.inputs, *rule.outputs))


def expert_parallel(training: TrainingGraph) -> Restriction | None:
    """Data parallelism, but every expert is on one device: its parameters and state lie there, and tokens travel (GShard, DeepSpeed-MoE).

    None for a model without experts.
    """
    plain, classes = data_parallel(training, False), expert_classes(training)
    if plain is None or not classes:
        return None
    own = {n for n, t in training.tensors.items() if t.kind == "param" and classes & set(t.classes)}
    cut = {
        id(n)
        for n in training.nodes
        if any(_throughout(r) and _class_of_rule(training, n, r) in classes for r in n.rules)
    }
    own = {p for p in own if any(id(n) in cut and p in n.inputs and n.section == "forward" for n in training.nodes)}

    def allow(node: Node, rule: Rule) -> bool:
        by_expert = _class_of_rule(training, node, rule) in classes
        if node.section == "update" and node.inputs[0] in own:
            return by_expert
        return plain.allow(node, rule) or (by_expert and _throughout(rule))

    def allow_held(param: str, placement: Placement) -> bool:
        if param in own:
            return placement.kind == "S" and training.tensors[param].classes[placement.dim] in classes
        return plain.allow_held(param, placement)

    return Restriction(allow, allow_held)


def baselines(
    training: TrainingGraph, cluster: Cluster, objective: str = "sync", drawn: Drawn | None = None
) -> dict[str, Candidate | None]:
    """Every baseline's best program and its cost; None where it doesn't exist (as of a model that calls nothing) or doesn't fit into memory. A model without experts
    has no "expert_parallel" among them. Lines that a search of the same graph has `drawn` are not made again."""
    if not training.nodes:
        return dict.fromkeys(BASELINES)
    drawn = drawn or Drawn(Numbers(training))
    even = proportional(training, [1.0] * len(cluster))
    by_speed = proportional(training, cluster.speeds("f32"))
    plain = data_parallel(training, False)
    wanted: list[tuple[Restriction | None, dict[str, tuple[Shares, ...]]]] = [
        (plain, {"dp_even": (even,), "dp_proportional": (by_speed,)}),
        (data_parallel(training, True), {"zero": (even, by_speed)}),
        (tensor_parallel(training), {"tensor_parallel": (even, by_speed)}),
    ]
    if (experts := expert_parallel(training)) is not None:
        wanted.append((experts, {"expert_parallel": (even, by_speed)}))
    found: dict[str, Candidate | None] = {}
    for restriction, cuts in wanted:  # one structure at a time: each takes as much memory as many programs
        structure = None if restriction is None else Structure(training, restriction, MESSAGES, drawn=drawn)
        for name, each in cuts.items():
            options = [] if structure is None else [_cheapest(structure, cluster, s, name, objective) for s in each]
            fitting = [c for c in options if c is not None]
            best = min(fitting, key=lambda c: c[0].seconds(objective), default=None)
            found[name] = None if best is None else _in_order(*best, objective)
    return found


def _in_order(candidate: Candidate, pricer: Pricer, objective: str) -> Candidate:
    program = reordered(without_unread(candidate.program), pricer, objective)
    return replace(candidate, program=program, cost=evaluate(program, pricer.cluster, pricer))


def _cheapest(
    structure: Structure, cluster: Cluster, shares: Shares, name: str, objective: str
) -> tuple[Candidate, Pricer] | None:
    """The cheapest program found within a structure under given shares, in canonical order, and what priced it; None where none fits."""
    layout = layout_of(shares, len(cluster))
    space = Space(structure.training, layout, cluster, None, objective, structure)
    scheduler = Scheduler(space.conversions)
    try:
        pricing = cutting_planes(space.graph, iterations=3)
    except TooWide:
        pricing = cutting_planes(space.graph, solve=by_milp(space.graph, seconds=SECONDS), iterations=1)

    def made(assignment: tuple[int, ...]) -> tuple[Candidate, Pricer]:
        choice = space.choice(assignment)
        program = scheduler.program(choice, name)
        return Candidate(program, evaluate(program, cluster, space.pricer), choice), space.pricer

    def price(assignment: tuple[int, ...]) -> float:
        choice = space.choice(assignment)
        return scheduler.seconds(choice, objective) if scheduler.fits(choice) else math.inf

    if pricing.elimination is None or not pricing.elimination.feasible:
        priced = [(price(a), a) for a in pricing.minimisers]
        return made(min(priced)[1]) if priced and math.isfinite(min(priced)[0]) else None
    leaves = max(3, min(LEAVES, WORK // len(structure.training.nodes)))
    result = best_first(pricing.elimination, price, gap=GAP, limits=Limits(leaves=leaves))
    if result.assignment is None:
        return None
    return made(result.assignment)
