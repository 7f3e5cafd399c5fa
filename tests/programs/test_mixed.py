"""Mixed precision: master copies, dtypes by parameter, collectives in fewer bits; in torch's own bf16 and against exact sums."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hapdsl.check.verify import verify
from hapdsl.check.write import write
from hapdsl.cluster import Cluster
from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.program import Layout, Program, Value
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.print import to_text
from hapdsl.run.initial import Initial, initial, random_inputs
from hapdsl.run.inprocess import InProcess, gather
from hapdsl.run.reference import Reference, advance
from hapdsl.run.train import train
from hapdsl.search.planner import plan
from hapdsl.theory.placements import R, S
from tests.check.random_programs import random_program
from tests.graph.helpers import example, graph_of, same
from tests.graph.training_models import TRAINING
from tests.run.helpers import inputs_of, mover
from tests.texts import cluster_in, program_in

NET = """
model net(batch = 8, d = 16, hidden = 12, compute = bf16, k = 1) {
    input x     : f32[batch, d]
    input label : i64[batch]
    param w1    : compute[d, hidden] master f32 init normal(std = 0.3)
    param w2    : compute[hidden, 5] master f32 init normal(std = 0.3)
    microbatch k {
        h = gelu(matmul(cast(x, to = compute), w1))
        z = cast(matmul(h, w2), to = f32)
        loss = cross_entropy(z, label)
    }
    train loss with adamw(lr = 0.01, weight_decay = 0.1)
}
"""


def test_tensors_of_a_parameter_with_a_master_copy() -> None:
    graph = graph_of(NET)
    dtypes = {n: t.dtype for n, t in graph.tensors.items() if n.startswith("w1")}
    assert dtypes == {
        "w1": "bf16", "w1.master": "f32", "w1.m": "f32", "w1.v": "f32", "w1.grad": "bf16", "w1.master.grad": "f32",
        "w1.master.new": "f32", "w1.m.new": "f32", "w1.v.new": "f32", "w1.new": "bf16",
    }  # fmt: skip
    assert graph.updates["w1"] == "w1.new" and graph.updates["w1.master"] == "w1.master.new"
    assert graph.tensors["w1.master"].kind == "state" and graph.tensors["w1"].kind == "param"
    plain = graph_of(NET, compute="f32")
    assert "w1.master" not in plain.tensors and plain.tensors["w1"].dtype == "f32"


def test_three_steps_of_torch_in_bf16() -> None:
    """bf16 leaves, f32 copies that torch.optim.AdamW updates, leaves rounded from them after each step."""
    graph = graph_of(NET)
    held, inputs = initial(graph, 4), random_inputs(graph, 4)
    assert held["w1"].dtype == torch.bfloat16 and torch.equal(held["w1.master"], held["w1"].float())
    leaves = {n: held[n].clone().requires_grad_() for n in ("w1", "w2")}
    masters = {n: held[n].float() for n in leaves}
    stepper = torch.optim.AdamW(masters.values(), lr=0.01, weight_decay=0.1)
    runner, now, losses = Reference(graph), held, []
    for number in (1, 2, 3):
        z = F.gelu(inputs["x"].bfloat16() @ leaves["w1"]) @ leaves["w2"]
        loss = F.cross_entropy(z.float(), inputs["label"])
        loss.backward()
        for name, leaf in leaves.items():
            assert leaf.grad is not None and leaf.grad.dtype == torch.bfloat16
            masters[name].grad = leaf.grad.float()
        stepper.step()
        leaves = {n: m.bfloat16().requires_grad_() for n, m in masters.items()}
        made = runner.step({**now, **inputs}, number)
        now = advance(graph, now, made)
        losses.append((made["loss"], loss.detach()))
    for ours, theirs in losses:
        same(ours, theirs, "loss", 1e-5)
    for name, master in masters.items():
        assert now[name].dtype == torch.bfloat16 and torch.equal(now[name], now[f"{name}.master"].bfloat16())
        # Adam moves all by about lr: a flipped last bit of a gradient shows as that.
        same(now[f"{name}.master"], master, name, 2e-3)


def test_what_bf16_alone_would_lose() -> None:
    """A step of 2^-12 on numbers around 1 is below half a unit of bf16 (2^-9): the copy moves on, exactly, and the parameter follows it."""
    text = """
    model m(d = 9) {
        input x : f32[d]
        param w : bf16[d] MASTER init ones
        loss = cast(sum(mul(cast(x, to = bf16), w), dims = 0), to = f32)
        train loss with sgd(lr = 0.000244140625)
    }"""
    after = {}
    for master in ("master f32", ""):
        graph = graph_of(text.replace("MASTER", master))
        executor = InProcess(random_program(graph, (("devices", 3),), 2))
        executor.load(initial(graph))
        for _ in range(24):
            made = executor.step({"x": torch.full((9,), -1.0)})
        after[master] = gather(executor.program, made, "w.new")
        if master:
            assert torch.equal(gather(executor.program, made, "w.master.new"), torch.full((9,), 1 + 24 * 2.0**-12))
    assert torch.equal(after[""], torch.ones(9, dtype=torch.bfloat16))
    # 1 + 2^-7: 24 / 2^12 rounded.
    assert torch.equal(after["master f32"], torch.full((9,), 1.0078125, dtype=torch.bfloat16))


@pytest.mark.parametrize("mesh", [(("devices", 3),), (("nodes", 2), ("devices", 2))], ids=["three", "two-by-two"])
def test_random_programs_are_equal_but_for_rounding(mesh: tuple[tuple[str, int], ...]) -> None:
    """Exactly in float64, where no cast rounds, and within bf16's eight bits as they run."""
    graph = example("mixed", **TRAINING["mixed"][1])
    inputs = random_inputs(graph, 1)
    for dtype, tolerance in ((torch.float64, 1e-10), (None, 0.03)):
        held = initial(graph, 1, dtype)
        one = Reference(graph, dtype).step({**held, **inputs})
        for seed in range(3):
            program = random_program(graph, mesh, seed)
            executor = InProcess(program, dtype)
            executor.load(held)
            made = executor.step(inputs, 1)
            same(gather(program, made, "loss", tolerance), one["loss"], "loss", tolerance)
            same(gather(program, made, "grad.norm", tolerance), one["grad.norm"], "norm", tolerance)


def test_turns_add_up_in_the_masters_dtype() -> None:
    graph, whole = graph_of(NET, k=4), graph_of(NET)
    turn = {n: t.dtype for n, t in graph.tensors.items() if "grad" in n and n.startswith("w1")}
    assert turn == {"w1.grad": "bf16", "w1.master.grad.turn": "f32", "w1.master.grad": "f32"}
    held, inputs = initial(graph, 2, torch.float64), random_inputs(graph, 2)
    program = random_program(graph, (("devices", 3),), 1)
    executor = InProcess(program, torch.float64)
    executor.load(held)
    made = executor.step(inputs, 1)
    one = Reference(whole, torch.float64).step({**held, **inputs}, 1)
    for name in ("loss", "w1.new", "w1.master.new", "w2.v.new"):
        same(gather(program, made, name), one[name], name)


def test_copies_follow_what_is_given() -> None:
    """A module's own weights: the master copy starts as them, other state as ever."""
    graph = graph_of(NET)
    own = torch.arange(16 * 12).reshape(16, 12) / 100
    held = initial(graph, 0, given={"w1": own})
    assert torch.equal(held["w1"], own.bfloat16()) and torch.equal(held["w1.master"], own.bfloat16().float())
    assert torch.equal(held["w2"], initial(graph, 0)["w2"]) and not held["w1.m"].any()
    assert torch.equal(Initial(graph, 0)["w2.master"], initial(graph, 0)["w2"].float())


def test_sharded_copies_gather_bf16() -> None:
    """ZeRO-1 by hand: parameters on all devices, copies and moments in parts, one gather of bf16 a step."""
    program = proven(ZERO)
    sent = [i for i in program.instructions if i.op == "all_gather"]
    assert {program.graph.tensors[v.tensor].dtype for i in sent for v in i.inputs} == {"bf16"}
    graph = program.graph
    held, inputs = initial(graph, 3, torch.float64), random_inputs(graph, 3)
    executor = InProcess(program, torch.float64)
    executor.load(held)
    now = held
    for number in (1, 2):
        made = executor.step(inputs, number)
        now = advance(graph, now, Reference(graph, torch.float64).step({**now, **inputs}, number))
    for name in graph.updates:
        same(gather(program, made, graph.updates[name]), now[name], name)
    held_bytes = evaluate(program, machines()).memory
    assert {str(v) for v in held_bytes.values} >= {"w1@R", "w1.master@S(0)"}


ZERO = """
program zero for net on pair {
    shares batch = [5, 3]
    shares d = [9, 7]
    shares hidden = [7, 5]
    forward {
        x@S(0), label@S(0) = input(); w1@R, w2@R = param()
        cast.1@S(0) = cast(x@S(0))
        matmul.1@S(0) = matmul(cast.1@S(0), w1@R)
        h@S(0) = gelu(matmul.1@S(0))
        matmul.2@S(0) = matmul(h@S(0), w2@R)
        z@S(0) = cast(matmul.2@S(0))
        loss@P = cross_entropy(z@S(0), label@S(0))
    }
    backward {
        loss.grad@R = seed()
        z.grad@S(0) = cross_entropy_grad(z@S(0), label@S(0), loss.grad@R)
        matmul.2.grad@S(0) = cast_like(z.grad@S(0), matmul.2@S(0))
        w2.grad@P = matmul_tn(h@S(0), matmul.2.grad@S(0))
        h.grad@S(0) = matmul_nt(matmul.2.grad@S(0), w2@R)
        matmul.1.grad@S(0) = gelu_grad(matmul.1@S(0), h.grad@S(0))
        w1.grad@P = matmul_tn(cast.1@S(0), matmul.1.grad@S(0))
    }
    update {
        w1.grad@S(0), w2.grad@S(0) = reduce_scatter(w1.grad@P, w2.grad@P)
        w1.master@S(0), w1.m@S(0), w1.v@S(0), w2.master@S(0), w2.m@S(0), w2.v@S(0) = state()
        w1.master.grad@S(0) = cast(w1.grad@S(0))
        w2.master.grad@S(0) = cast(w2.grad@S(0))
        w1.master.new@S(0), w1.m.new@S(0), w1.v.new@S(0) = adamw(w1.master@S(0), w1.master.grad@S(0), w1.m@S(0), w1.v@S(0))
        w2.master.new@S(0), w2.m.new@S(0), w2.v.new@S(0) = adamw(w2.master@S(0), w2.master.grad@S(0), w2.m@S(0), w2.v@S(0))
        w1@S(0) = slice(w1@R); w2@S(0) = slice(w2@R)
        w1.new@S(0) = cast_like(w1.master.new@S(0), w1@S(0))
        w2.new@S(0) = cast_like(w2.master.new@S(0), w2@S(0))
        w1.new@R, w2.new@R = all_gather(w1.new@S(0), w2.new@S(0))
    }
}
"""
PAIR = """
cluster pair {
    device a { compute = { f32 = 1 GFLOP/s, bf16 = 8 GFLOP/s }, memory = 1 GiB, bandwidth = 1 GB/s, launch = 1 us }
    node n = 2 * a over { bandwidth = 1 GB/s, latency = 1 us }
}
"""


def machines() -> Cluster:
    return cluster_in(PAIR)


def proven(text: str, graph: TrainingGraph | None = None) -> Program:
    tree = program_in(text)
    checked = verify(tree, graph or graph_of(NET), 2)
    assert checked.ok and not checked.sketch, [d.message for d in checked.diagnostics.errors]
    return checked.program


def test_a_plan_with_masters() -> None:
    graph = graph_of(NET)
    shares = {name: np.array(Layout.even(cls.units, 2)) for name, cls in graph.classes.items()}
    found = plan(graph, machines(), gap=0.9, baselines=False, fixed=shares)
    held, inputs = initial(graph, 3, torch.float64), random_inputs(graph, 3)
    program = proven(to_text(write(found.program)))
    executor = InProcess(program, torch.float64)
    executor.load(held)
    made = executor.step(inputs, 1)
    one = Reference(graph, torch.float64).step({**held, **inputs}, 1)
    for name in ("loss", *graph.updates.values()):
        same(gather(program, made, name), one[name], name)


# -- the dtype of a collective ---------------------------------------------------------

DATA = """
program data for net(compute = f32) on pair {
    shares batch = [5, 3]
    forward {
        x@S(0), label@S(0) = input(); w1@R, w2@R = param()
        cast.1@S(0) = cast(x@S(0))
        matmul.1@S(0) = matmul(cast.1@S(0), w1@R)
        h@S(0) = gelu(matmul.1@S(0))
        matmul.2@S(0) = matmul(h@S(0), w2@R)
        z@S(0) = cast(matmul.2@S(0))
        loss@P = cross_entropy(z@S(0), label@S(0))
    }
    backward {
        loss.grad@R = seed()
        z.grad@S(0) = cross_entropy_grad(z@S(0), label@S(0), loss.grad@R)
        matmul.2.grad@S(0) = cast_like(z.grad@S(0), matmul.2@S(0))
        w2.grad@P = matmul_tn(h@S(0), matmul.2.grad@S(0))
        h.grad@S(0) = matmul_nt(matmul.2.grad@S(0), w2@R)
        matmul.1.grad@S(0) = gelu_grad(matmul.1@S(0), h.grad@S(0))
        w1.grad@P = matmul_tn(cast.1@S(0), matmul.1.grad@S(0))
        w1.grad@R, w2.grad@R = all_reduce(w1.grad@P, w2.grad@P, dtype = bf16)
    }
    update {
        w1.m@R, w1.v@R, w2.m@R, w2.v@R = state()
        w1.new@R, w1.m.new@R, w1.v.new@R = adamw(w1@R, w1.grad@R, w1.m@R, w1.v@R)
        w2.new@R, w2.m.new@R, w2.v.new@R = adamw(w2@R, w2.grad@R, w2.m@R, w2.v@R)
    }
}
"""


def test_fewer_bits_on_the_wire_cost_less() -> None:
    graph = graph_of(NET, compute="f32")
    half, full = proven(DATA, graph), proven(DATA.replace(", dtype = bf16", ""), graph)
    message = 16 * 12 + 12 * 5
    for program, size in ((half, 2), (full, 4)):
        (stage,) = (s for s in evaluate(program, machines()).stages if s.collective)
        assert stage.bytes == message * size
        assert stage.comm_s == pytest.approx(2 * 1 / 2 * message * size / 1e9 + 2e-6)
    assert "all_reduce(w1.grad@P, w2.grad@P, dtype = bf16)" in to_text(write(half))
    assert [i.dtype for i in proven(to_text(write(half)), graph).instructions if i.op == "all_reduce"] == ["bf16"]


def test_sums_are_rounded_as_torch_rounds_them() -> None:
    graph = graph_of(NET, compute="f32")
    half, full = proven(DATA, graph), proven(DATA.replace(", dtype = bf16", ""), graph)
    held, inputs = initial(graph, 3), random_inputs(graph, 3)
    made = {}
    for program in (half, full):
        executor = InProcess(program, keep_all=True)
        executor.load(held)
        made[id(program)] = executor.step(inputs, 1)
    for name in ("w1.grad", "w2.grad"):
        a, b = made[id(full)][Value(name, (dataclasses.replace(R, kind="P"),))]
        ours = made[id(half)][Value(name, (R,))]
        assert torch.equal(ours[0], (a.bfloat16() + b.bfloat16()).float()) and torch.equal(ours[0], ours[1])
        assert ours[0].dtype == torch.float32 and not torch.equal(ours[0], a + b)
    executor = InProcess(half, torch.float64)  # at one precision nothing is rounded
    executor.load(initial(graph, 3, torch.float64))
    one = Reference(graph, torch.float64).step({**initial(graph, 3, torch.float64), **inputs}, 1)
    same(gather(half, executor.step(inputs, 1), "w1.new"), one["w1.new"])


@pytest.mark.parametrize("path", [[(S(0),), (R,)], [(S(0),), (S(1),)]], ids=["all_gather", "all_to_all"])
def test_what_is_gathered_is_the_same_on_all_devices(path: list[tuple[S, ...]]) -> None:
    graph = inputs_of([(5, 4)], ["f32"])
    layout = Layout((("devices", 2),), {"x0.0": {(0,): np.array([3, 2])}, "x0.1": {(0,): np.array([1, 3])}})
    program = mover(graph, layout, [[p] for p in path])
    program.instructions[-1] = dataclasses.replace(program.instructions[-1], dtype="bf16")
    x = torch.randn(5, 4)
    executor = InProcess(program, keep_all=True)
    made = executor.step({"x0": x})
    assert torch.equal(gather(program, made, "x0"), x.bfloat16().float())


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("dtype = bf16", "dtype = i8", "HAP545"),
        ("dtype = bf16", 'dtype = "bf16"', "HAP545"),
        ("dtype = bf16", "type = bf16", "HAP543"),
        ("update {", "update { w1@S(0) = slice(w1@R, dtype = bf16)", "HAP543"),
    ],
)
def test_other_dtypes_of_collectives(old: str, new: str, code: str) -> None:
    tree = program_in(DATA.replace(old, new, 1))
    found = verify(tree, graph_of(NET, compute="f32"), 2).diagnostics.errors
    assert [d.code for d in found] == [code]


def test_processes_send_what_one_process_sends() -> None:
    """gloo: bf16 in all collectives of a random program, and the program with a sum in bf16, beside one process."""
    graph = graph_of(NET, compute="f32")
    half = proven(DATA, graph)
    result = train(half, 2, 3, "random", reference=True)
    held, inputs = initial(graph), random_inputs(graph)
    executor = InProcess(half)
    executor.load(held)
    for number in (1, 2, 3):
        made = executor.step(inputs, number)
    assert result is not None and result.loss_diff is not None
    same(result.final["w1"], gather(half, made, "w1.new"), "w1", 1e-6)
    assert 0 < result.loss_diff < 1e-3
    mixed = random_program(graph_of(NET), (("devices", 3),), 1)
    result = train(mixed, 3, 3, "random", reference=True)
    assert result is not None and result.loss_diff is not None and result.loss_diff < 0.02
    assert result.final["w1"].dtype == torch.bfloat16 and torch.equal(
        result.final["w1"], result.final["w1.master"].bfloat16()
    )
