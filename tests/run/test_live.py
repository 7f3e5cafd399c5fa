"""The most bytes of tensors that each rank holds, beside what the cost model predicts, for every hand-written program."""

from __future__ import annotations

import os
import random
from types import SimpleNamespace

import pytest

from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.program import METHODS, Layout
from hapdsl.run import allocator
from hapdsl.run.distributed import Rank
from hapdsl.run.initial import Initial, random_inputs
from hapdsl.run.launch import launch
from hapdsl.run.live import peak_bytes
from hapdsl.run.validate import random_layout
from hapdsl.theory.placements import P, R, S
from hapdsl.workbench import Workbench
from tests.run.helpers import inputs_of, mover
from tests.run.programs import PLANS


def held(reporter, programs):
    for name, program in programs.items():
        rank = Rank(program)
        rank.load(Initial(program.graph, 0))
        reporter.send("held", name=name, peak=peak_bytes(rank, rank.feed(random_inputs(program.graph))))


def moved(reporter, programs):
    """In the best of many steps: on a busy machine a thread of the backend often holds a message a moment longer."""
    for name, program in programs.items():
        rank = Rank(program)
        reporter.send("held", name=name, peak=peak_bytes(rank, rank.feed(random_inputs(program.graph)), steps=20))


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
                graph = inputs_of([(64, 48)] * count, ["f32"] * count)
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


@pytest.mark.parametrize("most", [2**31 - 1, 32 * 2**20])
def test_freed_memory_is_kept_as_far_as_the_c_library_goes(most, monkeypatch):
    """Before 2.35 glibc refuses to keep blocks of more than 32 MiB from being mapped each by itself; the rest is set all the same."""
    held = {}

    def mallopt(name, value):
        if name == -3 and value > most:
            return 0
        held[name] = value
        return 1

    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    assert allocator.keep_freed_memory() and held == {-3: most, -1: 2**31 - 1}
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: SimpleNamespace())
    assert not allocator.keep_freed_memory()


MOVED = """model moved(b = 64, d = 1024) {
    input x : f32[b, d]
    y = relu(x)
    z = relu(y)
    output z
}
cluster lab {
    device d { compute = 1 TFLOP/s, memory = 4 GiB, bandwidth = 100 GB/s }
    node many = %d * d over { bandwidth = 10 GB/s }
    node few = %d * d over { bandwidth = 10 GB/s }
    network 1 * many, 1 * few over { bandwidth = 1 GB/s }
}
program p for moved on lab {
    shares b = [4 * 16]
    shares d = [4 * 256]
    forward {
        x@S(0) = input()
        y@S(0) = relu(x@S(0))
        y@S(1) = all_to_all(y@S(0), method = hierarchical)
        z@S(1) = relu(y@S(1))
    }
}
"""


def held_by_levels(reporter, programs):
    for letters, program in programs.items():
        os.environ["HAPDSL_NODE"] = letters[int(os.environ["RANK"])]
        rank = Rank(program)
        rank.load(Initial(program.graph, 0))
        reporter.send("held", name=letters, peak=peak_bytes(rank, rank.feed(random_inputs(program.graph))))


def test_who_hands_on_for_others_holds_that_too():
    """An all_to_all by levels: never more than is predicted, also where a node's device hands on for those who have no counterpart."""
    programs, predicted, measured = {}, {}, {}
    for letters, many in (("aabb", 2), ("aaab", 3)):
        bench = Workbench("moved.hap", MOVED % (many, 4 - many))
        checked, _, cost = bench.cost(bench.program())
        programs[letters], predicted[letters] = checked.program, cost.memory.peak

    def receive(rank, header, _):
        name = header["name"]
        measured.setdefault(name, {})[rank] = header["peak"] / predicted[name][rank]

    launch(held_by_levels, 4, (programs,), receive, method="fork")
    for letters, least in (("aabb", 0.9), ("aaab", 0.7)):
        ratios = measured[letters].values()
        assert len(ratios) == 4 and least <= min(ratios) and max(ratios) <= 1.01, measured
