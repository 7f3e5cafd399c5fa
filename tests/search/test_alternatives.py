"""Other choices and what they cost: against trying everything, against planning again without them, and against the rules
of arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.training import Node
from hapdsl.lang.diagnostics import HapError
from hapdsl.search import alternatives as alternatives_module
from hapdsl.search import spaces as spaces_module
from hapdsl.search.alternatives import Alternatives
from hapdsl.search.closecalls import close_calls
from hapdsl.search.eliminate import TooWide, eliminate
from hapdsl.search.planner import plan
from hapdsl.search.questions import CALL, HELD, OFFERED, READ, Option, Question, questions, tensor_named
from hapdsl.search.readback import assignment_of
from hapdsl.search.restriction import Restriction
from hapdsl.search.space import Space
from hapdsl.search.structure import Structure
from hapdsl.theory.rules import Rule
from tests.search.asked import DEEP, RELATIVE, Planned, additive, planned

from .small import CLUSTERS, MODELS, Tried, cluster, everything, reread, spare, training

# -- against trying everything ---------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("machines", ["alike", "pair"])
def test_each_choice_costs_what_trying_everything_says(machines: str) -> None:
    """Bound and true cost of the best of all programs that take an option, over all of more than ten thousand."""
    p = planned("one product", machines)
    graph = p.known.solved.space.graph
    tried = Tried(p.graph, p.made, p.known.solved.shares)
    every = [(a, additive(p, a), tried.scheduler.seconds(tried.space.choice(a), "sync")) for a in everything(graph)]
    assert len(every) > 10_000
    for question, option in p.asked:
        found = p.known.look(question, option)
        having = [(low, true) for a, low, true in every if a[question.variable] in option.values]
        if found is None:
            assert not having
            continue
        least, true = min(low for low, _ in having), min(t for _, t in having)
        assert p.known.least(question.variable, option.values)[0] == pytest.approx(least, rel=RELATIVE)
        assert found.cost_s == pytest.approx(true, rel=RELATIVE)
        assert least * (1 - RELATIVE) <= found.bound_s <= true * (1 + RELATIVE)


@pytest.mark.long
@pytest.mark.parametrize("machines", ["latency", "three", "network", "measured"])
@pytest.mark.parametrize("model", ["one product", "tied weight"])
def test_no_program_that_takes_a_choice_is_below_its_bound(model: str, machines: str) -> None:
    """Of a few thousand programs at random; and what is reported is as good as the best of them, or nearly."""
    p = planned(model, machines)
    graph = p.known.solved.space.graph
    tried = Tried(p.graph, p.made, p.known.solved.shares)
    rng = np.random.default_rng(0)
    every = (next(everything(graph, rng)) for _ in range(400))
    sample = [(a, tried.scheduler.seconds(tried.space.choice(a), "sync")) for a in every if not spare(graph, a)]
    for question, option in p.asked:
        found = p.known.look(question, option)
        costs = [true for a, true in sample if a[question.variable] in option.values]
        if costs:
            assert found is not None and found.cost_s is not None
            assert found.bound_s <= min(costs) * (1 + RELATIVE)
            assert found.cost_s <= min(costs) * 1.05


# -- against planning again --------------------------------------------------------------


def only(p: Planned, question: Question, option: Option) -> Restriction:
    """The part of the space where a call has one rule, or a parameter one placement."""
    if question.kind == HELD:
        return Restriction(
            allow_held=lambda name, placement: name != question.tensor or (placement,) == option.placements
        )
    k = p.graph.producer[question.of]
    node, rule = p.graph.nodes[k], p.known.structure.rules[k][option.values[0]]

    def allow(other: Node, r: Rule) -> bool:
        return other is not node or r == rule

    return Restriction(allow)


@pytest.mark.parametrize("machines", ["pair", "three", "measured"])
@pytest.mark.parametrize("model", MODELS)
def test_bounds_are_those_of_a_space_without_the_rest(model: str, machines: str) -> None:
    """The marginals are the minima of spaces that were built anew with the other values left out."""
    p = planned(model, machines)
    solved = p.known.solved
    rng = np.random.default_rng(3)
    asked = [(q, o) for q, o in p.asked if q.kind in (CALL, HELD)]
    for i in rng.permutation(len(asked))[:8]:
        question, option = asked[i]
        structure = Structure(p.graph, only(p, question, option), p.known.structure.messages)
        space = Space(p.graph, solved.space.layout, p.made, None, "sync", structure)
        alone = eliminate(space.graph, solved.pricing.prices).bound if not structure.impossible else math.inf
        bound, candidates = p.known.least(question.variable, option.values)
        assert bound == pytest.approx(alone, rel=RELATIVE)
        for found in candidates:
            assert found[question.variable] in option.values
            assert additive(p, found) == pytest.approx(bound, rel=RELATIVE)


@pytest.mark.long
@pytest.mark.parametrize("objective", ["sync", "overlap"])
@pytest.mark.parametrize(
    ("model", "machines"), [("two products", "pair"), ("tied weight", "network"), ("bias", "latency")]
)
def test_planning_again_within_a_choice_finds_as_much(model: str, machines: str, objective: str) -> None:
    """Neither is below the other's bound; and where the planner proves its program best, it is the one found here."""
    p = planned(model, machines, objective)
    rng = np.random.default_rng(1)
    asked = [(q, o) for q, o in p.asked if q.kind in (CALL, HELD)]
    compared = 0
    for i in rng.permutation(len(asked))[:6]:
        question, option = asked[i]
        found = p.known.look(question, option)
        again = only(p, question, option)
        if found is None:
            with pytest.raises(HapError):
                plan(
                    p.graph,
                    p.made,
                    restriction=again,
                    fixed=p.known.solved.shares,
                    objective=objective,
                    baselines=False,
                )
            continue
        other = plan(
            p.graph,
            p.made,
            restriction=again,
            fixed=p.known.solved.shares,
            objective=objective,
            baselines=False,
            gap=0.0,
        )
        assert found.cost_s is not None
        assert other.bound_s <= found.cost_s * (1 + RELATIVE)
        # The planner's program may be in a better order; bounds and costs here are those of the canonical one.
        choices = assignment_of(other.program, p.known.solved.space, p.known.solved.pricing.prices)
        canonical = p.known.price(choices).seconds
        assert found.bound_s <= canonical * (1 + RELATIVE)
        if other.bound_s >= canonical * (1 - RELATIVE):
            compared += 1
            assert found.cost_s == pytest.approx(canonical, rel=RELATIVE)
    assert compared or objective == "overlap"


# -- what always holds --------------------------------------------------------------------


EVERYWHERE = [(m, c) for m in MODELS for c in ("pair", "network")]


@pytest.mark.parametrize(("model", "machines"), EVERYWHERE)
def test_invariants(model: str, machines: str) -> None:
    """No alternative is below the plan's bound; some option of each question attains it; differences add up; order."""
    p = planned(model, machines)
    known, tolerance = p.known, RELATIVE * p.known.cost_s
    for tensor in p.graph.tensors:
        for answer in known.of(tensor):
            assert answer.chosen.cost_s == known.cost_s
            assert answer.kept_s <= known.cost_s + tolerance
            bounds = [answer.chosen.bound_s, *(a.bound_s for a in answer.alternatives)]
            assert min(
                known.least(answer.question.variable, o.values)[0] for o in answer.question.options
            ) == pytest.approx(known.bound_s, rel=RELATIVE)
            assert min(bounds) >= known.bound_s - tolerance
            costs = [a.cost_s for a in answer.alternatives]
            assert costs == sorted(costs, key=lambda c: math.inf if c is None else c)
            shown = {answer.chosen.option.text, *(a.option.text for a in answer.alternatives)}
            assert len(shown) == 1 + len(answer.alternatives)
            for a in answer.alternatives:
                assert a.cost_s is not None and a.bound_s <= a.cost_s + tolerance
                assert a.communication_s + a.compute_s == pytest.approx(a.cost_s - known.cost_s, abs=tolerance)
                moved = sum(c.delta_s for c in a.changes if c.kind == "communication")
                assert moved == pytest.approx(a.communication_s, abs=1e-7 * known.cost_s)
                assert a.differs or a.cost_s == pytest.approx(known.cost_s, rel=RELATIVE)


@pytest.mark.parametrize(("model", "machines"), [(m, c) for m in MODELS for c in ("alike", "network")])
def test_without_a_gap_the_plans_own_choices_cost_least(model: str, machines: str) -> None:
    p = planned(model, machines)
    if p.known.cost_s > p.known.bound_s * (1 + RELATIVE):  # there is a gap
        assert machines == "network"
        return
    for tensor in p.graph.tensors:
        for answer in p.known.of(tensor):
            assert answer.chosen.bound_s == pytest.approx(p.known.bound_s, rel=RELATIVE)
            assert answer.kept_s == pytest.approx(p.known.cost_s, rel=RELATIVE)
            assert all(
                a.cost_s is not None and a.cost_s >= p.known.cost_s * (1 - RELATIVE) for a in answer.alternatives
            )


@pytest.mark.parametrize(
    ("model", "machines", "objective"), [("bias", "three", "sync"), ("tied weight", "pair", "overlap")]
)
def test_every_program_behind_an_alternative_is_proven_and_costs_what_is_said(
    model: str, machines: str, objective: str
) -> None:
    """Written down, checked and priced from scratch, it has the option in its lines."""
    p = planned(model, machines, objective)
    known = p.known
    for question, option in p.asked[::5]:
        found = known.look(question, option)
        if found is None:
            continue
        assert found.assignment[question.variable] in option.values
        program = known.program_of(found)
        checked = reread(program, p.graph, len(p.made))
        assert checked.ok and not checked.sketch
        cost = evaluate(program, p.made)
        assert (cost.sync_s if objective == "sync" else cost.overlap_s) == pytest.approx(found.cost_s, rel=RELATIVE)
        values = {str(v) for i in program.instructions for v in (*i.inputs, *i.outputs)}
        if question.kind != OFFERED:
            assert {f"{question.tensor}@{placement}" for placement in option.placements} <= values


def test_questions_cover_what_a_program_chooses() -> None:
    p = planned("bias", "pair")
    structure = p.known.structure
    kinds = {t: [q.kind for q in questions(structure, t)] for t in p.graph.tensors}
    assert kinds["u"] == [CALL, OFFERED]
    assert kinds["w"] == [HELD, OFFERED]
    assert kinds["x"] == [READ, READ]  # by u and by w's gradient
    assert kinds["w.new"] == [CALL]
    asked = {q.variable for t in p.graph.tensors for q in questions(structure, t)}
    assert asked == set(structure.rule_variable) | set(structure.offer_variable.values())
    for question, _ in p.asked:
        values = sorted(v for o in question.options for v in o.values)
        assert values == list(range(structure.base.sizes[question.variable]))


# -- where tables would be too wide ----------------------------------------------------------


def too_wide(p: Planned, monkeypatch: pytest.MonkeyPatch) -> Alternatives:
    """Where elimination refuses."""
    real = spaces_module.cutting_planes

    def refuse(*args: object, **options: object) -> object:
        if options.get("solve") is None:
            raise TooWide(10**9, 10**10)
        return real(*args, **options)

    monkeypatch.setattr(spaces_module, "cutting_planes", refuse)
    return Alternatives(p.program, p.made)


def test_a_graph_that_is_too_wide_gets_the_same_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    p = planned("two products", "pair")
    wide = too_wide(p, monkeypatch)
    assert not wide.exact
    assert close_calls(wide, 3) == ([], [])
    assert wide.cost_s == pytest.approx(p.known.cost_s, rel=RELATIVE)
    for answer in wide.of("h"):
        for a in answer.alternatives:
            assert a.cost_s is not None and wide.bound_s * (1 - 1e-6) <= a.bound_s <= a.cost_s * (1 + RELATIVE)
            graph = wide.only(wide.views[0], answer.question.variable, a.option.values)
            assert a.bound_s == pytest.approx(eliminate(graph, wide.solved.pricing.prices).bound, rel=1e-6)


def test_a_graph_that_is_too_wide_and_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """HiGHS comes to no program with an option: then the plan's own is looked at, changed in one place."""
    p = planned("two products", "pair")
    wide = too_wide(p, monkeypatch)
    monkeypatch.setattr(alternatives_module, "by_milp", lambda *_, **__: lambda prices: (0.0, None))
    for tensor in p.graph.tensors:
        for answer in wide.of(tensor):
            for a in answer.alternatives:
                assert a.cost_s is not None and a.assignment[answer.question.variable] in a.option.values
                assert a.cost_s >= p.known.bound_s * (1 - RELATIVE)


# -- names, and programs that can't be compared ------------------------------------------------


def test_names() -> None:
    graph = training(DEEP)
    name = next(n for n in graph.tensors if n.endswith("2.w"))
    assert tensor_named(graph, name) == name
    assert tensor_named(graph, "*.2.w") == name
    assert tensor_named(graph, "2.w") == name
    assert tensor_named(graph, "loss") == "loss"
    for wrong, said in (("w", "may be 4 tensors"), ("*w", "may be 8"), ("layr.2.w", "no tensor"), ("zzz", "no tensor")):
        with pytest.raises(HapError, match=said) as stop:
            tensor_named(graph, wrong)
        assert stop.value.diagnostics[0].code == "HAP611"
        assert stop.value.diagnostics[0].help
        assert stop.value.status == 2
    with pytest.raises(HapError) as stop:
        tensor_named(graph, "layr.2.w")
    assert "layer.2.w" in stop.value.diagnostics[0].help


UNUSED = """
model unused(batch = 12, d = 6) {
    input x : f32[batch, d]
    input y : f32[batch]
    loss = sum(x, [0, 1])
    output loss
}
"""


def test_a_tensor_that_nothing_needs() -> None:
    graph, made = training(UNUSED, train=False), cluster(CLUSTERS["pair"])
    known = Alternatives(plan(graph, made, baselines=False).program, made)
    assert known.of("x")
    with pytest.raises(HapError, match="nothing reads the input 'y'") as stop:
        known.of("y")
    assert stop.value.diagnostics[0].code == "HAP612"
    with pytest.raises(KeyError):
        known.of("z")


def test_another_number_of_devices() -> None:
    p = planned("one product", "pair")
    with pytest.raises(HapError) as stop:
        Alternatives(p.program, cluster(CLUSTERS["three"]))
    assert stop.value.diagnostics[0].code == "HAP420"
