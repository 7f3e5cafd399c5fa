"""Gradient accumulation: a batch in turns gives what the whole batch gives, wherever things lie; its cost and memory by hand."""

from __future__ import annotations

import dataclasses
import re
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from hapdsl.check.verify import verify
from hapdsl.check.write import write
from hapdsl.cluster import Cluster
from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.program import Layout, Program
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text
from hapdsl.run.initial import initial, random_inputs
from hapdsl.run.inprocess import InProcess, gather
from hapdsl.search.planner import plan
from tests.check.random_programs import random_program
from tests.graph.helpers import example, graph_of, same
from tests.graph.training_models import TRAINING
from tests.texts import cluster_in, program_in

ORACLE, SETTINGS, _ = TRAINING["accumulate"]
ONE = (("devices", 3),)
TWO = (("nodes", 2), ("devices", 2))


@cache
def graph(turns: int = 3, p: float = 0.0) -> TrainingGraph:
    return example("accumulate", **{**SETTINGS, "turns": turns, "p": p})


@cache
def start() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """First values, and a batch whose ignored labels are spread unevenly over turns and devices."""
    inputs = random_inputs(graph(), 5, torch.float64)
    inputs["target"][0], inputs["target"][1, 2:], inputs["target"][5, 0] = -100, -100, -100
    held = initial(graph(), 5, torch.float64)
    return {n: t * 10 if t.is_floating_point() and n.split(".")[-1][0] == "w" else t for n, t in held.items()}, inputs


def run(program: Program, steps: int = 2) -> dict[str, Tensor]:
    """Loss, norm, and everything that is kept, after some steps."""
    held, inputs = start()
    executor = InProcess(program, torch.float64)
    executor.load(held)
    for number in range(1, steps + 1):
        made = executor.step(inputs, number)
    names = {"loss": "loss", "grad.norm": "grad.norm", **program.graph.updates}
    return {old: gather(program, made, new, 1e-12) for old, new in names.items()}


def test_turns_add_up_to_the_whole_batch_of_torch() -> None:
    """Loss and norm of the first step; all gradients, by what a step of plain SGD moves."""
    held, inputs = start()
    leaves = {t.name: held[t.name].clone().requires_grad_() for t in graph().of_kind("param")}
    loss = ORACLE({**held, **inputs, **leaves, "step": held["step"].clone()})
    loss.backward()
    norm = torch.sqrt(sum((leaf.grad**2).sum() for leaf in leaves.values() if leaf.grad is not None))
    for turns, mesh, seed in ((2, ONE, 0), (3, ONE, 1), (6, TWO, 2)):
        made = run(random_program(graph(turns), mesh, seed), steps=1)
        same(made["loss"], loss, "loss")
        same(made["grad.norm"], norm, "norm")


@pytest.mark.parametrize("turns", [2, 3, 6])
def test_any_number_of_turns_gives_the_same(turns: int) -> None:
    """Two steps with dropout, whose masks are those of the whole batch, AdamW, a schedule and clipping."""
    whole = run(random_program(graph(1, 0.3), ONE, 3))
    assert graph(1, 0.3).turns == 1
    for mesh, seed in ((ONE, 3), (ONE, 4), (TWO, 5)):
        program = random_program(graph(turns, 0.3), mesh, seed)
        made = run(program)
        assert made.keys() == whole.keys()
        for name, value in whole.items():
            same(made[name].double(), value.double(), name, least=1e-9)


def test_the_mean_counts_labels_of_the_whole_batch() -> None:
    """Turns with many ignored labels weigh less: the average of the turns' own means would be another number."""
    _, inputs = start()
    counts = (inputs["target"].reshape(3, 2, -1) != -100).sum((1, 2))
    assert len(set(counts.tolist())) == 3


def test_written_read_and_proven() -> None:
    for seed in range(4):
        program = random_program(graph(), ONE, seed)
        text = to_text(write(program))
        assert text.count("microbatch 3 {") == 1
        inside = text[text.index("microbatch") : text.index("\n    update {")]
        assert "        forward {" in inside and "        backward {" in inside and "accumulate" not in inside
        tree = parse(text).items[0]
        assert isinstance(tree, nodes.Program)
        checked = verify(tree, graph(), 3)
        assert checked.ok and not checked.sketch, [d.message for d in checked.diagnostics.errors]
        assert to_text(write(checked.program)) == text


def test_an_evaluation_takes_the_batch_as_a_whole() -> None:
    bundle = example("accumulate", **SETTINGS)
    assert bundle.undivided.turns == 1 and bundle.undivided.tensors["z"].shape[0] == 6
    assert bundle.tensors["z"].shape[0] == 2 and bundle.undivided.outputs == ("z",)


# -- cost and memory -----------------------------------------------------------------

SMALL = """
model m(batch = 24, d = 10, hidden = 20, k = 4) {
    input x     : f32[batch, d]
    input label : i64[batch]
    param w1    : f32[d, hidden]
    param w2    : f32[hidden, 6]
    microbatch k {
        h = relu(matmul(x, w1))
        z = matmul(h, w2)
        loss = cross_entropy(z, label)
    }
    train loss with sgd(lr = 0.1)
}
cluster c {
    device a { compute = 1 GFLOP/s, memory = 1 GiB, bandwidth = 1 GB/s, launch = 1 us }
    node n = 2 * a over { bandwidth = 1 GB/s, latency = 1 us }
}
"""
AFTER = """
program p for m on c {
    shares batch = [3, 3]
    microbatch 4 {
        forward {
            x@S(0), label@S(0) = input(); w1@R, w2@R = param()
            matmul.1@S(0) = matmul(x@S(0), w1@R)
            h@S(0) = relu(matmul.1@S(0))
            z@S(0) = matmul(h@S(0), w2@R)
            loss.turn@P = cross_entropy(z@S(0), label@S(0))
        }
        backward {
            loss.grad@R = seed()
            z.grad@S(0) = cross_entropy_grad(z@S(0), label@S(0), loss.grad@R)
            w2.grad.turn@P = matmul_tn(h@S(0), z.grad@S(0))
            h.grad@S(0) = matmul_nt(z.grad@S(0), w2@R)
            matmul.1.grad@S(0) = relu_grad(h@S(0), h.grad@S(0))
            w1.grad.turn@P = matmul_tn(x@S(0), matmul.1.grad@S(0))
        }
    }
    update {
        loss@P = accumulate(loss.turn@P)
        w1.grad@P = accumulate(w1.grad.turn@P)
        w2.grad@P = accumulate(w2.grad.turn@P)
        w1.grad@R, w2.grad@R = all_reduce(w1.grad@P, w2.grad@P)
        w1.new@R = sgd(w1@R, w1.grad@R)
        w2.new@R = sgd(w2@R, w2.grad@R)
    }
}
"""
# the same with gradients reduced in every turn
EACH = AFTER.replace("            w1.grad.turn@P = matmul_tn(x@S(0), matmul.1.grad@S(0))\n", "            w1.grad.turn@P = matmul_tn(x@S(0), matmul.1.grad@S(0))\n            w1.grad.turn@R, w2.grad.turn@R = all_reduce(w1.grad.turn@P, w2.grad.turn@P)\n").replace("        w1.grad@R, w2.grad@R = all_reduce(w1.grad@P, w2.grad@P)\n", "")  # fmt: skip
EACH = re.sub(r"w(\d).grad@P = accumulate\(w\d.grad.turn@P\)", r"w\1.grad@R = accumulate(w\1.grad.turn@R)", EACH)


def small(text: str) -> Program:
    tree = program_in(text)
    checked = verify(tree, graph_of(SMALL.split("cluster")[0]), 2)
    assert checked.ok and not checked.sketch, [d.message for d in checked.diagnostics.errors]
    return checked.program


def machines() -> Cluster:
    return cluster_in(SMALL)


def test_seconds_by_hand() -> None:
    """Gradients are one message, sent once or in every turn; what is done in a turn costs four times what it costs once."""
    after, each = evaluate(small(AFTER), machines()), evaluate(small(EACH), machines())
    message = 4 * (10 * 20 + 20 * 6)
    reduced = 2 * 1 / 2 * message / 1e9 + 2 * 1e-6  # ring of two
    assert sum(s.comm_s for s in after.stages) == pytest.approx(reduced)
    assert sum(s.comm_s for s in each.stages) == pytest.approx(4 * reduced)
    program = small(AFTER)
    by_section = dict.fromkeys(("forward", "backward", "update"), 0.0)
    whole = dict.fromkeys(by_section, 0.0)
    for instruction, seconds in zip(program.instructions, after.per_instruction_s, strict=True):
        by_section[instruction.section] += float(seconds.max())
    one = evaluate(_as_one_turn(program), machines())
    for instruction, seconds in zip(program.instructions, one.per_instruction_s, strict=True):
        whole[instruction.section] += float(seconds.max())
    assert by_section["forward"] == pytest.approx(4 * whole["forward"])
    assert by_section["backward"] == pytest.approx(4 * whole["backward"])
    assert by_section["update"] == pytest.approx(whole["update"])


def _as_one_turn(program: Program) -> Program:
    """The same lines over a graph that says they are done once."""
    return dataclasses.replace(program, graph=dataclasses.replace(program.graph, turns=1))


def test_memory_by_hand() -> None:
    """At relu_grad of a turn: parameters, inputs of all turns, sums of all gradients, and what the backward pass still reads."""
    cost = evaluate(small(AFTER), machines())
    program = small(AFTER)
    at = next(k for k, i in enumerate(program.instructions) if i.op == "relu_grad")
    w1, w2 = 4 * 10 * 20, 4 * 20 * 6
    inputs = 4 * 3 * (4 * 10 + 8)  # four turns of three rows
    sums = w1 + w2 + 4 + 4  # and the loss; and its gradient, which is loaded
    turn = 3 * 20 * 4  # h, h.grad, matmul.1.grad: a turn's three rows each
    assert cost.memory.live[at].tolist() == [w1 + w2 + inputs + sums + 3 * turn] * 2
    made = next(k for k, i in enumerate(program.instructions) if i.outputs and i.outputs[0].tensor == "w1.grad.turn")
    # The turn's part beside the sum.
    assert cost.memory.live[made].tolist() == [w1 + w2 + inputs + sums + turn + w1] * 2


def test_a_call_that_makes_two_parts_of_sums_holds_both_beside_them() -> None:
    """A norm's backward pass makes the gradients of weight and bias at once."""
    text = SMALL.split("cluster")[0].replace("relu(matmul(x, w1))", "layer_norm(matmul(x, w1), g, b)")
    made = graph_of(text.replace("    microbatch", "    param g, b  : f32[hidden]\n    microbatch"))
    program = random_program(made, (("devices", 2),), 0, odd=False)
    at = next(k for k, i in enumerate(program.instructions) if i.op == "layer_norm_grad")
    parts = [v for v in program.instructions[at].outputs if v.tensor in ("g.grad.turn", "b.grad.turn")]
    assert len(parts) == 2
    held = sum(program.local_bytes(v) for v in parts)
    assert evaluate(program, machines()).memory.buffers[at].tolist() == list(held)


def test_more_turns_hold_less() -> None:
    def peak(turns: int) -> int:
        made = graph_of(SMALL.split("cluster")[0], batch=240, k=turns)
        program = random_program(made, (("devices", 1),), 0, odd=False)
        return int(evaluate(program, cluster_in(SMALL.replace("2 * a", "1 * a"))).memory_bytes[0])

    assert peak(1) > peak(4) > peak(24)


def test_a_plan_equals_one_device() -> None:
    made = graph_of(SMALL.split("cluster")[0])
    shares = {name: np.array(Layout.even(cls.units, 2)) for name, cls in made.classes.items()}
    found = plan(made, machines(), gap=0.9, baselines=False, fixed=shares)
    held, inputs = initial(made, 1, torch.float64), random_inputs(made, 1, torch.float64)
    leaves = {n: held[n].clone().requires_grad_() for n in ("w1", "w2")}
    loss = torch.nn.functional.cross_entropy(torch.relu(inputs["x"] @ leaves["w1"]) @ leaves["w2"], inputs["label"])
    loss.backward()
    for program in (found.program, small(AFTER), small(EACH)):
        executor = InProcess(program, torch.float64)
        executor.load(held)
        values = executor.step(inputs)
        same(gather(program, values, "loss"), loss, "loss")
        for name, leaf in leaves.items():
            assert leaf.grad is not None
            same(gather(program, values, f"{name}.new"), held[name] - 0.1 * leaf.grad, name)


def test_gradients_are_exchanged_once_for_all_turns() -> None:
    """Data parallelism and ZeRO as the planner has them: one message, behind the turns."""
    made = graph_of(SMALL.split("cluster")[0])
    shares = {name: np.array(Layout.even(cls.units, 2)) for name, cls in made.classes.items()}
    found = plan(made, machines(), gap=0.9, fixed=shares)
    for name, op in (("dp_even", "all_reduce"), ("zero", "reduce_scatter")):
        candidate = found.baselines[name]
        assert candidate is not None
        sent = [i for i in candidate.program.instructions if i.op == op]
        assert len(sent) == 1 and {v.tensor for v in sent[0].inputs} == {"w1.grad", "w2.grad"}
        text = to_text(write(candidate.program))
        assert text.index("update {") < text.index(f"= {op}(")


# -- what can and can't be taken in turns ---------------------------------------------

RUNNING = """
model m(batch = 6, d = 4, k = 3) {
    input rows  : f32[batch, d]
    input mask  : f32[d, d]
    input rate  : f32[]
    param w, u  : f32[d]
    buffer mean : f32[d]
    buffer seen : f32[]
    twice = scale(w, by = 2)
    microbatch k {
        x = mul(matmul(rows, mask), twice)
        mean.new = add(scale(mean, by = 0.9), scale(mean(x, dims = 0), by = 0.1))
        seen.new = shift(seen, by = 1)
        spent = sum(mul(u, u), dims = 0)
        loss = add(mean(mul(x, mul(x, u)), dims = [0, 1]), scale(spent, by = 0.01))
        error = mean(x, dims = [0, 1])
    }
    double = scale(error, by = 2)
    moved = sub(mean.new, mean)
    metric error, double, moved, mean.new
    train loss with sgd(lr = rate)
}
"""


def test_what_turns_share() -> None:
    """Parameters read through a call outside, a term of the loss that doesn't depend on the batch, inputs without a dim of it,
    buffers and what is made of their new values behind the block, metrics likewise."""
    whole, turned = graph_of(RUNNING, k=1), graph_of(RUNNING)
    assert turned.tensors["mask"].shape == (4, 4) and turned.tensors["rows"].shape == (2, 4)
    held, inputs = initial(whole, 2, torch.float64), random_inputs(whole, 2, torch.float64)
    results = []
    for made, mesh, seed in ((whole, ONE, 0), (turned, ONE, 1), (turned, TWO, 2), (turned, ONE, 3)):
        program = random_program(made, mesh, seed)
        executor = InProcess(program, torch.float64)
        executor.load(held)
        for number in (1, 2):
            values = executor.step(inputs, number)
        names = ["loss", "error", "double", "moved", *made.updates.values()]
        results.append({n: gather(program, values, n, 1e-12) for n in names})
    for other in results[1:]:
        for name, value in results[0].items():
            same(other[name], value, name)
    assert results[1]["seen.new"].item() == 2  # once a step, not once a turn
    assert turned.updates == whole.updates and turned.metrics == whole.metrics
    assert results[1]["moved"].abs().max() > 0


def test_a_name_of_the_model_s_own_is_no_turn_s_share() -> None:
    """What the turns add to is called `x.share` by hapdsl; a tensor of that name is another one, and is told so."""
    taken = RUNNING.replace("        loss = add(", "        other.share = exp(spent)\n        loss = add(")
    assert graph_of(taken.replace("metric error", "metric other.share, error")).turns == 3
    text = taken.replace("other.share", "cost.share").replace("scale(spent, by = 0.01))", "cost)")
    text = text.replace("        cost.share", "        cost = scale(spent, by = 0.01)\n        cost.share")
    with pytest.raises(HapError, match=r"two tensors are called 'cost\.share'"):
        graph_of(text.replace("metric error", "metric cost.share, error"))


def test_layers_that_are_alike_share_the_calls_of_a_turn() -> None:
    """As they do without turns, and so what is derived from a call is derived once."""
    made = [n for n in graph().nodes if n.section == "forward" and n.repeat]
    by_turn = [[id(n.instance) for n in made if n.repeat == (("layer", k),)] for k in range(2)]
    assert by_turn[0] and by_turn[0] == by_turn[1]


def wrong(*lines: str, head: str = "", k: str = "3", tail: str = "") -> str:
    body = "".join(f"        {line}\n" for line in lines)
    return f"""model m(batch = 6, d = 4) {{
    input x : f32[batch, d]
    input label : i64[batch]
    param w : f32[d, 5]
{head}    microbatch {k} {{
{body}        z = matmul(x, w)
        loss = cross_entropy(z, label)
    }}
{tail}    train loss with sgd()
}}"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (wrong(k="4"), "a batch of 6 can't be taken in 4 equal turns"),
        (wrong(k="0"), "the number of turns must be a whole number from 1"),
        (wrong("n = count_labels(label)").replace("(z, label)", "(z, label, n)"), "needs the whole batch"),
        (wrong("s = softmax(transpose(x, perm = [1, 0]))").replace("matmul(x, w)", "matmul(transpose(s, perm = [1, 0]), w)"), "needs the whole batch"),
        (wrong("s = matmul(x, transpose(x, perm = [1, 0]))", "t = matmul(s, x)").replace("matmul(x, w)", "matmul(t, w)"), "each sample meets each other one"),
        (wrong(head="    y = neg(x)\n").replace("matmul(x, w)", "matmul(y, w)"), "made of the whole batch outside this block"),
        (wrong(tail="    acc = accuracy(z, label)\n    metric acc\n"), "is read outside the block"),
        (wrong(tail="    loss = sqrt(near)\n").replace("loss = cross", "near = cross"), "known behind the last turn only"),
        (wrong(tail="    loss = sum(exp(sum(z, dims = 0)), dims = 0)\n").replace("        loss = cross_entropy(z, label)\n", ""), "known behind the last turn only"),
        (wrong("microbatch 3 { y = neg(x) }"), "one `microbatch` block"),
        (wrong(tail="    microbatch 3 { y = neg(x) }\n"), "one `microbatch` block"),
        (wrong(head="    repeat t in 2 { microbatch 2 { y = neg(x) } }\n"), "one `microbatch` block"),
        (wrong(head="    param b : f32[batch, 5]\n").replace("matmul(x, w)", "add(matmul(x, w), b)"), "has a dim of the batch"),
        (wrong().replace("matmul(x, w)", "sum(w, dims = 0)").replace("cross_entropy(z, label)", "sum(z, dims = 0)"), "nothing in this block reads an input"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_in_turns(text: str, words: str) -> None:
    with pytest.raises(HapError) as stop:
        graph_of(text)
    (found,) = stop.value.diagnostics
    assert words in found.message and found.span.line > 1, found
    assert found.code == ("HAP205" if "whole number" in words else "HAP208")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("microbatch 4", "microbatch 3", "takes its batch in 4 turns, not in 3"),
        ("update {", "forward {", "`forward` stands outside"),
        ("        backward {", "        update {", "`update` stands in a `microbatch` block"),
        ("    update {", "    microbatch 4 { update { } }\n    update {", "can't stand here"),
        ("    update {", "    update { z@S(0) = matmul(h@S(0), w2@R)", "'z' is computed in every turn of the batch"),
        ("        backward {", "        backward { loss@P = accumulate(loss.turn@P)", "'loss' is computed once"),
    ],
)
def test_programs_with_other_turns(old: str, new: str, words: str) -> None:
    tree = program_in(AFTER.replace(old, new, 1))
    checked = verify(tree, graph_of(SMALL.split("cluster")[0]), 2)
    assert any(d.code == "HAP518" and words in d.message for d in checked.diagnostics.errors), list(checked.diagnostics)
