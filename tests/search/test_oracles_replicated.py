"""No plan is dearer than doing everything on every device, which needs no message at all: what is to be found wherever messages are slow."""

from __future__ import annotations

import pytest

from benchmarks.measure import replicated
from hapdsl.search.planner import plan

from .examples import clusters, example

CASES = [
    ("mlp", "digits"), ("cnn", "digits"), ("cnn", "two_kinds"), ("cnn", "mixed_rack"), ("layer", "digits"), ("layer", "a100_server"),
    ("gpt", "digits"), ("vit_digits", "two_kinds"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "machines"), CASES)
def test_never_dearer_than_everything_everywhere(model: str, machines: str) -> None:
    graph, made = example(model), clusters()[machines]
    alone = replicated(graph, made)
    found = plan(graph, made, baselines=False)
    assert alone is not None and found.cost_s <= alone * (1 + 1e-9)
    assert found.gap <= 0.3
