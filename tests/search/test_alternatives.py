"""Other choices and what they cost: against trying everything, against planning again without them, and against the rules
of arithmetic; plans read back from their text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from hapdsl.cluster import Cluster
from hapdsl.cost.comparison import anywhere, changes
from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.program import Program
from hapdsl.graph.training import Node, TrainingGraph
from hapdsl.lang.diagnostics import HapError
from hapdsl.search import spaces as spaces_module
from hapdsl.search.alternatives import Alternatives
from hapdsl.search.closecalls import close_calls
from hapdsl.search.eliminate import TooWide, eliminate
from hapdsl.search.planner import plan
from hapdsl.search.questions import (
    CALL,
    CARRIED,
    CARRIES,
    HELD,
    OFFERED,
    READ,
    Option,
    Question,
    questions,
    tensor_named,
)
from hapdsl.search.readback import assignment_of, makes_again
from hapdsl.search.restriction import Restriction
from hapdsl.search.schedule import Scheduler
from hapdsl.search.shares import layout_of, proportional
from hapdsl.search.space import Space
from hapdsl.search.structure import Structure
from hapdsl.theory.placements import R
from hapdsl.theory.rules import Rule

from .small import CLUSTERS, MODELS, Tried, cluster, everything, reread, spare, text_of, training

RELATIVE = 1e-9
DEEP = """
model deep(batch = 12, d = 8, layers = 4) {
    input rows : f32[batch, d]
    x = relu(rows)
    repeat layer in layers {
        param w : f32[d, d]
        x = relu(matmul(x, w))
    }
    loss = sum(x, [0, 1])
    train loss with sgd(lr = 0.1)
}
"""


WIDE = """
model wide(batch = 4096, d = 8) {
    input x : f32[batch, d]
    param v : f32[d, d]
    param w : f32[d, d]
    h = relu(matmul(x, v))
    y = matmul(h, w)
    loss = sum(y, [0, 1])
    train loss with sgd(lr = 0.1)
}
"""


@dataclass(frozen=True)
class Planned:
    graph: TrainingGraph
    made: Cluster
    program: Program
    known: Alternatives

    @property
    def asked(self) -> list[tuple[Question, Option]]:
        every = (q for t in self.graph.tensors for q in questions(self.known.structure, t))
        return [(q, o) for q in every for o in q.options]


@cache
def planned(model: str, machines: str, objective: str = "sync") -> Planned:
    graph, made = training(MODELS.get(model, model)), cluster(CLUSTERS[machines])
    program = plan(graph, made, objective=objective, baselines=False).program
    return Planned(graph, made, program, Alternatives(program, made, objective))


def additive(p: Planned, assignment: tuple[int, ...]) -> float:
    return p.known.solved.space.graph.cost(assignment, p.known.solved.pricing.prices)


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


def test_a_graph_that_is_too_wide_gets_the_same_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    p = planned("two products", "pair")
    real = spaces_module.cutting_planes

    def refuse(*args: object, **options: object) -> object:
        if options.get("solve") is None:
            raise TooWide(10**9, 10**10)
        return real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(spaces_module, "cutting_planes", refuse)
    wide = Alternatives(p.program, p.made)
    assert not wide.exact
    assert close_calls(wide, 3) == ([], [])
    assert wide.cost_s == pytest.approx(p.known.cost_s, rel=RELATIVE)
    for answer in wide.of("h"):
        for a in answer.alternatives:
            assert a.cost_s is not None and wide.bound_s * (1 - 1e-6) <= a.bound_s <= a.cost_s * (1 + RELATIVE)
            graph = wide.only(wide.views[0], answer.question.variable, a.option.values)
            assert a.bound_s == pytest.approx(eliminate(graph, wide.solved.pricing.prices).bound, rel=1e-6)


# -- plans read back ---------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["sync", "overlap"])
@pytest.mark.parametrize("machines", ["pair", "network", "measured"])
@pytest.mark.parametrize("model", MODELS)
def test_a_plans_text_is_the_plan_again(model: str, machines: str, objective: str) -> None:
    p = planned(model, machines, objective)
    cost = evaluate(p.program, p.made)
    assert p.known.written_s == (cost.sync_s if objective == "sync" else cost.overlap_s)
    # The plan may stand in a better order than the canonical one.
    assert p.known.written_s <= p.known.cost_s * (1 + RELATIVE)
    checked = reread(p.program, p.graph, len(p.made))
    again = Alternatives(checked.program, p.made, objective)
    assert again.plan == p.known.plan
    program = again.solved.scheduler.program(again.solved.space.choice(again.plan))
    own = sorted(str((i.op, i.inputs, i.outputs)) for i in p.program.instructions)
    assert sorted(str((i.op, i.inputs, i.outputs)) for i in program.instructions) == own


def test_a_program_in_another_order_is_compared_in_the_searchs_own() -> None:
    """The same lines, moved about: as written they cost otherwise, as choices they are the same."""
    p = planned(WIDE, "latency")
    lines = p.program.instructions
    late = [i for i in lines if i.is_collective and i.section == "backward"]
    rest = [i for i in lines if i not in late]
    cut = next(k for k, i in enumerate(rest) if i.section == "update")
    split = [
        type(i)(i.op, (a,), (b,), i.section, method=i.method)
        for i in late
        for a, b in zip(i.inputs, i.outputs, strict=True)
    ]
    other = Program("moved", p.graph, p.program.layout, [*rest[:cut], *split, *rest[cut:]])
    assert len(split) > len(late)  # what was sent together is sent piece by piece
    known = Alternatives(other, p.made)
    assert known.plan == p.known.plan
    assert known.cost_s == pytest.approx(p.known.cost_s, rel=RELATIVE)
    assert known.written_s > known.cost_s


TIGHT = """
cluster tight {{
    device quick {{ compute = 8 MFLOP/s, memory = {memory} B, bandwidth = 100 MB/s, launch = 1 us }}
    device slow  {{ compute = 3 MFLOP/s, memory = {memory} B, bandwidth = 60 MB/s, launch = 2 us }}
    node host = 1 * quick, 1 * slow over {{ bandwidth = 20 MB/s, latency = 1 us }}
}}
"""


def thrifty(graph: TrainingGraph, made: Cluster) -> Program:
    """A program that computes the first layer twice and gathers, or loads, some parameters for each pass."""
    layout = layout_of(proportional(graph, made.speeds("f32")), len(made))
    structure = Structure(graph, None, (), carry=True)
    space = Space(graph, layout, made, None, "sync", structure)
    for name, how in (("layer.0.x", "recomputed"), ("layer.1.w", "again"), ("layer.2.w", "again")):
        held = structure.holds.get(name, ())
        allowed = [w == how for w in structure.carries[name]]
        space.graph.factor((structure.offer_variable[name],), np.where(allowed, 0.0, np.inf))
        if held:  # in shards, and gathered
            gathered = [h != R and R in o for h, o in held]
            space.graph.factor((structure.offer_variable[name],), np.where(gathered, 0.0, np.inf))
    best = eliminate(space.graph, [1 / len(space.timed)] * len(space.timed)).best()
    return Scheduler(space.conversions).program(space.choice(best))


def test_where_memory_is_short_a_plan_that_makes_things_again_is_read_back() -> None:
    """What it gathers and computes twice is a choice of its own; programs that don't fit are no answer."""
    graph, roomy = training(DEEP, batch=64), cluster(TIGHT.format(memory=2**30))
    program = thrifty(graph, roomy)
    assert makes_again(program) and not makes_again(plan(graph, roomy, baselines=False).program)
    made = cluster(TIGHT.format(memory=int(evaluate(program, roomy).memory_bytes.max())))
    known = Alternatives(program, made)
    choice = known.solved.space.choice(known.plan)
    assert {n: choice.carry[n] for n in ("layer.0.x", "layer.1.w", "layer.2.w")} == {
        "layer.0.x": "recomputed",
        "layer.1.w": "again",
        "layer.2.w": "again",
    }
    assert known.cost_s == pytest.approx(known.written_s, rel=RELATIVE)
    again = known.solved.scheduler.program(choice)
    own = sorted(str((i.op, i.section, i.inputs, i.outputs)) for i in program.instructions)
    assert sorted(str((i.op, i.section, i.inputs, i.outputs)) for i in again.instructions) == own
    kinds = set()
    for name in choice.carry:
        for answer in known.of(name):
            kinds.add(answer.question.kind)
            if answer.question.kind == CARRIED:
                assert answer.chosen.option.text == CARRIES[choice.carry[name]]
            for a in answer.alternatives:
                if a.cost_s is None:
                    with pytest.raises(ValueError, match="fits"):
                        known.program_of(a)
                else:
                    assert evaluate(known.program_of(a), made).fits
                    assert a.bound_s <= a.cost_s * (1 + RELATIVE)
    assert kinds == {CALL, HELD, OFFERED, CARRIED}


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


# -- differences and close calls -----------------------------------------------------------------


def test_differences_of_a_program_with_itself_and_backwards() -> None:
    p = planned("bias", "network")
    here = p.known.price(p.known.plan)
    assert changes(p.graph, here.lines, here.lines) == []
    for question, option in p.asked[::3]:
        found = p.known.look(question, option)
        if found is None or not found.changes:
            continue
        other = p.known.price(found.assignment)
        there, back = changes(p.graph, here.lines, other.lines), changes(p.graph, other.lines, here.lines)
        assert sum(c.delta_s for c in there) == pytest.approx(-sum(c.delta_s for c in back), abs=1e-12)
        swapped = {"more": "less", "less": "more", "other": "other"}
        assert sorted((c.tensors, swapped[c.how]) for c in there) == sorted((c.tensors, c.how) for c in back)
        sizes = [abs(c.delta_s) for c in there]
        assert sizes == sorted(sizes, reverse=True) and min(sizes) > 0


def test_turns_of_a_repeat_are_one_change() -> None:
    assert anywhere("layer.12.block.w1") == "layer.*.block.w1"
    p = planned(DEEP, "pair")
    far = [c for q, o in p.asked if (f := p.known.look(q, o, search=False)) is not None for c in f.changes]
    assert any(len(c.tensors) > 1 and "layer.*" in c.text for c in far)
    assert all(f"{anywhere(t)}@" in c.text for c in far for t in c.tensors)


@pytest.mark.parametrize("machines", ["pair", "network"])
def test_close_calls(machines: str) -> None:
    """Their best alternatives cost no less than what any line's does; lines of one program are together; each line once."""
    p = planned(DEEP, machines)
    near, far = close_calls(p.known, 4)
    assert near and len(near) <= 4 and len(far) <= 4
    assert [c.cost_s for c in near] == sorted(c.cost_s for c in near)
    assert [c.cost_s for c in far] == sorted((c.cost_s for c in far), reverse=True)
    named = [q for call in (*near, *far) for q in call.questions]
    assert len(set(named)) == len(named)
    assert all(c.alternative.differs and c.chosen is not c.alternative.option for c in (*near, *far))
    looked = [p.known.look(q, o, search=False) for q, o in p.asked]
    best = min(a.cost_s for a in looked if a is not None and a.differs and a.cost_s is not None)
    assert near[0].cost_s == pytest.approx(best, rel=0.02)


def test_one_device_has_no_close_calls() -> None:
    text = CLUSTERS["alike"].replace("2 * quick", "1 * quick")
    graph, made = training(MODELS["bias"]), cluster(text)
    known = Alternatives(plan(graph, made, baselines=False).program, made)
    assert close_calls(known, 5) == ([], [])
    for tensor in graph.tensors:
        for answer in known.of(tensor):
            assert all(a.cost_s == pytest.approx(known.cost_s, rel=RELATIVE) for a in answer.alternatives)


def test_an_equally_good_program_is_the_closest_call() -> None:
    """Gathering the gradient's halves, or the updated weight's: as many bytes. The plan's own lines are no alternative to it."""
    p = planned("one product", "alike")
    first = close_calls(p.known, 3)[0][0]
    assert (first.questions[0].kind, first.questions[0].tensor) == (HELD, "w")
    assert first.cost_s == pytest.approx(p.known.cost_s, rel=RELATIVE)
    there = p.known.program_of(first.alternative)
    assert evaluate(there, p.made).sync_s == pytest.approx(p.known.cost_s, rel=RELATIVE)
    assert {str(i) for i in there.instructions if i.is_collective} != {
        str(i) for i in p.program.instructions if i.is_collective
    }
    idle = [a for q, o in p.asked if (a := p.known.look(q, o)) is not None and not a.differs]
    assert idle and all(a.cost_s == p.known.cost_s and not a.changes for a in idle)


def test_choices_are_said_as_the_language_writes_them() -> None:
    p = planned("two products", "pair")
    (call, _) = p.known.of("h")
    assert call.chosen.option.text in " ".join(text_of(p.program).split())
