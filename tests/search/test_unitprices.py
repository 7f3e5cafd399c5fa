"""Shadow prices of the shares against the whole evaluator, under layouts with one unit moved by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.program import Layout, Program
from hapdsl.lang.diagnostics import HapError
from hapdsl.search import unitprices
from hapdsl.search.planner import plan
from hapdsl.search.shares import Stages
from hapdsl.search.unitprices import unit_prices

from .small import CLUSTERS, MODELS, cluster, training


def moved(program: Program, cls: str, source: int, target: int) -> Program:
    """The same instructions, one unit of a class elsewhere."""
    shares = {c: {(0,): s[(0,)].copy()} for c, s in program.layout.shares.items()}
    shares[cls][(0,)][source] -= 1
    shares[cls][(0,)][target] += 1
    layout = Layout(program.layout.mesh, shares)
    return Program(program.name, program.graph, layout, program.instructions)


@pytest.mark.parametrize("objective", ["sync", "overlap"])
@pytest.mark.parametrize("machines", CLUSTERS)
@pytest.mark.parametrize("model", ["two products", "bias"])
def test_prices_are_differences_of_whole_evaluations(model: str, machines: str, objective: str) -> None:
    made = cluster(CLUSTERS[machines])
    program = plan(training(MODELS[model]), made, baselines=False, objective=objective).program
    seconds = {"sync": lambda c: c.sync_s, "overlap": lambda c: c.overlap_s}[objective]
    now = seconds(evaluate(program, made))
    prices = unit_prices(program, made, objective)
    kinds = made.kinds()
    assert [list(p.devices) for p in prices] == kinds * (len(prices) // len(kinds))
    for p in prices:
        own = program.layout.shares[p.cls][(0,)]
        assert list(p.shares) == [int(own[d]) for d in p.devices]
        every = {
            (s, t): seconds(evaluate(moved(program, p.cls, s, t), made)) - now
            for s, t in itertools.permutations(range(len(made)), 2)
            if own[s] > 0
        }
        more = [v for (_, t), v in every.items() if t in p.devices]
        less = [v for (s, _), v in every.items() if s in p.devices]
        for price, source, target, options in (
            (p.more_s, p.more_from, p.more_to, more),
            (p.less_s, p.less_from, p.less_to, less),
        ):
            if price is None:
                assert not options and source is None and target is None
                continue
            assert price == pytest.approx(min(options), abs=1e-9 * now)
            assert source is not None and target is not None
            assert price == pytest.approx(every[source, target], abs=1e-9 * now)
        assert p.more_to is None or p.more_to in p.devices
        assert p.less_from is None or p.less_from in p.devices


def test_only_classes_that_are_cut_have_prices() -> None:
    made = cluster(CLUSTERS["pair"])
    program = plan(training(MODELS["one product"]), made, baselines=False).program
    cut = {
        program.graph.tensors[v.tensor].classes[p.dim]
        for i in program.instructions
        for v in (*i.inputs, *i.outputs)
        for p in v.placement
        if p.kind == "S"
    }
    assert {p.cls for p in unit_prices(program, made)} == cut


SHORT = """
cluster short {{
    device quick {{ compute = 8 MFLOP/s, memory = {memory} B, bandwidth = 100 MB/s, launch = 1 us }}
    device slow  {{ compute = 3 MFLOP/s, memory = 1 GiB, bandwidth = 60 MB/s, launch = 2 us }}
    node host = 1 * quick, 1 * slow over {{ bandwidth = 20 MB/s, latency = 0 us }}
}}
"""


def test_a_move_that_does_not_fit_has_no_price() -> None:
    roomy = cluster(CLUSTERS["pair"])
    program = plan(training(MODELS["two products"]), roomy, baselines=False).program
    need = int(evaluate(program, roomy).memory_bytes[0])
    exact = cluster(SHORT.format(memory=need))
    assert evaluate(program, exact).fits
    free = {(p.cls, p.devices): p for p in unit_prices(program, roomy)}
    tight = unit_prices(program, exact)
    refused = 0
    for p in tight:
        before = free[p.cls, p.devices]
        if p.devices == (0,) and before.more_to is not None:
            bigger = evaluate(moved(program, p.cls, 1, 0), exact)
            assert (p.more_s is None) == (not bigger.fits)
            refused += p.more_s is None
        if before.less_from == 0:
            assert p.less_s == before.less_s
    assert refused


def test_a_device_without_units_has_none_to_give() -> None:
    made = cluster(CLUSTERS["pair"])
    graph = training(MODELS["one product"])
    program = plan(graph, made, baselines=False).program
    values = {v for i in program.instructions for v in (*i.inputs, *i.outputs)}
    cut = {graph.tensors[v.tensor].classes[p.dim] for v in values for p in v.placement if p.kind == "S"}
    assert cut
    for cls in graph.classes:
        units = graph.classes[cls].units
        shares = {**program.layout.shares, cls: {(0,): np.array([units, 0])}}
        lopsided = Program(program.name, graph, Layout(program.layout.mesh, shares), program.instructions)
        own = {p.devices: p for p in unit_prices(lopsided, made) if p.cls == cls}
        assert set(own) == ({(0,), (1,)} if cls in cut else set())
        if cls not in cut:
            continue
        assert own[0,].less_s is not None and own[0,].more_s is None
        assert own[1,].less_s is None and own[1,].more_s is not None


def test_another_number_of_devices() -> None:
    program = plan(training(MODELS["one product"]), cluster(CLUSTERS["pair"]), baselines=False).program
    with pytest.raises(HapError) as stop:
        unit_prices(program, cluster(CLUSTERS["three"]))
    assert stop.value.diagnostics[0].code == "HAP420"


def test_many_kinds_exchange_units_with_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """With those that compute longest and shortest: as many pricings as kinds, not as pairs of them. All kinds have prices, none below the true ones."""
    devices = "".join(
        f"device d{k} {{ compute = {3 + k} MFLOP/s, memory = 1 GiB, bandwidth = 100 MB/s, launch = 1 us }}\n"
        for k in range(8)
    )
    host = ", ".join(f"1 * d{k}" for k in range(8))
    made = cluster(f"cluster many {{\n{devices} node host = {host} over {{ bandwidth = 20 MB/s, latency = 0 us }} }}")
    program = plan(training(MODELS["two products"], batch=96), made, baselines=False).program
    priced: list[int] = []
    whole = Stages.seconds
    monkeypatch.setattr(Stages, "seconds", lambda self, shares: priced.append(1) or whole(self, shares))
    every = unit_prices(program, made)
    pairs = len(priced)
    monkeypatch.setattr(unitprices, "PARTNERS", 2)
    few = unit_prices(program, made)
    assert len(priced) - pairs < 0.6 * pairs
    equal = 0
    for one, other in zip(every, few, strict=True):
        for true, tried in ((one.more_s, other.more_s), (one.less_s, other.less_s)):
            if true is not None and tried is not None:
                assert tried >= true - 1e-12
                equal += tried == true
    assert equal
