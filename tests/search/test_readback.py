"""Plans read back from their text, in any order of their lines, with things that are made again."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hapdsl.check.verify import verify
from hapdsl.cluster import Cluster
from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.program import Program
from hapdsl.graph.training import TrainingGraph
from hapdsl.search.alternatives import Alternatives
from hapdsl.search.eliminate import eliminate
from hapdsl.search.planner import plan
from hapdsl.search.questions import CALL, CARRIED, CARRIES, HELD, OFFERED
from hapdsl.search.readback import cut_classes, makes_again
from hapdsl.search.schedule import Scheduler
from hapdsl.search.shares import layout_of, proportional
from hapdsl.search.space import Space
from hapdsl.search.structure import Structure
from hapdsl.theory.placements import R
from hapdsl.workbench import Workbench
from tests.search.asked import DEEP, RELATIVE, WIDE, planned
from tests.texts import PROGRAM, TINY, program_in

from .small import CLUSTERS, MODELS, Tried, cluster, cuts, everything, reread, training


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


CUT_THREE_WAYS = """
model cube(a = 8, b = 8, c = 8) {
    input x : f32[a, b, c]
    param w : f32[c, c]
    h = matmul(x, w)
    p = softmax(h)
    q = cumsum(h, dim = 1)
    r = cumsum(h, dim = 0)
    output p, q, r
}
"""
THREE_WAYS = """
program ways for cube {
    shares a = [4, 4]
    shares b = [4, 4]
    shares c = [4, 4]
    forward {
        x@S(0) = input()
        w@R    = param()
        h@S(0) = matmul(x@S(0), w@R)
        p@S(0) = softmax(h@S(0))
        h@S(1) = all_to_all(h@S(0))
        r@S(1) = cumsum(h@S(1))
        h@S(2) = all_to_all(h@S(0))
        q@S(2) = cumsum(h@S(2))
    }
}
"""


def test_what_is_offered_in_more_ways_than_the_search_thinks_of_is_read_as_it_is_computed() -> None:
    """Each of three readers has its own shards, by two messages. The search offers two ways at most, or the whole: by one message here."""
    graph, made = training(CUT_THREE_WAYS, train=False), cluster(CLUSTERS["alike"])
    checked = verify(program_in(THREE_WAYS), graph, 2)
    assert checked.ok and not checked.sketch, list(checked.diagnostics)
    known = Alternatives(checked.program, made)
    read = known.solved.scheduler.program(known.solved.space.choice(known.plan))
    computed = [[str(v) for v in (*i.inputs, *i.outputs)] for i in read.instructions if i.is_compute]
    assert sorted(computed) == sorted([str(v) for v in (*i.inputs, *i.outputs)] for i in checked.program.instructions if i.is_compute)  # fmt: skip
    assert [f"{i.op} {i.outputs[0]}" for i in read.instructions if i.is_collective] == ["all_gather h@R"]


def test_what_nobody_reads_may_be_left_out_of_a_program() -> None:
    """Training leaves outputs as they lie, also those that are not made at all; the search makes them."""
    text = TINY.replace("    loss =", "    more = exp(z)\n    loss =").replace("    output z", "    output z, more")
    bench = Workbench("t.hap", text + PROGRAM)
    checked = bench.proven(bench.program())
    assert not any(v.tensor == "more" for i in checked.program.instructions for v in i.outputs)
    known = Alternatives(checked.program, bench.cluster("pair"))
    read = known.solved.scheduler.program(known.solved.space.choice(known.plan))
    written = [str(i.outputs) + str(i.inputs) for i in checked.program.instructions if i.is_compute]
    found = {str(i.outputs) + str(i.inputs): i.outputs[0].tensor for i in read.instructions if i.is_compute}
    assert set(written) < set(found) and {t for k, t in found.items() if k not in written} == {"more"}


# A dim of 6 that is read as 2 by 3 and as `g` by so many.
MERGED = """
model merged(batch = 8, d = 6, g = 3) {
    input x  : f32[batch, d]
    frozen f : f32[d]
    param w  : f32[d, d]
    u = mul(matmul(x, w), f)
    y = rearrange(u, "b (h e) -> b h e", h = 2)
    z = rearrange(u, "b (h e) -> b h e", h = g)
    loss = add(sum(y, [0, 1, 2]), sum(z, [0, 1, 2]))
    train loss with sgd(lr = 0.1)
}
"""


def test_a_class_of_one_unit_is_cut_nowhere() -> None:
    """With two units in place of one, there are programs that cut it."""
    made, cut = cluster(CLUSTERS["pair"]), []
    for g, units in ((3, 1), (2, 2)):
        graph = training(MERGED, g=g)
        assert graph.classes["d"].units == units
        tried = Tried(graph, made, cuts(graph, made)["even"])
        programs = [
            tried.program(a) for a in itertools.islice(everything(tried.space.graph, np.random.default_rng(g)), 30)
        ]
        cut.append({c for p in programs for c in cut_classes(p)})
    assert cut[0] == {"batch"} and cut[1] >= {"batch", "d"}
