"""What two programs differ in, on all axes of a mesh."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hapdsl.cost.comparison import changes, differences
from hapdsl.cost.evaluate import evaluate
from hapdsl.cost.pricing import Pricer
from hapdsl.search.baselines import baselines
from hapdsl.virtual import spread
from hapdsl.workbench import Workbench
from tests.search.planned import example
from tests.texts import LAB


def test_programs_on_two_axes_are_told_apart_on_both() -> None:
    """Data parallelism and ZeRO over two virtual devices of two: lines are named with both placements, and every second of difference is in one of them."""
    graph, cluster = example("mlp"), Workbench("lab.hap", LAB).cluster("lab")
    baseline = baselines(graph, cluster.outer())
    programs, lines = [], []
    for name in ("dp_even", "zero"):
        candidate = baseline[name]
        assert candidate is not None
        programs.append(spread(candidate.program, cluster))
    for program in programs:
        pricer = Pricer(graph, program.layout, cluster)
        lines.append([pricer.line(i) for i in program.instructions])
    found = changes(graph, *lines)
    assert found and all(re.search(r"@\([RPS()0-9]+, [RPS()0-9]+\)", c.text) for c in found)
    assert {(c.how, c.short) for c in found if c.kind == "communication" and c.tensors == ("w1.grad",)} >= {
        ("less", "all_reduce w1.grad@(P, S(1)) -> (R, S(1))"), ("more", "reduce_scatter w1.grad@(P, S(1)) -> (S(0), S(1))"),
        ("less", "all_gather w1.grad@(R, S(1)) -> (R, R)"), ("more", "all_gather w1.grad@(S(0), S(1)) -> (S(0), R)"),
    }  # fmt: skip
    seconds = [sum(float(x.price.seconds.max()) for x in each) for each in lines]
    assert sum(c.delta_s for c in found) == pytest.approx(seconds[1] - seconds[0])
    back = changes(graph, *reversed(lines))
    assert sorted(c.delta_s for c in back) == pytest.approx(sorted(-c.delta_s for c in found))
    assert changes(graph, lines[0], lines[0]) == []
    costs = [evaluate(p, cluster) for p in programs]
    by_tensor = differences(programs[0], costs[0], programs[1], costs[1])
    assert np.sum([d.delta_s for d in by_tensor]) == pytest.approx(seconds[1] - seconds[0])
