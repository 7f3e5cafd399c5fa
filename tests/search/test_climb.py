"""Looking around near to a program, and doing without a kind of message: what is left out can't be better."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import numpy as np
import pytest

from hapdsl.cost.evaluate import evaluate
from hapdsl.search import around, planner, spaces
from hapdsl.search.climb import LEAST, STEPS, climb, hopes
from hapdsl.search.eliminate import eliminate
from hapdsl.search.factors import Assignment, FactorGraph
from hapdsl.search.nearby import Nearby
from hapdsl.search.planner import plan

from .conftest import Ranked
from .random_dags import random_case
from .small import reread


@pytest.mark.parametrize("seed", range(40))
def test_a_climb_ends_where_no_change_is_better(
    random_graph: Callable[..., FactorGraph], brute_force: Callable[..., Ranked], seed: int
) -> None:
    """Prices that lie above the sum by anything: all values are tried once more in the end, also those that marginals ruled out."""
    graph = random_graph(seed, components=seed % 3)
    prices = np.random.default_rng(seed).dirichlet(np.ones(graph.components)) if graph.components else None
    every = {a: c + 20 for c, a in brute_force(graph, prices)}  # all above nothing
    if not every:
        return

    def price(assignment: Assignment) -> float:
        more = int.from_bytes(hashlib.sha256(repr((seed, assignment)).encode()).digest()[:2], "big") / 2**16
        return every[assignment] * (1 + more)

    graph.factor((), 20.0)
    solved = eliminate(graph, prices)
    hopeful = hopes(solved)
    assert {(v, a[v]) for a in every for v in range(len(a))} == {(v, value) for _, v, value in hopeful}
    near = Nearby(graph, prices)
    start = max(every, key=price)
    below = [h for h in hopeful if h[0] < price(start)]
    found, seconds = climb(near, below, start, price(start), price, 10_000)
    assert seconds == price(found) <= price(start)
    for v, size in enumerate(graph.sizes):
        for value in range(size):
            if value == found[v]:
                continue
            changed = near.changed(found, v, value, STEPS)
            assert changed is None or changed not in every or price(changed) >= seconds * (1 - LEAST)
    tried: list[Assignment] = []

    def worse(assignment: Assignment) -> float:
        tried.append(assignment)
        return math.inf

    climb(near, below, start, price(start), worse, 3)
    assert len(tried) <= 3


@pytest.mark.parametrize(("seed", "gain"), [(124, 0.09), (141, 0.04)])
def test_a_message_that_the_bound_does_not_hear_is_done_without(
    monkeypatch: pytest.MonkeyPatch, seed: int, gain: float
) -> None:
    """No latency counts, and nothing is tried but what the cutting planes meet: what is forbidden then is worth some hundredths, and bounds still hold."""
    _, graph, made, _ = random_case(np.random.default_rng(seed), 5, 25)
    monkeypatch.setattr(spaces, "WEIGHS", 1e9)
    monkeypatch.setattr(planner, "LEAVES", 0)
    monkeypatch.setattr(planner, "PROOF_WORK", 0)
    monkeypatch.setattr(planner, "listen", lambda *_: 0.0)
    monkeypatch.setattr(around, "CLIMB_WORK", 0)
    better = plan(graph, made, gap=0.5, baselines=False)
    monkeypatch.setattr(planner, "do_without", lambda *_: None)
    deaf = plan(graph, made, gap=0.5, baselines=False)
    assert deaf.bound_s <= better.cost_s < deaf.cost_s * (1 - gain)
    assert better.bound_s <= better.cost_s
    checked = reread(better.program, graph, len(made))
    assert evaluate(checked.program, made).sync_s == pytest.approx(better.cost_s, rel=1e-9)
