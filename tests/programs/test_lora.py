"""Frozen parameters: nothing is differentiated or updated for them, on one device and on several, as torch does without requires_grad."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from hapdsl.check.verify import verify
from hapdsl.check.write import write
from hapdsl.graph.program import Layout, Program
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.print import to_text
from hapdsl.run.initial import initial, random_inputs
from hapdsl.run.inprocess import InProcess, gather
from hapdsl.search.planner import plan
from tests.check.random_programs import random_program
from tests.graph.helpers import example, graph_of, same
from tests.graph.training_models import TRAINING
from tests.texts import cluster_in, program_in

ORACLE, SETTINGS, _ = TRAINING["lora"]
STEPS = 3
CLUSTER = """
cluster three {
    device fast { compute = 20 GFLOP/s, memory = 1 GiB, bandwidth = 200 GB/s }
    device slow { compute = 10 GFLOP/s, memory = 1 GiB, bandwidth = 200 GB/s }
    node host = 2 * fast, 1 * slow over { bandwidth = 100 GB/s, latency = 1 ns }
}"""


@cache
def graph() -> TrainingGraph:
    return example("lora", **SETTINGS)


@cache
def torchs() -> tuple[list[Tensor], dict[str, Tensor]]:
    """Losses of three steps of torch.optim.AdamW on the parameters that aren't frozen, and all parameters afterwards."""
    tensors = {**initial(graph(), 0, torch.float64), **random_inputs(graph(), 0, torch.float64)}
    leaves = {t.name: tensors[t.name].clone().requires_grad_() for t in graph().of_kind("param")}
    optimizer = torch.optim.AdamW(list(leaves.values()), lr=0.0003)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = ORACLE({**tensors, **leaves})
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, {**{t.name: tensors[t.name] for t in graph().of_kind("frozen")}, **leaves}


def agrees(program: Program) -> None:
    """Three steps in one process against torch's."""
    losses, after = torchs()
    held = initial(graph(), 0, torch.float64)
    executor = InProcess(program, torch.float64)
    executor.load(held)
    assert graph().loss is not None
    for number, loss in enumerate(losses, start=1):
        made = executor.step(random_inputs(graph(), 0, torch.float64), number)
        same(gather(program, made, graph().loss, 1e-12), loss, f"loss {number}")
    for old, new in graph().updates.items():
        if old in after:
            same(gather(program, made, new, 1e-12), after[old], old)


def test_the_adapters_alone_are_trained() -> None:
    trained = {t.name for t in graph().of_kind("param")}
    assert trained == {f"layer.{n}.block.{w}.{m}" for n in (0, 1) for w in ("query", "value") for m in "ab"}
    assert set(graph().updates) == {*trained, *(f"{t}.{s}" for t in trained for s in "mv")}


def test_nothing_is_differentiated_for_what_is_frozen() -> None:
    """Neither the gradients of frozen parameters nor anything before the first adapter: turn 0 ends at its query and value."""
    made = set(graph().tensors) | set(graph().aliases)
    assert not [t.name for t in graph().of_kind("frozen") if f"{t.name}.grad" in made or f"{t.name}.grad.1" in made]
    assert "layer.1.x.grad" in made
    assert not made & {"layer.0.x.grad", "layer.0.block.n.grad", "layer.0.block.n.grad.1"}
    read = {n for node in graph().nodes for n in node.inputs} | set(graph().updates.values())
    dead = [node.outputs for node in graph().nodes if node.section == "backward" and not read & set(node.outputs)]
    assert not dead


def test_a_frozen_operand_among_others_asks_for_the_lesser_gradient() -> None:
    for kind, op in (("frozen", "layer_norm_input_grad"), ("param", "layer_norm_grad")):
        text = f"""
        model m(batch = 4, d = 6) {{
            input x : f32[batch, d]
            param w : f32[d, d]
            {kind} g, b : f32[d]
            loss = mean(layer_norm(matmul(x, w), g, b), dims = [0, 1])
            train loss with sgd()
        }}"""
        assert [n.op for n in graph_of(text).nodes if n.op.startswith("layer_norm_")] == [op]


@pytest.mark.parametrize("mesh", [(("devices", 4),), (("nodes", 2), ("devices", 2))], ids=["four", "two-by-two"])
def test_random_programs_equal_torch(mesh: tuple[tuple[str, int], ...]) -> None:
    for seed in range(2):
        agrees(random_program(graph(), mesh, seed))


def test_a_plan_equals_torch() -> None:
    """Planned for devices that differ, under given shares; written, read, proven and run."""
    cluster = cluster_in(CLUSTER)
    shares = {name: np.array(Layout.even(cls.units, 3)) for name, cls in graph().classes.items()}
    found = plan(graph(), cluster, gap=0.9, baselines=False, fixed=shares)
    checked = verify(program_in(to_text(write(found.program))), graph(), len(cluster))
    assert checked.ok and not checked.sketch
    agrees(checked.program)
    states = [v.tensor for i in found.program.instructions if i.op == "state" for v in i.outputs]
    assert states and not [t for t in states if ".query." not in t and ".value." not in t]
