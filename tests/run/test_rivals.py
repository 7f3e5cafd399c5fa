"""The benchmarks against PyTorch's own ways: the modules are our models, and what tables say is what was measured."""

from __future__ import annotations

import math

import pytest
import torch

from benchmarks.accuracy import Case, page, scores
from benchmarks.emulate import MODELS as LARGE
from benchmarks.emulate import SMALL, graph_of, interval
from benchmarks.modules import MODELS
from benchmarks.rivals import graph_rate, parts
from hapdsl.run.alone import train_alone
from hapdsl.run.initial import Initial, random_inputs


@pytest.mark.parametrize("model", MODELS)
def test_a_module_trains_as_our_model_does(model: str) -> None:
    graph = graph_of(model, SMALL[model])
    first = Initial(graph, 3)
    module = MODELS[model]({t.name: first[t.name] for t in graph.of_kind("param")}, graph.parameters)
    assert sum(p.numel() for p in module.parameters()) == sum(t.elements for t in graph.of_kind("param"))
    inputs = random_inputs(graph, 3)
    rows = inputs.get("label", inputs.get("target")).numel()
    optimizer = torch.optim.Adam(module.parameters(), lr=graph_rate(graph))
    losses = []
    with torch.enable_grad():
        for _ in range(3):
            optimizer.zero_grad()
            loss = module(**inputs) / rows
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    assert losses == pytest.approx(train_alone(graph, 3, "random", seed=3).loss, rel=2e-6)


def test_models_are_named_once() -> None:
    assert list(LARGE) == list(SMALL) == list(MODELS)


def test_rows_are_dealt_by_speed() -> None:
    assert parts(10, [4, 2, 1, 1]) == [5, 3, 1, 1]
    assert sum(parts(257, [0.31, 0.3, 0.2, 0.19])) == 257


def test_an_interval_is_student_s() -> None:
    # Logarithms ln 2 + (0, 1, -1): deviation 1, t of two degrees 4.3027.
    low, high = interval([2.0, 2.0 * math.e, 2.0 / math.e])
    assert (math.log(low / 2), math.log(high / 2)) == pytest.approx(
        (-4.3027 / math.sqrt(3), 4.3027 / math.sqrt(3)), rel=1e-3
    )


def test_scores_by_hand() -> None:
    cases = [
        Case("a", str(k), "", p, p, m) for k, (p, m) in enumerate([(1.0, 2.0), (2.0, 3.0), (2.1, 2.9), (4.0, 4.0)])
    ]
    cases += [Case("b", "x", "", 1.0, 1.0, 1.0), Case("b", "y", "", 2.0, 2.0, 0.5)]
    found = scores(cases)
    # of a: five pairs are 10 % apart, all right, and one isn't and would be wrong; of b: one pair, wrong
    assert (found["pairs"], found["pairs_right"]) == (6, pytest.approx(5 / 6))
    assert found["kendall"] == pytest.approx({"a": (5 - 1) / 6, "b": -1.0})
    assert found["median_error"] == pytest.approx((0.8 / 2.9 + 1 / 3) / 2)
    assert "| a | 4 | 0.67 |" in page(cases, found)
