"""What seldom stands in a model: operands of one list of which some need no gradient, and evaluations that call more than the text does."""

from __future__ import annotations

import pytest
import torch

from hapdsl.graph import elaborate
from hapdsl.lang.diagnostics import HapError
from tests.graph.helpers import calls, gradient, graph_of, same, step, values


def test_of_a_list_of_operands_only_those_that_need_a_gradient_get_one() -> None:
    graph = graph_of(
        """model m(n = 3, d = 2) {
            input x  : f32[n, d]
            param w  : f32[n, d]
            frozen f : f32[n, d]
            y = concat(x, w, f, w, dim = 0)
            loss = sum(mul(y, mul(y, y)), dims = [0, 1])
            train loss with sgd()
        }"""
    )
    given = values(graph)
    w = given["w"].clone().requires_grad_()
    y = torch.cat([given["x"], w, given["f"], w])
    y.pow(3).sum().backward()
    assert w.grad is not None
    same(gradient(graph, step(graph, given), "w"), w.grad, "w.grad")
    assert sum("slice(" in c for c in calls(graph, "backward")) == 2


def test_what_an_evaluation_calls_counts_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six calls in the text, of which twelve are made where nothing is trained."""
    text = """op noisy(x[*i]) -> y[*i] {
    flops i
    evaluation y = neg(exp(x))
}
model m(d = 4) {
    input x : f32[d]
    h = noisy(x)
    repeat t in 5 { h = noisy(h) }
    output h
}"""
    monkeypatch.setattr(elaborate, "MAX_CALLS", 12)
    assert len(graph_of(text).nodes) == 12
    monkeypatch.setattr(elaborate, "MAX_CALLS", 11)
    with pytest.raises(HapError) as stop:
        graph_of(text)
    (found,) = stop.value.diagnostics
    assert (found.code, found.message) == ("HAP223", "the model has over 11 operator calls")
    assert text.split("\n")[found.span.line - 1].strip() == "evaluation y = neg(exp(x))"
