"""The space against HAP's search over property sets, an oracle with nothing in common but rules and prices.

What is compared: both make every call once, in the graph's order. The oracle may put collectives anywhere and make any number of
placements of a tensor; the space puts them where its scheduler does and offers at most two. Without latency it doesn't matter how
collectives are grouped into messages.

- Devices alike with equal shares: a stage lasts as long on each device, so the cost is a sum and the order is of no matter: the optima are equal.
- Devices that differ: where a collective stands decides which devices wait. The oracle is freer: its optimum is at most the space's, and
  at least the bound that the cutting planes prove.
"""

from __future__ import annotations

import pytest

from hapdsl.cluster import Cluster
from hapdsl.graph.training import TrainingGraph
from hapdsl.search.astar import Limits, best_first
from hapdsl.search.prices import cutting_planes
from hapdsl.search.shares import Shares, proportional

from .property_sets import PropertySets
from .small import DEVICES, MODELS, Tried, cluster, cuts, training

EVEN = {"one product": {"out": 12}, "bias": {"out": 12}, "two products": {"hidden": 12}}
LINKS = ("2 MB/s", "20 MB/s", "200 MB/s", "2 GB/s")


def alike(devices: int, link: str) -> Cluster:
    return cluster(
        f"cluster alike {{ {DEVICES} node host = {devices} * quick over {{ bandwidth = {link}, latency = 0 us }} }}"
    )


def unlike(link: str) -> Cluster:
    return cluster(
        f"cluster unlike {{ {DEVICES} node host = 1 * quick, 1 * slow over {{ bandwidth = {link}, latency = 0 us }} }}"
    )


def answers(graph: TrainingGraph, made: Cluster, shares: Shares) -> tuple[float, float, float]:
    """Of one space: its proven bound, the oracle's optimum, the cheapest program found in it (of 60 where devices differ)."""
    tried = Tried(graph, made, shares)
    pricing = cutting_planes(tried.space.graph)
    assert pricing.elimination is not None
    found = best_first(pricing.elimination, tried.seconds, gap=0.0, limits=Limits(leaves=60))
    assert found.reason in ("gap", "exhausted") or len(tried.space.groups) > 1
    return pricing.bound, PropertySets(graph, tried.layout, made).cheapest(), found.cost


@pytest.mark.parametrize("devices", [2, 3])
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("model", MODELS)
def test_alike_devices_have_one_optimum(model: str, link: str, devices: int) -> None:
    graph = training(MODELS[model], d=6, batch=12, **EVEN.get(model, {}))
    made = alike(devices, link)
    shares = proportional(graph, [1.0] * devices)
    assert all(len(set(s.tolist())) == 1 for s in shares.values())
    _, oracle, own = answers(graph, made, shares)
    assert oracle == pytest.approx(own, rel=1e-9)


@pytest.mark.parametrize("cut", ["even", "by speed", "zero"])
@pytest.mark.parametrize("link", LINKS[1:3])
@pytest.mark.parametrize("model", ["one product", "two products", "bias", "read twice by one call"])
def test_unlike_devices_are_between(model: str, link: str, cut: str) -> None:
    graph = training(MODELS[model])
    made = unlike(link)
    bound, oracle, own = answers(graph, made, cuts(graph, made)[cut])
    assert bound <= oracle * (1 + 1e-9)
    assert oracle <= own * (1 + 1e-9)


def test_the_worked_example_of_the_paper() -> None:
    """A product of data and a parameter, and a sum; the numbers of figure 10 scaled: cut along the batch it costs half."""
    text = """model example(n = 4, k = 4, m = 4) {
        input e1 : f32[n, k]
        frozen e2 : f32[k, m]
        e3 = matmul(e1, e2)
        loss = sum(e3, [0, 1])
        output loss }"""
    graph = training(text, train=False)
    made = alike(2, "20 MB/s")
    tried = Tried(graph, made, proportional(graph, [1.0, 1.0]))
    oracle = PropertySets(graph, tried.layout, made)
    whole = [float(oracle.call(k, oracle.rules[k][0]).max()) for k in range(2)]
    halves = [min(float(oracle.call(k, r).max()) for r in oracle.rules[k]) for k in range(2)]
    assert oracle.cheapest() == pytest.approx(sum(halves)) and sum(halves) < sum(whole)
    assert 0 < oracle.popped < 60
