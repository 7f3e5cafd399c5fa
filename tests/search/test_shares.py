"""Shares against a fine grid, under extreme numbers, and what the linear program says of the present."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from hapdsl.cluster import Cluster
from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.program import Program
from hapdsl.graph.training import TrainingGraph
from hapdsl.search.baselines import baselines, data_parallel
from hapdsl.search.eliminate import eliminate
from hapdsl.search.planner import plan
from hapdsl.search.sharemodel import ShareModel, propose
from hapdsl.search.shares import Stages, descend, layout_of, proportional, shares_of

from .random_dags import random_case
from .small import CLUSTERS, MODELS, Tried, cluster, cuts, reread, training

GRID = 12  # the units of the batch in the small models


@cache
def written(model: str, machines: str, cut: str = "by speed") -> tuple[TrainingGraph, Cluster, Program]:
    """The data-parallel program of a model under given shares."""
    graph, made = training(MODELS[model]), cluster(CLUSTERS[machines])
    tried = Tried(graph, made, cuts(graph, made)[cut], restriction=data_parallel(graph, False))
    weights = np.ones(len(tried.space.timed)) / len(tried.space.timed)
    return graph, made, tried.program(eliminate(tried.space.graph, weights).best())


def seconds(program: Program, made: Cluster, batch: str, cut: np.ndarray) -> float:
    """The exact cost of the same lines when the batch is cut otherwise."""
    layout = layout_of({**shares_of(program.layout), batch: cut}, len(made))
    return evaluate(replace(program, layout=layout), made).sync_s


def cuts_of(units: int, devices: int) -> list[np.ndarray]:
    if devices == 1:
        return [np.array([units])]
    return [np.array([n, *rest]) for n in range(units + 1) for rest in cuts_of(units - n, devices - 1)]


@pytest.mark.parametrize("machines", CLUSTERS)
@pytest.mark.parametrize("model", MODELS)
def test_proposals_and_moves_reach_the_best_of_a_grid(model: str, machines: str) -> None:
    graph, made, program = written(model, machines)
    batch = graph.batch
    assert batch == "batch" and graph.classes[batch].units == GRID
    stages = Stages(program, made)
    others = {c: s for c, s in shares_of(program.layout).items() if c != batch}
    options = [shares_of(program.layout), *propose(program, made, others, stages)]
    for shares in options:
        assert all(s.sum() == graph.classes[c].units and (s >= 0).all() for c, s in shares.items())
        assert all((shares[c] == s).all() for c, s in others.items())
    best = min(options, key=lambda s: stages.seconds(s)[0])
    best, cost = descend(
        best, stages.seconds(best)[0], lambda s: stages.seconds(s)[0], [batch], lambda s: stages.seconds(s)[1], 24
    )
    assert cost == pytest.approx(seconds(program, made, batch, best[batch]), rel=1e-9)
    least = min(seconds(program, made, batch, cut) for cut in cuts_of(GRID, len(made)))
    assert least <= cost * (1 + 1e-9)
    assert cost <= least * 1.02


@pytest.mark.parametrize("machines", ["pair", "latency", "three", "network"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("cut", ["even", "by speed", "lopsided"])
def test_the_linear_program_is_exact_at_the_present_shares(model: str, machines: str, cut: str) -> None:
    """Launches, communication and all constant terms included."""
    _, made, program = written(model, machines, cut)
    model_ = ShareModel(Stages(program, made), {})
    assert model_.seconds(shares_of(program.layout)) == pytest.approx(evaluate(program, made).sync_s, rel=1e-9)


def faster(made: Cluster, factor: float) -> Cluster:
    """Everything that has a speed so many times as fast."""
    devices = tuple(
        replace(
            d,
            flops={k: v * factor for k, v in d.flops.items()},
            bandwidth=d.bandwidth * factor,
            launch=d.launch / factor,
        )
        for d in made.devices
    )
    nodes = tuple(
        replace(
            n, link=n.link and replace(n.link, bandwidth=n.link.bandwidth * factor, latency=n.link.latency / factor)
        )
        for n in made.nodes
    )
    return replace(made, devices=devices, nodes=nodes)


@pytest.mark.parametrize("factor", [1e6, 1e-6])
def test_shares_are_the_same_when_all_is_faster(factor: float) -> None:
    graph, made = training(MODELS["bias"]), cluster(CLUSTERS["three"])
    one, other = plan(graph, made, baselines=False), plan(graph, faster(made, factor), baselines=False)
    assert other.cost_s == pytest.approx(one.cost_s / factor, rel=1e-6)
    for c, s in shares_of(one.program.layout).items():
        assert (s == shares_of(other.program.layout)[c]).all(), c


def test_huge_speeds_beside_tiny_messages() -> None:
    """1e14 FLOP/s beside a link of 1e3 bytes/s: HiGHS sees milliseconds, not what they are made of."""
    text = """cluster far {
        device big   { compute = 100 TFLOP/s, memory = 1 GiB, bandwidth = 1000 GB/s }
        device small { compute = 1 MFLOP/s, memory = 1 GiB, bandwidth = 1 MB/s }
        node host = 1 * big, 1 * small over { bandwidth = 1 KB/s, latency = 0 us }
    }"""
    graph, made = training(MODELS["bias"]), cluster(text)
    found = plan(graph, made, baselines=False)
    alone = proportional(graph, [1.0, 0.0])
    everything = Tried(graph, made, alone)
    weights = np.ones(len(everything.space.timed)) / len(everything.space.timed)
    best = everything.seconds(eliminate(everything.space.graph, weights).best())
    assert found.cost_s <= best * (1 + 1e-9)


def test_a_class_of_few_units_hides_none_of_them() -> None:
    """Four heads on four kinds of device: every unit is somewhere in the linear program, and costs there."""
    text = """cluster kinds {
        device a { compute = 8 MFLOP/s, memory = 1 GiB, bandwidth = 1 GB/s }
        device b { compute = 4 MFLOP/s, memory = 1 GiB, bandwidth = 1 GB/s }
        device c { compute = 2 MFLOP/s, memory = 1 GiB, bandwidth = 1 GB/s }
        device d { compute = 2 MFLOP/s, memory = 1 GiB, bandwidth = 1 GB/s }
        node host = 1 * a, 1 * b, 1 * c, 1 * d over { bandwidth = 10 GB/s, latency = 0 us }
    }"""
    graph, made = training(MODELS["one product"], batch=4), cluster(text)
    tried = Tried(graph, made, proportional(graph, np.ones(4)), restriction=data_parallel(graph, False))
    weights = np.ones(len(tried.space.timed)) / len(tried.space.timed)
    program = tried.program(eliminate(tried.space.graph, weights).best())
    proposals = propose(program, made)
    costs = [seconds(program, made, "batch", s["batch"]) for s in proposals]
    least = min(seconds(program, made, "batch", cut) for cut in cuts_of(4, 4))
    assert costs[0] == pytest.approx(least, rel=1e-9)


def test_the_linear_program_has_nothing_to_propose_where_nothing_fits() -> None:
    """Under no shares do the parameters fit, which every device holds whole."""
    graph, made, program = written("two products", "pair")
    memory = evaluate(program, made).memory
    assert propose(program, made, memory=memory)
    whole = sum(t.bytes for t in graph.of_kind("param"))
    tight = replace(made, devices=tuple(replace(d, memory=whole - 1) for d in made.devices))
    assert propose(program, tight, memory=memory) == []


def test_shares_that_would_be_faster_but_do_not_fit_are_not_taken() -> None:
    """The quick device would have most of the batch, and has room for a part of it: as good as the best of all shares of the batch."""
    text = MODELS["one product"].replace("batch = 12", "batch = 24")
    graph, roomy = training(text), cluster(CLUSTERS["pair"])
    fastest = plan(graph, roomy, baselines=False)
    assert fastest.program.layout.shares["batch"][(0,)][0] > 14
    rows = (6 + 9 + 9) * 4  # of x, y and its gradient
    need = int(fastest.cost.memory_bytes[0]) - 3 * rows
    made = replace(roomy, devices=(replace(roomy.devices[0], memory=need), *roomy.devices[1:]))
    found = plan(graph, made, baselines=False)
    assert found.cost.fits and found.cost_s > fastest.cost_s
    others = [plan(graph, made, baselines=False, fixed={"batch": np.array([n, 24 - n])}) for n in range(0, 25, 2)]
    assert all(p.cost.fits for p in others)
    assert found.cost_s <= min(p.cost_s for p in others) * 1.01


@pytest.mark.parametrize("seed", [3, 12, 19, 33])
def test_shares_that_do_not_fit_are_passed_over(seed: int) -> None:
    """Each device has 3 % less than it needs for the fastest plan, so shares that would be faster are looked at, and don't fit."""
    _, graph, roomy, _ = random_case(np.random.default_rng(seed), 5, 25)
    fastest = plan(graph, roomy, baselines=False)
    room = np.floor(0.97 * fastest.cost.memory_bytes).tolist()
    made = replace(roomy, devices=tuple(replace(d, memory=m) for d, m in zip(roomy.devices, room, strict=True)))
    found = plan(graph, made, baselines=False)
    checked = reread(found.program, graph, len(made))
    assert checked.ok and evaluate(checked.program, made).fits
    known = [c.cost.sync_s for c in baselines(graph, made).values() if c is not None]
    assert found.cost_s <= min(known, default=np.inf) * 1.01
