"""Searches that are stopped somewhere in between: what they answer is proven, priced, and as good as the best they told of."""

from __future__ import annotations

import numpy as np
import pytest

from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.training import TrainingGraph
from hapdsl.search import planner
from hapdsl.search.plan import Plan, Progress
from hapdsl.search.planner import plan
from hapdsl.search.shares import shares_of
from hapdsl.virtual import plan_over
from hapdsl.workbench import Workbench
from tests.texts import LAB

from .examples import example
from .random_dags import random_case
from .small import CLUSTERS, MODELS, cluster, reread, training
from .test_planner import ALIKE_LAB, ALIKE_MODEL


class Stopped:
    """Stops a search when it has told of its progress so many times."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.told: list[Progress] = []

    def progress(self, news: Progress) -> None:
        self.told.append(news)

    def cancelled(self) -> bool:
        return len(self.told) >= self.after

    @property
    def best_s(self) -> float:
        return min((p.best_s or np.inf for p in self.told[: self.after]), default=np.inf)


def holds(found: Plan, graph: TrainingGraph, devices: int) -> None:
    checked = reread(found.program, graph, devices)
    assert checked.ok and not checked.sketch
    assert 0 <= found.bound_s <= found.cost_s < np.inf


@pytest.mark.parametrize("objective", ["sync", "overlap"])
def test_wherever_it_is_stopped_it_answers_with_the_best_so_far(objective: str) -> None:
    graph, made = training(MODELS["two products"]), cluster(CLUSTERS["three"])
    whole = Stopped(10**9)
    plan(graph, made, objective=objective, progress=whole.progress)
    assert {"programs", "shares", "baselines", "proof", "order"} <= {p.doing for p in whole.told}
    for after in range(0, len(whole.told), 1 + len(whole.told) // 25):
        stopped = Stopped(after)
        found = plan(graph, made, objective=objective, progress=stopped.progress, cancelled=stopped.cancelled)
        holds(found, graph, len(made))
        assert evaluate(found.program, made).seconds(objective) == pytest.approx(found.cost_s, rel=1e-9)
        assert found.cost_s <= stopped.best_s * (1 + 1e-9)
        known = [c.seconds(objective) for c in found.baselines.values() if c is not None]
        assert found.cost_s <= min(known, default=np.inf) * (1 + 1e-9)


@pytest.mark.long
def test_in_the_end_no_other_program_is_looked_for() -> None:
    """Of programs that are as good as each other the fastest is answered with: there is no time for one with a proof."""
    graph, made = training(ALIKE_MODEL), cluster(ALIKE_LAB)
    whole = Stopped(10**9)
    surer = plan(graph, made, progress=whole.progress)
    stopped = Stopped(1 + [p.doing for p in whole.told].index("order"))
    found = plan(graph, made, progress=stopped.progress, cancelled=stopped.cancelled)
    holds(found, graph, len(made))
    assert found.cost_s <= min(stopped.best_s, surer.cost_s) and found.gap > surer.gap


def test_over_virtual_devices_the_second_search_is_left_out() -> None:
    """Nodes as they are seen from outside are a search of their own, for which there is no time."""
    graph, lab = example("mlp"), Workbench("lab.hap", LAB).cluster("lab")
    whole = Stopped(10**9)
    both = plan_over(graph, lab, progress=whole.progress)
    assert any("outside" in p.doing for p in whole.told)
    for wishes in ({"time_limit": 0.0}, {"cancelled": lambda: True}):
        stopped = Stopped(10**9)
        found = plan_over(graph, lab, progress=stopped.progress, **wishes)
        holds(found, graph, len(lab))
        assert not any("outside" in p.doing for p in stopped.told)
        assert found.cost_s >= both.bound_s * (1 - 1e-9)


@pytest.mark.parametrize(("seed", "objective"), [(17, "sync"), (0, "overlap")])
def test_shares_that_come_last_are_proven_too(monkeypatch: pytest.MonkeyPatch, seed: int, objective: str) -> None:
    """The last look around finds a better program under other shares than those that were proven: the bound that is told is one for them."""
    monkeypatch.setattr(planner, "PROOFS", 1)
    _, graph, made, _ = random_case(np.random.default_rng(seed), 5, 25)
    found = plan(graph, made, objective=objective, baselines=False)
    holds(found, graph, len(made))
    shares = shares_of(found.program.layout)
    again = plan(graph, made, objective=objective, gap=0.0, baselines=False, fixed=shares)
    assert 0 < found.bound_s <= again.cost_s * (1 + 1e-9) and found.cost_s <= again.cost_s * 1.01
