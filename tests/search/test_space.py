"""The space of programs against trying all of it: the bound, the search, and what the scheduler writes.

A space is made small by keeping a random part of the rules; then every allowed assignment is walked, scheduled and priced by the
evaluator. Nothing here asks elimination or A* for the answer.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from hapdsl.graph.program import LOADS, Program
from hapdsl.search.astar import best_first
from hapdsl.search.prices import cutting_planes

from .small import CLUSTERS, MODELS, Tried, cluster, cuts, everything, reread, spare, thinned, training

CASES = [
    (model, machines, cut)
    for k, (model, machines) in enumerate(itertools.product(MODELS, CLUSTERS))
    if (k + k // 6) % 2 == 0
    for cut in (["even", "by speed", "lopsided", "zero"][k // 2 % 4],)
]


@dataclass
class Walked:
    """A small space, each of its assignments, and what their programs cost under both objectives."""

    tried: Tried
    assignments: list[tuple[int, ...]]
    sync: np.ndarray
    overlap: np.ndarray


@cache
def walked(model: str, machines: str, cut: str) -> Walked:
    graph, made = training(MODELS[model]), cluster(CLUSTERS[machines])
    shares = cuts(graph, made)[cut]
    for seed in range(100):
        rng = np.random.default_rng([seed, CASES.index((model, machines, cut))])
        tried = Tried(graph, made, shares, restriction=thinned(graph, rng, 0.45))
        every = (a for a in everything(tried.space.graph) if not spare(tried.space.graph, a))
        found = list(itertools.islice(every, 251))
        if 30 <= len(found) <= 250:
            costs = [tried.cost(a) for a in found]
            return Walked(tried, found, np.array([c.sync_s for c in costs]), np.array([c.overlap_s for c in costs]))
    raise AssertionError("no part of the space has a size that suits")


def overlapped(case: Walked) -> Tried:
    """The same choices under the other objective."""
    old = case.tried
    return Tried(old.graph, old.machines, old.shares, "overlap", old.restriction)


def bounds(tried: Tried, assignments: list[tuple[int, ...]]) -> np.ndarray:
    """The highest bound of each assignment under any prices: the weight is linear, so a corner has it."""
    graph = tried.space.graph
    return np.array([graph.plain(a) + graph.component_sums(a).max(initial=0.0) for a in assignments])


@pytest.mark.parametrize(("model", "machines", "cut"), CASES, ids=["-".join(c) for c in CASES])
def test_no_price_is_above_the_cost(model: str, machines: str, cut: str) -> None:
    case = walked(model, machines, cut)
    assert (bounds(case.tried, case.assignments) <= case.sync * (1 + 1e-9)).all()
    other = overlapped(case)
    assert other.space.graph.sizes == case.tried.space.graph.sizes
    assert (bounds(other, case.assignments) <= case.overlap * (1 + 1e-9)).all()


@pytest.mark.parametrize(("model", "machines", "cut"), CASES, ids=["-".join(c) for c in CASES])
def test_the_search_finds_the_cheapest(model: str, machines: str, cut: str) -> None:
    case = walked(model, machines, cut)
    for tried, costs in ((case.tried, case.sync), (overlapped(case), case.overlap)):
        pricing = cutting_planes(tried.space.graph)
        assert pricing.elimination is not None
        assert pricing.bound <= costs.min() * (1 + 1e-9)
        found = best_first(pricing.elimination, tried.seconds, gap=0.0)
        assert found.cost == pytest.approx(costs.min(), rel=1e-9)
        assert found.bound == pytest.approx(costs.min(), rel=1e-9)


def lines(program: Program) -> list[tuple[object, ...]]:
    """All that an instruction is; loads one by one, for those that stand together are written as one line."""
    found: list[tuple[object, ...]] = []
    for i in program.instructions:
        for outputs in [(v,) for v in i.outputs] if i.op in LOADS else [i.outputs]:
            found.append((i.op, i.inputs, outputs, i.section, i.method, i.node and i.node.outputs))
    return found


def classes_cut(program: Program) -> set[str | None]:
    """The classes that some line cuts: the others' shares aren't written."""
    tensors = program.graph.tensors
    values = [v for i in program.instructions for v in (*i.inputs, *i.outputs)]
    return {tensors[v.tensor].classes[p.dim] for v in values for p in v.placement if p.kind == "S"}


@pytest.mark.parametrize(("model", "machines", "cut"), CASES, ids=["-".join(c) for c in CASES])
def test_every_program_is_accepted_when_read_again(model: str, machines: str, cut: str) -> None:
    case = walked(model, machines, cut)
    rng = np.random.default_rng(len(case.assignments))
    for a in rng.choice(len(case.assignments), 6, replace=False):
        program = case.tried.program(case.assignments[a])
        checked = reread(program, case.tried.graph, len(case.tried.machines))
        assert checked.ok and not checked.sketch, [d.message for d in checked.diagnostics.errors]
        assert lines(checked.program) == lines(program)
        for name in classes_cut(program):
            shares = checked.program.layout.shares[name][(0,)]
            np.testing.assert_array_equal(shares, case.tried.layout.shares[name][(0,)])
        again = case.tried.reprice(checked.program)
        assert again.sync_s == pytest.approx(case.sync[a], rel=1e-12)
        assert again.overlap_s == pytest.approx(case.overlap[a], rel=1e-12)


@pytest.mark.parametrize("machines", CLUSTERS)
def test_bounds_hold_all_over_whole_spaces(machines: str) -> None:
    """Random assignments of whole spaces, too many to try all: walks that leave out where a table forbids."""
    made = cluster(CLUSTERS[machines])
    rng = np.random.default_rng(len(machines))
    seen = 0
    for model, text in MODELS.items():
        graph = training(text)
        for cut, shares in cuts(graph, made).items():
            tried, other = Tried(graph, made, shares), Tried(graph, made, shares, "overlap")
            for _ in range(6):
                every = (a for a in everything(tried.space.graph, rng) if not spare(tried.space.graph, a))
                found = list(itertools.islice(every, 1))
                costs = [tried.cost(a) for a in found]
                sync, overlap = np.array([c.sync_s for c in costs]), np.array([c.overlap_s for c in costs])
                assert (bounds(tried, found) <= sync * (1 + 1e-9)).all(), (model, cut, found)
                assert (bounds(other, found) <= overlap * (1 + 1e-9)).all(), (model, cut, found)
                seen += len(found)
    assert seen == 6 * 4 * len(MODELS)
