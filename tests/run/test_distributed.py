"""The torch.distributed executor on four gloo processes against the in-process one: one launch for the whole module."""

from __future__ import annotations

import random
import time

import pytest
import torch
import torch.distributed as dist

from hapdsl.graph.program import Layout
from hapdsl.lang.diagnostics import HapError
from hapdsl.run.distributed import Rank
from hapdsl.run.inprocess import InProcess
from hapdsl.run.launch import launch
from hapdsl.run.validate import random_layout
from hapdsl.theory.placements import P, R, S
from tests.run.helpers import SHAPES, SHARES, Case, case, inputs_of, mover, spread

RANKS = 4
# Every conversion there is, on one axis; P -> R and P -> S start from random partial sums.
JOURNEYS = {
    "all_reduce": [P, R],
    "all_gather rows": [S(0), R],
    "all_gather columns": [S(1), R],
    "reduce_scatter rows": [P, S(0)],
    "reduce_scatter columns": [P, S(1)],
    "all_to_all": [S(0), S(1)],
    "all_to_all back": [S(1), S(0)],
    "local": [R, S(1), R, P, S(0)],
    "round": [P, S(0), S(1), R, S(0), R],
}


def cases() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for k, (name, path) in enumerate(JOURNEYS.items()):
        for pattern, rows in SHARES.items():
            for method in ("padded", "grouped"):
                graph = inputs_of(SHAPES[:1], ["f64"])
                shares = {c: {(0,): spread(rows[int(c[-1]) % 2], u.units)} for c, u in graph.classes.items()}
                layout = Layout((("devices", RANKS),), shares)
                found[f"{name}, {pattern}, {method}"] = case(graph, layout, [[(p,)] for p in path], method, k)
    for dtype in ("f32", "f16", "bf16", "i64", "i32", "i8", "bool"):
        for method in ("padded", "grouped"):
            moves = [[(S(0),)], [(R,)], [(S(1),)], [(S(0),)]]
            if dtype != "bool":  # there are no partial sums of truth values
                moves = [[(P,)], [(S(0),)], [(R,)], [(S(1),)], [(S(0),)], [(R,)], [(P,)], [(R,)]]
            graph = inputs_of(SHAPES[:1], [dtype])
            layout = random_layout(graph, (("devices", RANKS),), random.Random(5))
            found[f"{dtype}, {method}"] = case(graph, layout, moves, method, 7)
    for method in ("padded", "grouped"):
        for k, path in enumerate(([P, R], [P, S(0)], [S(0), R], [S(0), S(1)], [S(1), R])):
            graph = inputs_of(SHAPES, ["f64", "f32", "f64"])
            layout = random_layout(graph, (("devices", RANKS),), random.Random(k))
            found[f"three operands {k}, {method}"] = case(graph, layout, [[(p,)] * 3 for p in path], method, k)
    scalars = inputs_of([(), ()], ["f64", "f64"])
    found["scalars"] = case(
        scalars, Layout((("devices", RANKS),), {}), [[(P,)] * 2, [(R,)] * 2, [(P,)] * 2, [(R,)] * 2], None, 3
    )
    mesh = (("outer", 2), ("inner", 2))
    two = {
        "reduce both": [(P, P), (P, R), (R, R)],
        "zero inside": [(P, P), (P, S(0)), (R, S(0)), (R, R)],
        "cut one dim twice": [(R, R), (S(0), R), (S(0), S(0)), (S(0), S(1)), (S(0), R), (R, R)],
        "cross": [(S(0), S(1)), (R, S(1)), (S(0), S(1)), (S(0), R), (S(1), R)],
        "scatter twice": [(P, P), (S(0), P), (S(0), S(1)), (S(0), S(0)), (S(0), R)],
    }
    for k, (name, path) in enumerate(two.items()):
        for method in ("padded", "grouped"):
            graph = inputs_of(SHAPES[:1], ["f64"])
            layout = random_layout(graph, mesh, random.Random(20 + k))
            found[f"two axes: {name}, {method}"] = case(graph, layout, [[p] for p in path], method, k)
    return found


CASES = cases()


def meets(reporter, programs):
    Rank(programs[dist.get_rank() % 2])


@pytest.mark.parametrize("other", ["mesh", "method"])
def test_ranks_with_other_programs_stop_before_they_wait_for_one_another(other):
    """On other meshes they would make other groups, and other methods ask for other groups, too."""
    graph = inputs_of(SHAPES[:1], ["f64"])
    flat = random_layout(graph, (("devices", RANKS),), random.Random(1))
    programs = [mover(graph, flat, [[(P,)], [(R,)]], "ring"), mover(graph, flat, [[(P,)], [(R,)]], "tree")]
    if other == "mesh":
        square = random_layout(graph, (("outer", 2), ("inner", 2)), random.Random(1))
        programs[1] = mover(graph, square, [[(R, P)], [(R, R)]], "ring")
    start = time.monotonic()
    with pytest.raises(HapError) as stop:
        launch(meets, RANKS, (programs,), timeout_s=8, method="fork")
    assert {d.code for d in stop.value.diagnostics} == {"HAP717"} and time.monotonic() - start < 6


def work(reporter, chosen):
    """Run every case on this rank, and report all its values; operands must be left as they were."""
    for name, one in chosen.items():
        rank = Rank(one.program, keep_all=True)
        rank.held = {v: locals[rank.rank] for v, locals in one.held.items()}
        before = {v: t.clone() for v, t in rank.held.items()}
        made = rank.step({})
        same = all(torch.equal(before[v], one.held[v][rank.rank]) for v in before)
        for value, local in made.items():
            reporter.send("value", local, case=name, value=str(value), unchanged=same)


@pytest.fixture(scope="module")
def reported():
    found: dict[tuple[str, str], dict[int, torch.Tensor]] = {}
    changed: set[str] = set()

    def receive(rank, header, tensor):
        found.setdefault((header["case"], header["value"]), {})[rank] = tensor
        if not header["unchanged"]:
            changed.add(header["case"])

    launch(work, RANKS, (CASES,), receive, method="fork")
    return found, changed


@pytest.mark.parametrize("name", CASES)
def test_ranks_hold_what_the_inprocess_executor_holds(name, reported):
    found, changed = reported
    one = CASES[name]
    executor = InProcess(one.program, keep_all=True)
    executor.held = dict(one.held)
    expected = executor.step({})
    assert len(expected) > 1
    for value, locals in expected.items():
        mine = found[name, str(value)]
        for rank, local in enumerate(locals):
            assert mine[rank].dtype == local.dtype
            assert torch.equal(mine[rank], local), (value, rank)
    assert name not in changed
