"""New parameters and state are written over the old ones where nothing else wants these, and nowhere else."""

from __future__ import annotations

import pytest
import torch

from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.inplace import OVERWRITES, scaled
from hapdsl.lang.diagnostics import HapError
from hapdsl.run.actions import Action
from hapdsl.run.context import dtypes_at
from hapdsl.run.distributed import Rank
from hapdsl.run.initial import initial, random_inputs
from hapdsl.run.inplace import written
from hapdsl.run.kernels import KERNELS, OVER
from hapdsl.run.launch import launch
from hapdsl.run.live import peak_bytes
from hapdsl.run.lower import lower
from hapdsl.search.baselines import baselines
from hapdsl.workbench import Workbench
from tests.graph.helpers import graph_of
from tests.run.programs import HALF

# An output is a view of u, which must therefore stay as it is.
TEXT = """
model net(batch = 8, d = 64) {
    input x : f32[batch, d]
    param w : f32[d, d] init normal(std = 0.1)
    param u : f32[d, d] init normal(std = 0.1)
    y = matmul(matmul(x, w), u)
    seen = transpose(u, perm = [1, 0])
    loss = mse_loss(y, x)
    output seen
    train loss with %s
}
cluster two {
    device d { compute = 1 TFLOP/s, memory = 1 GiB, bandwidth = 10 GB/s }
    node host = 2 * d over { bandwidth = 1 GB/s }
}
"""
UPDATES = ("sgd(lr = 0.1, weight_decay = 0.1)", "momentum(lr = 0.1)", "adam(lr = 0.1)", "adamw(lr = 0.1)")


def programs(update, text=TEXT):
    bench = Workbench("net.hap", text % update)
    found = baselines(bench.graph("net", {}), bench.cluster("two"))
    return bench, {name: plan.program for name, plan in found.items() if plan is not None}


def named(program, dtypes=None):
    """What each update of a program writes over on the first device."""
    lowered = lower(program, [0], **({} if dtypes is None else {"dtypes": dtypes}))
    return {
        str(lowered.steps[k].instruction.inputs[at].tensor)
        for k, places in written(lowered, 0).items()
        for at in places
    }


def test_what_is_seen_elsewhere_is_not_written_over():
    _, found = programs("adam(lr = 0.1)")
    assert named(found["dp_even"]) == {"w", "w.m", "w.v", "u.m", "u.v"}


def test_the_rule_and_the_kernels_name_the_same_updates():
    assert {f"hapdsl.{name}" for name, kernel in KERNELS.items() if kernel in OVER} == OVERWRITES


def side_by_side(reporter, found):
    """One rank that writes over, and one that never does: what they hold and say, bit by bit, over steps."""
    for name, program in found.items():
        batch = random_inputs(program.graph)
        ranks = []
        for over in (True, False):
            rank = Rank(program)
            if not over:
                rank.written = {}
                rank.loop = rank.listed([*rank.lowered.loop, *rank.lowered.after])
            rank.load(initial(program.graph, 0))
            ranks.append(rank)
        over, fresh = ranks
        first = dict(over.held)  # kept until it has been compared with, so that nothing new lies where it was
        alike = True
        for _ in range(3):
            before = {v: t.clone() for v, t in fresh.held.items()}
            made = [rank.step(rank.feed(batch)) for rank in ranks]
            alike &= all(torch.equal(made[0][v], made[1][v]) for v in made[1]) and made[0].keys() == made[1].keys()
            alike &= all(torch.equal(over.held[v], t) for v, t in fresh.held.items())
            alike &= not any(torch.equal(before[v], t) for v, t in fresh.held.items())
        stayed = {v.tensor for v, t in over.held.items() if t.data_ptr() == first[v].data_ptr()}
        del first
        held = [peak_bytes(rank, rank.feed(batch)) for rank in ranks]
        reporter.send("found", name=name, alike=alike, stayed=sorted(stayed), held=held)


def test_numbers_are_the_same_and_memory_is_as_predicted():
    chosen, seen, predicted = {}, {}, {}
    for update in UPDATES:
        bench, plain = programs(update, TEXT.replace("output seen", ""))
        found = {"seen": programs(update)[1]["dp_even"], "dp_even": plain["dp_even"], "zero": plain["zero"]}
        for name, program in found.items():
            chosen[f"{name} {update}"] = program
            predicted[f"{name} {update}"] = evaluate(program, bench.cluster("two")).memory.peak.tolist()
    launch(side_by_side, 2, (chosen,), lambda rank, h, _: seen.update({(h["name"], rank): h}), method="fork")
    assert len(seen) == 24
    for (name, rank), header in seen.items():
        assert header["alike"], (name, rank)
        state = {"adam": "mv", "adamw": "mv", "momentum": "m", "sgd": ""}[name.split()[1].split("(")[0]]
        parts = {f"{p}.{s}" for p in "wu" for s in state}
        assert set(header["stayed"]) == parts | ({"w"} if name.startswith("seen") else {"w", "u"}), name
        over, fresh = header["held"]
        if not name.startswith("seen"):  # which is a view, and no memory of its own
            assert abs(over - predicted[name][rank]) <= 4, (name, over, predicted[name])
            assert over <= fresh - (16000 * len(state) if name.startswith("dp_even") else 0), (name, over, fresh)


def interrupted(reporter, program):
    rank = Rank(program)
    rank.load(initial(program.graph, 0))
    fed = rank.feed(random_inputs(program.graph))
    rank.step(fed)
    whole = {v: t.clone() for v, t in rank.held.items()}
    actions = list(rank.loop)
    updates = [n for n, a in enumerate(actions) if a.step in rank.written]

    def breaks(store):
        raise KeyboardInterrupt

    def tried(at):
        rank.loop = [*actions[:at], Action("compute", actions[at].step, breaks), *actions[at + 1 :]]
        with pytest.raises(KeyboardInterrupt):
            rank.step(fed)
        rank.under.clear()

    tried(updates[0])  # nothing is changed yet
    untouched = all(torch.equal(t, whole[v]) for v, t in rank.held.items())
    tried(updates[-1])
    codes = []
    for ask in (lambda: rank.step(fed), lambda: rank.held):
        with pytest.raises(HapError) as stop:
            ask()
        codes += [d.code for d in stop.value.diagnostics]
    rank.held = whole  # as from a checkpoint
    rank.loop = actions
    rank.step(fed)
    reporter.send("found", untouched=untouched, codes=codes)


def test_a_step_that_ends_in_the_middle_of_its_updates():
    """What is half new is no state to go on from, or to write."""
    _, found = programs("adam(lr = 0.1)")
    said = []
    launch(interrupted, 2, (found["dp_even"],), lambda rank, h, _: said.append(h), method="fork")
    assert [(h["untouched"], h["codes"]) for h in said] == [(True, ["HAP764", "HAP764"])] * 2


def test_what_a_cast_passes_on_is_not_written_over():
    """With a master copy, the parameter is its cast: at one precision for both they are one tensor, and the parameter may still be read."""
    text = """
model net(batch = 8, d = 4) {
    input x : f32[batch, d]
    param w : bf16[d, d] master f32 init normal(std = 0.1)
    loss = mse_loss(cast(matmul(cast(x, to = bf16), w), to = f32), x)
    train loss with adam(lr = 0.1)
}
"""
    bench = Workbench("net.hap", text + TEXT[TEXT.index("cluster") :])
    program = baselines(bench.graph("net", {}), bench.cluster("two"))["dp_even"].program
    assert named(program) == {"w.master", "w.m", "w.v"}
    assert {n.rpartition(".")[2] for n in named(program, dtypes_at(torch.float64))} == {"m", "v"}


def test_gradients_in_f16_may_be_taken_back():
    assert scaled(graph_of(HALF.replace("CLIP", "")))
    assert not scaled(graph_of(HALF.replace("CLIP", "").replace("f16", "bf16")))
