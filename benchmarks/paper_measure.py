"""One case of the paper's evaluation in this process: `python -m benchmarks.paper_measure CASE` (JSON) prints one line of JSON."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.cases import PROGRAMS
from benchmarks.paper_cases import VIRTUAL, Case, of_size, only
from hapdsl.cluster.builder import build
from hapdsl.cluster.fewer import fewer
from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.collectives import wired_seconds
from hapdsl.graph.program import METHODS
from hapdsl.graph.training import Node, TrainingGraph
from hapdsl.lang.diagnostics import HapError
from hapdsl.search.baselines import data_parallel, expert_parallel
from hapdsl.search.fewer import or_fewer
from hapdsl.search.plan import Plan
from hapdsl.search.planner import plan
from hapdsl.search.restriction import Restriction
from hapdsl.search.shares import Shares, proportional
from hapdsl.theory.rules import Rule
from hapdsl.virtual import plan_over
from hapdsl.workbench import Workbench

Found = dict[str, Any]
SECONDS = 300.0  # of CPU, for one search at most
GAP = 0.01


def graph_of(case: Case, train: bool = True) -> TrainingGraph:
    return Workbench(PROGRAMS / "models" / f"{case.model}.hap").graph(case.model, case.scaled(), train)


def cluster_of(case: Case) -> Cluster:
    if case.testbed in ("paper_a100", "paper_a100_p100"):
        return Workbench(PROGRAMS / "clusters" / f"{case.testbed}.hap").cluster(case.testbed)
    return of_size(case.testbed, case.devices, case.nodes == VIRTUAL)[1]


def until(seconds: float) -> Callable[[], bool]:
    """Whether so many seconds of CPU have passed from now on: what else a machine does decides nothing."""
    end = time.process_time() + seconds
    return lambda: time.process_time() > end


def point(case: Case, seconds: float = SECONDS, gap: float = GAP) -> Found:
    """Our plan on all devices, and on fewer where that is faster, beside every baseline; seconds both synchronous and overlapped.

    The search for fewer devices takes as long again at most: where it is slow, it is because hardly anything fits.
    """
    graph = graph_of(case)
    block, cluster = of_size(case.testbed, case.devices, case.nodes == VIRTUAL)
    started = time.process_time()
    if cluster.virtual:
        found = plan_over(graph, cluster, cancelled=until(seconds), gap=gap)
        best, on = found, None
    else:
        found = plan(graph, cluster, cancelled=until(seconds), gap=gap)
        again = until(time.process_time() - started)
        best, on = or_fewer(graph, found, fewer(block, cluster), cancelled=again, gap=gap)
    stages = found.cost.stages
    return {
        "plan_s": found.cost_s,
        "overlap_s": found.cost.overlap_s,
        "best_s": best.cost_s,
        "left_out": on.left_out if on is not None else "",
        "gap": found.gap,
        "baselines": {
            name: None if c is None else [c.cost.sync_s, c.cost.overlap_s] for name, c in found.baselines.items()
        },
        "communication_s": sum(s.comm_s for s in stages),
        "compute_s": sum(float(s.compute_s.max()) for s in stages),
        "methods": sorted({f"{s.collective} {s.method}" for s in stages if s.collective}),
        "shares": {c: _runs(found.program.layout.shares[c][(0,)]) for c in _cut(found)},
        "search_s": time.process_time() - started,
    }


def _runs(units: Iterable[int]) -> list[tuple[int, int]]:
    """How many devices in a row have so many units each."""
    return [(len(list(run)), int(n)) for n, run in itertools.groupby(units)]


def _cut(found: Plan) -> list[str]:
    values = (v for i in found.program.instructions for v in (*i.inputs, *i.outputs))
    tensors = found.program.graph.tensors
    return sorted({str(tensors[v.tensor].classes[p.dim]) for v in values for p in v.placement[:1] if p.kind == "S"})


def ablation(case: Case, seconds: float = SECONDS) -> Found:
    """Seconds with even data parallelism, then with a program of our own (Q), with shares (B); and shares alone. All by the first method of each collective, flat
    rings and padding; with a choice of methods (C) it is the plan of `point`."""
    graph, cluster = graph_of(case), cluster_of(case)
    even = proportional(graph, np.ones(len(cluster)))
    free: Shares = {}
    wholly = data_parallel(graph, False)
    with mock.patch.dict(METHODS, {kind: methods[:1] for kind, methods in METHODS.items()}):
        return {
            "dp_even": seconds_of(graph, cluster, even, wholly, seconds),
            "shares": seconds_of(graph, cluster, free, wholly, seconds),
            "program": seconds_of(graph, cluster, even, None, seconds),
            "program_shares": seconds_of(graph, cluster, free, None, seconds),
        }


def seconds_of(
    graph: TrainingGraph, cluster: Cluster, fixed: Shares, within: Restriction | None, seconds: float = SECONDS
) -> float | None:
    """A step of the best plan within a part of the space; None where nothing fits into memory."""
    try:
        return plan(
            graph, cluster, fixed=fixed, restriction=within, baselines=False, cancelled=until(seconds), gap=GAP
        ).cost_s
    except HapError:
        return None


def concurrent(case: Case) -> Found:
    """Samples a second of a job on the machines of each sort, with their parts of the weak scaling's batch; one job on all of them is the plan of `point`."""
    block = of_size(case.testbed, case.devices)[0]
    rows: Found = {}
    for node in ("big", "small"):
        cluster = build(only(block, node))
        part = replace(case, devices=len(cluster))
        found = plan(graph_of(part), cluster, baselines=False, cancelled=until(SECONDS), gap=GAP)
        rows[node] = part.scaled()["batch"] / found.cost_s
    return rows


def crossing(case: Case) -> Found:
    """GB/s of the whole 4 MB tensor, padded and grouped, by the largest part that one of four devices has; and where they cross."""
    wiring, size = cluster_of(case).link(range(4)), 4e6

    def gbs(method: str, part: float) -> float:
        return size / wired_seconds("all_gather", method, part * size, size, wiring) / 1e9

    parts = np.arange(0.25, 1.0, 0.001)
    cross = next(float(p) for p in parts if gbs("grouped", p) > gbs("padded", p))
    return {
        "crossing": cross,
        "padded": {str(p): gbs("padded", p) for p in (0.25, 0.43, 1.0)},
        "grouped": gbs("grouped", 0.25),
    }


def experts(case: Case) -> Found:
    """Our plan with so many experts, and expert parallelism with even shares where they are padded to a multiple of the devices."""
    cluster, count = cluster_of(case), case.settings["experts"]
    padded = replace(case, settings={**case.settings, "experts": -(-count // len(cluster)) * len(cluster)})
    graph, rounded = graph_of(case), graph_of(padded)
    even = proportional(rounded, np.ones(len(cluster)))
    return {
        "plan_s": seconds_of(graph, cluster, {}, None),
        "padded_s": seconds_of(rounded, cluster, even, expert_parallel(rounded)),
        "experts": [int(n) for n in proportional(graph, cluster.speeds("f32"))["experts"]],
    }


def factors(case: Case) -> Found:
    """What gathering sufficient factors (SFB) saves at a batch of so many on each device: the plan, and the one in which no gradient of a parameter is computed of
    gathered operands."""
    graph = graph_of(replace(case, settings={"batch": int(case.number) * case.devices}))
    cluster = cluster_of(case)
    wholly = data_parallel(graph, False)
    assert wholly is not None
    gradients = {
        name
        for name in graph.producer
        if name.endswith(".grad") and graph.tensors[name.removesuffix(".grad")].kind == "param"
    }
    return {
        "reduced_s": seconds_of(graph, cluster, {}, wholly),
        "gathered_s": seconds_of(graph, cluster, {}, _or_whole(wholly, gradients)),
        "plan_s": seconds_of(graph, cluster, {}, None),
    }


def _or_whole(wholly: Restriction, gradients: set[str]) -> Restriction:
    """Data parallelism in which a parameter's gradient may also be computed whole, of operands that are whole."""

    def allow(node: Node, rule: Rule) -> bool:
        return wholly.allow(node, rule) or (rule.index is None and node.outputs[0] in gradients)

    return Restriction(allow, wholly.allow_held)


def shares(case: Case) -> Found:
    """A fully sharded program under even shares (EV) and shares by speed (CP), and how long it computes for each second that it communicates."""
    graph = graph_of(replace(case, settings={"batch": int(case.number)}))
    cluster = cluster_of(case)
    sharded = data_parallel(graph, True)
    rows: Found = {}
    for word, weights in (("even", np.ones(len(cluster))), ("by_speed", cluster.speeds("f32"))):
        found = plan(
            graph,
            cluster,
            fixed=proportional(graph, weights),
            restriction=sharded,
            baselines=False,
            cancelled=until(SECONDS),
            gap=GAP,
        )
        stages = found.cost.stages
        rows[word] = {
            "cost_s": found.cost_s,
            "communication_s": sum(s.comm_s for s in stages),
            "compute_s": sum(float(s.compute_s.max()) for s in stages),
        }
    return rows


def synthesis(case: Case) -> Found:
    """CPU seconds of the search alone, to the program and shares and with the proof: of the forward pass, which is what HAP's search covers, and of the training graph."""
    cluster = cluster_of(case)
    return {"forward": _searched(graph_of(case, train=False), cluster), "training": _searched(graph_of(case), cluster)}


def _searched(graph: TrainingGraph, cluster: Cluster) -> Found:
    started = time.process_time()
    bests: list[tuple[float, float]] = []

    def heard(news: Any) -> None:
        if news.best_s is not None and (not bests or news.best_s < bests[-1][1]):
            bests.append((time.process_time() - started, news.best_s))

    found = plan(graph, cluster, baselines=False, progress=heard, gap=GAP)
    took = time.process_time() - started
    return {
        "settled_s": bests[-1][0],
        "all_s": took,
        "calls": len(graph.nodes),
        "plan_s": found.cost_s,
        "gap": found.gap,
    }


MEASURES: dict[str, Callable[[Case], Found]] = {
    "point": point,
    "ablation": ablation,
    "concurrent": concurrent,
    "crossing": crossing,
    "experts": experts,
    "factors": factors,
    "shares": shares,
    "synthesis": synthesis,
}


def main(arguments: list[str]) -> None:
    case = Case(**json.loads(arguments[0]))
    print(json.dumps(MEASURES[case.kind](case)))


if __name__ == "__main__":
    main(sys.argv[1:])
