"""Sketches completed: what is written stays, and nothing better is missed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from hapdsl.check.verify import verify
from hapdsl.check.write import write
from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.program import LOADS, Program, Value
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.search import complete as complete_module
from hapdsl.search.baselines import data_parallel
from hapdsl.search.complete import complete, contradiction, decisions
from hapdsl.search.eliminate import TooWide, eliminate
from hapdsl.search.plan import Plan
from hapdsl.search.prices import cutting_planes
from hapdsl.theory.placements import R
from hapdsl.workbench import Workbench
from tests.search.asked import DEEP
from tests.texts import REFERENCE, program_in

from .small import CLUSTERS, MODELS, Tried, cluster, cuts, reread, training


def completed(graph: TrainingGraph, text: str | nodes.Program, machines: str, **options: float) -> Plan:
    tree = program_in(text) if isinstance(text, str) else text
    made = cluster(CLUSTERS[machines])
    found = complete(verify(tree, graph, len(made)), tree, made, **options)
    again = reread(found.program, graph, len(made))
    assert again.ok and not again.sketch, [d.message for d in again.diagnostics.errors]
    assert evaluate(again.program, made).sync_s == pytest.approx(found.cost.sync_s, rel=1e-9)
    return found


def steps(program: Program) -> set[tuple[str, tuple[Value, ...], Value]]:
    """What is loaded, computed and converted, operand by operand."""
    found = set()
    for i in program.instructions:
        for k, v in enumerate(i.outputs):
            if i.node is not None:
                found.add((i.op, i.inputs, v))
            else:
                found.add((i.op, () if i.op in LOADS else (i.inputs[k],), v))
    return found


def program(body: str, model: str = "one") -> str:
    return f"program sketch for {model} {{\n{body}\n    ...\n}}\n"


@pytest.mark.parametrize("machines", ["pair", "three", "latency"])
@pytest.mark.parametrize("model", MODELS)
def test_lines_of_a_program_are_kept_when_the_rest_is_torn_out(model: str, machines: str) -> None:
    graph, made = training(MODELS[model]), cluster(CLUSTERS[machines])
    rng = np.random.default_rng([len(model), len(machines)])
    shares = cuts(graph, made)["by speed"]
    tried = Tried(graph, made, shares)
    for _ in range(3):
        variables = [int(rng.integers(n)) for n in tried.space.graph.sizes]
        weights = np.ones(len(tried.space.timed)) / len(tried.space.timed)
        whole = tried.program(some(tried, variables, weights))
        tree = write(whole)
        kept: list[nodes.Statement] = []
        for statement in tree.body:
            if isinstance(statement, nodes.Section):
                lines = tuple(s for s in statement.body if rng.random() < 0.4)
                kept.append(replace(statement, body=lines))
            else:
                kept.append(statement)
        sketch = replace(tree, body=(*kept, nodes.Rest()))
        found = completed(graph, sketch, machines, gap=0.0)
        checked = verify(sketch, graph, len(made))
        assert steps(checked.program) <= steps(found.program)
        assert found.cost_s <= evaluate(whole, made).sync_s * (1 + 1e-9)


def some(tried: Tried, variables: list[int], weights: np.ndarray) -> tuple[int, ...]:
    """An allowed assignment: the cheapest that agrees with a random one on some calls."""
    graph = tried.space.graph
    for count in (3, 2, 1, 0):
        pinned = graph.copy()
        for v in tried.space.rule_variable[:count]:
            table = np.full(graph.sizes[v], np.inf)
            table[variables[v]] = 0.0
            pinned.factor((v,), table)
        solved = eliminate(pinned, weights)
        if solved.feasible:
            return solved.best()
    raise AssertionError("nothing is allowed")


def test_the_sketches_of_the_reference() -> None:
    bench = Workbench(REFERENCE)
    for name in ("mine", "megatron"):
        tree = bench.program(name)
        checked = bench.checked(tree)
        found = complete(checked, tree, bench.cluster())
        again = reread(found.program, bench.graph_of(tree), 6)
        assert again.ok and not again.sketch
        assert steps(checked.program) <= steps(found.program)
        assert found.program.name == name and "sketch" in found.bound_scope
        made = {v for i in found.program.instructions for v in i.outputs}
        assert all(Value(tensor, placement) in made for tensor, placement in checked.pins)
        for cls in set(checked.program.layout.shares) - checked.free:
            written = checked.program.layout.shares[cls][(0,)]
            assert found.program.layout.shares[cls][(0,)].tolist() == written.tolist()


def test_a_hole_leaves_one_placement_open() -> None:
    graph = training(MODELS["one product"])
    found = completed(graph, program("    y@S(1) = matmul(x@?, w@?)"), "pair")
    (line,) = [i for i in found.program.instructions if i.op == "matmul"]
    assert [str(v) for v in line.inputs] == ["x@R", "w@S(1)"]


def test_pins_come_up_whatever_they_cost() -> None:
    graph = training(MODELS["two products"])
    for pin in ("w1.grad @ P", "w1.grad @ R", "h @ S(0)", "h @ R", "w1 @ S(0)", "w1.new @ S(1)", "x @ S(1)"):
        found = completed(graph, program(f"    pin {pin}", "two"), "three")
        made = {str(v) for i in found.program.instructions for v in i.outputs}
        assert pin.replace(" ", "") in made, pin


def test_a_written_conversion_keeps_its_method() -> None:
    graph = training(MODELS["one product"])
    for method in ("grouped", "padded"):
        body = f"    w@S(0) = param()\n    w@R = all_gather(w@S(0), method = {method})"
        found = completed(graph, program(body), "three")
        (gather,) = [i for i in found.program.instructions if i.op == "all_gather" and i.section == "forward"]
        assert gather.method == method


@pytest.mark.parametrize(
    ("body", "code", "line"),
    [
        # the product is cut along out, so there are no partial sums of it
        ("    y@S(1) = matmul(x@R, w@S(1))\n    y@R = all_reduce(y@P)", "HAP603", 3),
        ("    w@S(0) = param()\n    w.new@S(1) = slice(w.new@R)", "HAP603", 3),
        ("    y@P = matmul(x@R, w@P)", "HAP605", 2),
        ("    x@R = all_gather(x@S(0))", "HAP605", 2),
    ],
)
def test_what_can_not_be_is_said(body: str, code: str, line: int) -> None:
    graph = training(MODELS["one product"])
    with pytest.raises(HapError) as stop:
        completed(graph, program(body), "pair")
    (found,) = stop.value.diagnostics
    assert (found.code, found.span.line) == (code, line), found.message
    assert stop.value.status == 1
    if code == "HAP603":
        assert "lines 2, 3" in found.message


def test_two_axes_are_refused() -> None:
    graph = training(MODELS["one product"])
    tree = program_in("program p for one {\n    mesh a = 1, b = 2\n    ...\n}\n")
    with pytest.raises(HapError) as stop:
        complete(verify(tree, graph, 2), tree, cluster(CLUSTERS["pair"]))
    assert [d.code for d in stop.value.diagnostics] == ["HAP604"]


def test_a_wish_brings_no_line_that_nobody_reads() -> None:
    """An offered set that has what is wanted may have more, where that costs nothing."""
    graph = training(MODELS["two products"])
    body = "    h@S(1) = matmul(x@R, w1@S(1))\n    h@R = all_gather(h@S(1))"
    for machines in ("pair", "three"):
        found = completed(graph, program(body, "two"), machines).program
        read = {v for i in found.instructions for v in i.inputs}
        new = graph.updates.values()
        made = {v for i in found.instructions if i.node is None and i.inputs for v in i.outputs if v.tensor not in new}
        assert {str(v) for v in made - read} <= {"h@R"} <= {str(v) for v in made}


def test_no_time_is_no_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    """That nothing was found in the time there was isn't the lines' fault."""
    late = error("HAP602", "no program was found in the time there was", status=1)

    def in_vain(*_: object, **__: object) -> Plan:
        raise late

    monkeypatch.setattr(complete_module, "plan", in_vain)
    with pytest.raises(HapError) as stop:
        completed(training(MODELS["one product"]), program("    y@S(1) = matmul(x@R, w@S(1))"), "pair")
    assert stop.value is late


@pytest.mark.parametrize("wide", [False, True], ids=["tables", "too wide for tables"])
def test_of_many_lines_the_few_that_contradict_are_found(monkeypatch: pytest.MonkeyPatch, wide: bool) -> None:
    """All lines of a program, and a parameter held in another way: in about twice as many tries as the number of lines can be halved."""
    graph, made = training(DEEP), cluster(CLUSTERS["pair"])
    tried = Tried(graph, made, cuts(graph, made)["even"], restriction=data_parallel(graph, True))
    whole = tried.program(cutting_planes(tried.space.graph).minimisers[0])
    tree = write(whole)
    found = decisions(tree, verify(tree, graph, len(made)))
    first = next(d for d in found if d.kind == "held")
    other = replace(first, target=R, span=replace(first.span, line=1000))
    if wide:
        monkeypatch.setattr(complete_module, "eliminate", too_wide)
    asked: list[int] = []
    feasible = complete_module._feasible
    monkeypatch.setattr(complete_module, "_feasible", lambda *a: asked.append(1) or feasible(*a))
    said = contradiction(graph, [*found, other], made).diagnostics[0]
    assert said.code == "HAP603" and f"the lines {first.span.line}, 1000 can't all stand" in said.message
    assert len(asked) <= 3 * math.log2(len(found)) + 6 < len(found)


def too_wide(*_: object, **__: object) -> None:
    raise TooWide(10**9, 10**10)


def test_a_class_that_nothing_computes_along_keeps_its_shares_where_memory_is_short() -> None:
    """`x@S(1)` is loaded because somebody asks for it, and takes memory; no call and no message is cut along `d`, so its shares are left as they are."""
    graph = training(MODELS["one product"], batch=1200, d=600)
    text = "    pin x @ S(1)\n    w@R = param()\n    y@S(0) = matmul(x@S(0), w@R)"
    tree = program_in(program(text))
    for memory in (6 * 2**20, 5 * 2**20):
        made = cluster(CLUSTERS["pair"].replace("1 GiB", f"{memory} B"))
        found = complete(verify(tree, graph, 2), tree, made)
        assert found.cost.fits and "x@S(1)" in {str(v) for i in found.program.instructions for v in i.outputs}


def test_an_open_pin_decides_nothing() -> None:
    graph = training(MODELS["one product"].replace("sgd(lr = 0.1)", "adam(lr = 0.1)"))
    free = completed(graph, program(""), "pair")
    for name in ("w.m", "w", "y", "x"):
        assert completed(graph, program(f"    pin {name} @ ?"), "pair").cost_s == free.cost_s


def test_a_pin_of_what_nobody_reads_is_kept() -> None:
    """A frozen parameter and an input that no call takes are loaded because a person asks for them, as they are asked for."""
    text = MODELS["one product"].replace("    y =", "    frozen spare : f32[d]\n    input other : f32[batch]\n    y =")
    graph, free = training(text), completed(training(text), program(""), "pair")
    lines = "    pin spare @ R\n    spare@S(0) = param()\n    pin other @ S(0)\n    pin other @ R"
    found = completed(graph, program(lines), "pair")
    made = [f"{i.op} {v}" for i in found.program.instructions for v in i.outputs if v.tensor in ("spare", "other")]
    assert sorted(made) == ["all_gather spare@R", "input other@R", "input other@S(0)", "param spare@S(0)"]
    assert found.cost_s > free.cost_s  # by the message
