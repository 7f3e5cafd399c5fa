"""What two programs do differently, and the choices that hardly matter."""

from __future__ import annotations

import pytest

from hapdsl.cost.comparison import anywhere, changes
from hapdsl.cost.evaluate import evaluate
from hapdsl.search.alternatives import Alternatives
from hapdsl.search.closecalls import close_calls
from hapdsl.search.planner import plan
from hapdsl.search.questions import HELD
from tests.search.asked import DEEP, RELATIVE, planned

from .small import CLUSTERS, MODELS, cluster, text_of, training


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


FROZEN = """
model adapted(d = 64, hidden = 64) {
    input x  : f32[1, d]
    frozen w : f32[d, hidden]
    frozen b : f32[hidden]
    param v  : f32[hidden, 1]
    loss = sum(matmul(add(matmul(x, w), b), v), [0, 1])
    train loss with sgd(lr = 0.1)
}
"""


def test_an_option_that_leaves_the_lines_as_they_are_is_no_alternative() -> None:
    """Frozen weights are read in pieces; whether they are held whole and cut, or in these pieces, is the same to all calls and messages. Asked for more
    than there are, every line of which some option changes the program is told once, and no other one."""
    p = planned(FROZEN, "alike")
    near, far = close_calls(p.known, 100)
    assert not {q for c in near for q in c.questions} & {q for c in far for q in c.questions}
    told = {(q.kind, q.tensor) for c in (*near, *far) for q in c.questions}
    changing, idle = set(), set()
    for q, o in p.asked:
        found = p.known.look(q, o, search=False) if o is not p.known.chosen(q) else None
        if found is not None:
            (changing if found.differs else idle).add((q.kind, q.tensor))
    assert told == changing and (HELD, "w") in idle and (HELD, "b") in idle - changing
