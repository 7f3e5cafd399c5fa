"""The worked example of the paper (EuroSys '24, figure 10): e3 = matmul(placeholder, parameter), loss = sum(e3), with its numbers.

Two devices alike. The product takes 30 ms on one, 15 cut; the sum 2 ms, 1 cut; to gather the parameter takes 10 ms. The figure's programs: (4) the batch
cut, 15 and 1 to come, hence (7), complete with 16, the answer; (5) the parameter cut and gathered, 10 spent, hence (8), 25 and 1 to come; (6) the inner
dim cut, 15, hence (9), complete with 17, as the sum of partial sums is not cut.
"""

from __future__ import annotations

import pytest

from hapdsl.graph.build import build, operators
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang import nodes
from hapdsl.search.astar import best_first
from hapdsl.search.enumeration import HEURISTICS
from hapdsl.search.planner import plan
from hapdsl.search.prices import cutting_planes
from hapdsl.search.shares import proportional
from hapdsl.theory.placements import P, Placement, R, S

from .property_sets import PropertySets
from .small import Tried, cluster, everything, parsed, spare
from .whole_milp import WholeMilp

MS = 1e-3
EXAMPLE = """
op product(x[m, k], w[k, n]) -> y[m, n] {
    sum    k
    linear x
    linear w
    flops  15 * m * k * n
}
op total(x[*i]) -> y[] {
    sum    i
    linear x
    flops  2 * i
}
model example(m = 2, k = 2, n = 2) {
    input  e1 : f32[m, k]
    frozen e2 : f32[k, n]
    e3 = product(e1, e2)
    loss = total(e3)
    output loss
}
cluster pair {
    device one { compute = 4000 FLOP/s, memory = 1 GiB, bandwidth = 1 GB/s, launch = 0 us }
    node host = 2 * one over { bandwidth = 800 B/s, latency = 0 us }
}
"""
# By the rules of the two calls and how the parameter is held: what the figure says of the complete program.
FIGURE: dict[tuple[Placement, Placement, Placement, Placement], float] = {
    (S(0), R, S(0), R): 15 + 1,  # (4), (7)
    (S(1), S(0), P, S(0)): 15 + 2,  # (6), (9)
    (S(0), R, S(0), S(1)): 10 + 15 + 1,  # (5), (8)
}


@pytest.fixture(scope="module")
def tried() -> Tried:
    file = parsed(EXAMPLE)
    model, ops = (
        next(b for b in file.items if isinstance(b, nodes.Model)),
        [b for b in file.items if isinstance(b, nodes.Op)],
    )
    graph: TrainingGraph = build(model, {}, operators({op.name: op for op in ops}), {}, train=False)
    return Tried(graph, cluster(EXAMPLE), proportional(graph, [1.0, 1.0]))


def test_the_answer_is_sixteen(tried: Tried) -> None:
    assert PropertySets(tried.graph, tried.layout, tried.machines).cheapest() == pytest.approx(16 * MS)
    pricing = cutting_planes(tried.space.graph)
    assert pricing.elimination is not None and pricing.bound == pytest.approx(16 * MS)
    for heuristic in HEURISTICS:
        assert best_first(pricing.elimination, tried.seconds, heuristic=heuristic).cost == pytest.approx(16 * MS)
    weights = [0.5, 0.5]
    assert WholeMilp(
        tried.graph, tried.layout, tried.machines, tried.space.conversions, weights
    ).solve() == pytest.approx(16 * MS)
    found = plan(tried.graph, tried.machines)
    assert found.cost_s == pytest.approx(16 * MS) and found.gap == pytest.approx(0, abs=1e-9)


def test_the_figure_s_other_programs(tried: Tried) -> None:
    """The cheapest complete program of each of its branches costs what the figure says, and nothing costs less than 16."""
    costs: dict[tuple[Placement, ...], float] = {}
    for a in everything(tried.space.graph):
        if not spare(tried.space.graph, a):
            choice = tried.space.choice(a)
            key = (*choice.rules[0].inputs, choice.rules[0].outputs[0], choice.held["e2"])
            costs[key] = min(tried.seconds(a), costs.get(key, 1e9))
    for key, milliseconds in FIGURE.items():
        assert costs[key] == pytest.approx(milliseconds * MS), key
    assert min(costs.values()) == pytest.approx(16 * MS)
    whole = (R, R, R, R)
    assert costs[whole] == pytest.approx((30 + 1) * MS)  # the product on each device, what it gives cut for free
