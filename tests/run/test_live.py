"""The most bytes of tensors that each rank holds, beside what the cost model predicts, for every hand-written program."""

from __future__ import annotations

import random

import pytest

from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.program import METHODS, Layout
from hapdsl.run.distributed import Rank
from hapdsl.run.initial import Initial, random_inputs
from hapdsl.run.launch import launch
from hapdsl.run.live import peak_bytes
from hapdsl.theory.placements import P, R, S
from hapdsl.workbench import Workbench
from tests.run.helpers import graph_of, mover, random_layout
from tests.run.test_train import PLANS


def held(reporter, programs):
    for name, program in programs.items():
        rank = Rank(program)
        rank.load(Initial(program.graph, 0))
        reporter.send("held", name=name, peak=peak_bytes(rank, rank.feed(random_inputs(program.graph))))


def moved(reporter, programs):
    for name, program in programs.items():
        rank = Rank(program)
        reporter.send("held", name=name, peak=peak_bytes(rank, rank.feed(random_inputs(program.graph))))


def test_messages_take_what_is_predicted():
    """Every collective by every method, of one operand and of two, in even and uneven pieces, to the byte; operands end with the message, and results are read."""
    found, seen = {}, {}
    cluster = Workbench(PLANS[0]).cluster("digits")
    for op, path in {
        "all_gather": [S(0), S(1), R, S(0)],
        "reduce_scatter": [R, P, S(0), S(1)],
        "all_reduce": [R, P, R, S(0)],
    }.items():
        for method in (m for m in METHODS[op] if m != "hierarchical"):
            for count in (1, 2):
                graph = graph_of([(64, 48)] * count, ["f32"] * count)
                even = Layout((("devices", 4),), {c: {(0,): Layout.even(u.units, 4)} for c, u in graph.classes.items()})
                for layout in (even, random_layout(graph, (("devices", 4),), random.Random(count))):
                    name = f"{op} {method} of {count}, {'even' if layout is even else 'uneven'}"
                    found[name] = mover(graph, layout, [[(p,)] * count for p in path], method)
    launch(moved, 4, (found,), lambda rank, h, _: seen.update({(h["name"], rank): h["peak"]}), method="fork")
    assert len(seen) == 4 * len(found) >= 80
    for name, program in found.items():
        predicted = evaluate(program, cluster).memory.peak
        for rank in range(1, 4):  # what the first one has of partial sums is its replica, and no memory of its own
            assert seen[name, rank] == predicted[rank], name


@pytest.fixture(scope="module")
def peaks():
    programs, predicted, measured = {}, {}, {}
    for path in PLANS:
        bench = Workbench(path)
        for tree in bench.programs():
            if tree.cluster is not None:
                checked, _, cost = bench.cost(tree)
                programs[tree.name], predicted[tree.name] = checked.program, cost.memory.peak
    by_devices: dict[int, dict] = {}
    for name, program in programs.items():
        by_devices.setdefault(program.layout.devices, {})[name] = program
    for devices, group in by_devices.items():
        launch(
            held,
            devices,
            (group,),
            lambda rank, h, _: measured.setdefault(h["name"], {}).update({rank: h["peak"]}),
            method="fork",
        )
    return predicted, measured


def test_ranks_hold_what_is_predicted(peaks):
    """Within a tenth, of every program on every rank."""
    predicted, measured = peaks
    assert len(measured) >= 10
    ratios = {
        (name, rank): peak / predicted[name][rank] for name, ranks in measured.items() for rank, peak in ranks.items()
    }
    assert max(ratios.values()) <= 1.10, max(ratios, key=lambda k: ratios[k])
    assert min(ratios.values()) >= 0.90, min(ratios, key=lambda k: ratios[k])
