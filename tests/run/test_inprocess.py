"""The in-process executor: values survive every way of moving them, on uneven and empty shares, on one and two axes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hapdsl.graph.program import Instruction, Layout, Program, Value
from hapdsl.lang.diagnostics import HapError
from hapdsl.run.initial import initial
from hapdsl.run.inprocess import InProcess, simulate
from hapdsl.run.pieces import assemble
from hapdsl.run.validate import random_layout
from hapdsl.theory.placements import P, R, S
from tests.run.helpers import inputs_of, mover, partials
from tests.run.programs import program_of


def one_axis(shares: dict[str, list[int]]) -> Layout:
    devices = len(next(iter(shares.values())))
    return Layout((("devices", devices),), {c: {(0,): np.array(s)} for c, s in shares.items()})


@pytest.mark.parametrize("length", range(1, 18))
@pytest.mark.parametrize("devices", [1, 2, 3, 4, 6])
def test_gathering_shards_gives_the_tensor_back(length, devices):
    graph = inputs_of([(length, 3)], ["f64"])
    draw = random.Random(length * 10 + devices)
    layout = random_layout(graph, (("devices", devices),), draw)
    where = S(0) if length > 1 else S(1)
    for method in ("padded", "grouped"):
        program = mover(graph, layout, [[(where,)], [(R,)], [(where,)]], method)
        x = torch.randn(length, 3, dtype=torch.float64)
        made = simulate(program, {"x0": x}, torch.float64)
        assert all(torch.equal(local, x) for local in made[Value("x0", (R,))])
        assert torch.equal(assemble(program, Value("x0", (where,)), made[Value("x0", (where,))]), x)


def test_four_uneven_columns():
    """(2, 14) on dim 1, shares 2/3/4/5."""
    graph = inputs_of([(2, 14)], ["f32"])
    program = mover(graph, one_axis({"x0.1": [2, 3, 4, 5], "x0.0": [1, 0, 0, 1]}), [[(S(1),)], [(R,)]])
    x = torch.arange(28.0).reshape(2, 14)
    made = simulate(program, {"x0": x})
    assert [tuple(t.shape) for t in made[Value("x0", (S(1),))]] == [(2, 2), (2, 3), (2, 4), (2, 5)]
    assert all(torch.equal(t, x) for t in made[Value("x0", (R,))])


def test_a_share_of_nothing_and_fewer_rows_than_devices():
    graph = inputs_of([(2, 3)], ["f64"])
    program = mover(
        graph, one_axis({"x0.0": [1, 0, 0, 1], "x0.1": [0, 3, 0, 0]}), [[(S(0),)], [(S(1),)], [(R,)], [(P,)], [(S(0),)]]
    )
    x = torch.randn(2, 3, dtype=torch.float64)
    made = simulate(program, {"x0": x})
    assert all(torch.equal(assemble(program, v, held), x) for v, held in made.items())


# From each placement the ones a single conversion leads to.
def _next(placement, rank):
    shards = [S(d) for d in range(rank)]
    match placement.kind:
        case "R":
            return [*shards, P]
        case "P":
            return [R, *shards]
        case _:
            return [R, *(s for s in shards if s != placement)]


@st.composite
def journeys(draw):
    rank = draw(st.integers(1, 3))
    shape = tuple(draw(st.lists(st.integers(2, 9), min_size=rank, max_size=rank)))
    mesh = draw(st.sampled_from([(("d", n),) for n in (1, 2, 3, 5)] + [(("o", 2), ("i", 3)), (("o", 3), ("i", 2))]))
    seed = draw(st.integers(0, 2**30))
    start = tuple(draw(st.sampled_from([R, P, *(S(d) for d in range(rank))])) for _ in mesh)
    path = [start]
    for _ in range(draw(st.integers(1, 5))):
        axis = draw(st.integers(0, len(mesh) - 1))
        options = _next(path[-1][axis], rank)
        # the same dim is cut by an outer and an inner axis only where the inner one changes last
        if axis == 0 and len(mesh) == 2:
            inner = path[-1][1]
            options = (
                [p for p in options if p != inner or p.kind != "S"] if path[-1][0] != inner or inner.kind != "S" else []
            )
        if options:
            target = draw(st.sampled_from(options))
            path.append(tuple(target if a == axis else p for a, p in enumerate(path[-1])))
    return shape, mesh, seed, path


@settings(max_examples=150, deadline=None)
@given(journeys())
def test_values_survive_any_journey(journey):
    shape, mesh, seed, path = journey
    graph = inputs_of([shape], ["f64"])
    draw = random.Random(seed)
    layout = random_layout(graph, mesh, draw)
    program = mover(graph, layout, [[p] for p in path])
    whole = torch.randint(-50, 50, shape, generator=torch.Generator().manual_seed(seed)).double()
    executor = InProcess(program, keep_all=True)
    first = Value("x0", path[0])
    executor.held = {first: partials(whole, program, first, draw)}
    before = [t.clone() for t in executor.held[first]]
    made = executor.step({})
    for placement in path:
        value = Value("x0", placement)
        assert torch.equal(assemble(program, value, made[value]), whole), value
    assert all(torch.equal(a, b) for a, b in zip(before, executor.held[first], strict=True)), "an input was changed"


def test_pieces_that_cannot_be_joined_are_refused():
    """Cut by rows [[3, 1], [2, 2]] on both axes, the outer axis can't be gathered while the inner one stays cut evenly."""
    graph = inputs_of([(8, 2)], ["f64"])
    mesh = (("o", 2), ("i", 2))
    shares = {"x0.0": {(0, 1): np.array([3, 1, 2, 2]), (0,): np.array([4, 4, 4, 4]), (1,): np.array([4, 4, 4, 4])}}
    program = mover(graph, Layout(mesh, shares), [[(S(0), S(0))], [(R, S(0))]])
    with pytest.raises(HapError) as stop:
        simulate(program, {"x0": torch.randn(8, 2)})
    assert stop.value.diagnostics[0].code == "HAP707"


class Counted(Mapping):
    """Tensors that are made when they are asked for."""

    def __init__(self, tensors):
        self.tensors, self.asked = tensors, Counter()

    def __getitem__(self, name):
        self.asked[name] += 1
        return self.tensors[name]

    def __iter__(self):
        return iter(self.tensors)

    def __len__(self):
        return len(self.tensors)


def test_first_values_are_made_once():
    program = program_of("mlp_zero")
    tensors = Counted(initial(program.graph))
    InProcess(program).load(tensors)
    assert tensors.asked == dict.fromkeys(tensors, 1)


def test_replicas_that_differ_are_noticed():
    graph = inputs_of([(3,)], ["f64"])
    program = Program("p", graph, one_axis({"x0.0": [1, 2]}), [Instruction("input", (), (Value("x0", (R,)),))])
    with pytest.raises(HapError) as stop:
        assemble(program, Value("x0", (R,)), [torch.zeros(3), torch.ones(3)])
    assert stop.value.diagnostics[0].code == "HAP708"


@pytest.mark.parametrize("given", [{}, {"x0": torch.zeros(3, 3)}])
def test_missing_and_misshapen_inputs_are_refused(given):
    graph = inputs_of([(3, 2)], ["f64"])
    program = mover(graph, one_axis({"x0.0": [1, 2], "x0.1": [1, 1]}), [[(S(0),)], [(R,)]])
    with pytest.raises(HapError) as stop:
        simulate(program, given)
    assert stop.value.diagnostics[0].code == "HAP706"
