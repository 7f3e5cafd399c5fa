"""The bound against programs in every order (orders.py): what may be claimed of it, and what not.

Held by all that was tried: no order of a program's instructions is below the bound, however gradients, parameters and updated parameters share
messages (while each kind fits into a bucket or so; beyond that, while messages are those of the scheduler). Not held: activations that
share messages can be below it, and are nothing the scheduler writes. So the claim is for the canonical order and its messages, as it says.
"""

from __future__ import annotations

import numpy as np
import pytest

from hapdsl.search.baselines import data_parallel
from hapdsl.search.planner import plan
from hapdsl.search.prices import cutting_planes
from hapdsl.search.shares import proportional
from tests.search.thin_spaces import CASES, Space, space

from .orders import Orders
from .random_dags import random_case
from .small import CLUSTERS, MODELS, Tried, cluster, training


@pytest.mark.parametrize(("model", "machines", "cut"), CASES, ids=["-".join(c) for c in CASES])
def test_no_order_is_below_the_bound(model: str, machines: str, cut: str) -> None:
    found = space(model, machines, cut)
    waiting, written = found.ordered("waiting"), found.ordered("written")
    assert found.bound * (1 - 1e-9) <= waiting <= written * (1 + 1e-12)
    assert written <= found.canonical * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(16))
def test_no_order_of_random_dags_is_below_the_bound(seed: int) -> None:
    _, graph, made, shares = random_case(np.random.default_rng(seed), 5, 9)
    found = Space(graph, made, shares, seed, 24)
    assert found.bound * (1 - 1e-9) <= found.ordered("waiting") <= found.canonical * (1 + 1e-12)


def test_activations_that_share_messages_can_be_below() -> None:
    """Two gathers in one message save a latency, or even out whose share is largest: a bound for that is not what is claimed."""
    model = "read twice by one call"
    cases = [space(model, *c) for c in (("latency", "lopsided"), ("three", "zero"), ("measured", "by speed"))]
    assert any(s.ordered("any") < s.bound * 0.99 for s in cases)
    graph, made = training(MODELS[model]), cluster(CLUSTERS["network"])
    assert "in canonical order" in plan(graph, made, baselines=False).bound_scope


def test_another_order_can_be_faster() -> None:
    """Calls that some devices leave out, moved to where the others wait anyway: so the scheduler's order is part of the claim."""
    cases = [
        space(*c)
        for c in (
            ("tied weight", "measured", "zero"),
            ("tied weight", "three", "by speed"),
            ("two products", "pair", "zero"),
        )
    ]
    assert any(s.ordered("written") < s.canonical * 0.96 for s in cases)
    assert all(s.bound <= s.canonical * (1 + 1e-9) for s in cases)


BUCKETS = """
model deep(batch = 8, d = 2048, e = 3072) {
    input x : f32[batch, d]
    param v0 : f32[d, e]
    param v1 : f32[e, d]
    param v2 : f32[d, e]
    param v3 : f32[e, d]
    a = matmul(x, v0)
    b = matmul(a, v1)
    c = matmul(b, v2)
    y = matmul(c, v3)
    loss = sum(y, [0, 1])
    train loss with sgd(lr = 0.1)
}
"""
FAR = """cluster far {
    device one { compute = 1 TFLOP/s, memory = 16 GiB, bandwidth = 1000 GB/s }
    node host = 2 * one over { bandwidth = 100 GB/s, latency = 100 ms }
}"""


def test_where_many_buckets_are_sent_the_messages_belong_to_the_claim() -> None:
    """Four gradients of 24 MiB are two messages here. All in one would save a latency, which the bound counts by parts."""
    graph, made = training(BUCKETS), cluster(FAR)
    tried = Tried(graph, made, proportional(graph, [1.0, 1.0]), restriction=data_parallel(graph, False))
    solved = cutting_planes(tried.space.graph)
    program = tried.program(solved.minimisers[0])
    assert sum(i.op == "all_reduce" for i in program.instructions) == 2
    written, waiting = (Orders(graph, made, tried.space.pricer, g).cheapest(program) for g in ("written", "waiting"))
    assert waiting < solved.bound <= written * (1 + 1e-9)
