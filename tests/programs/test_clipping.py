"""Clipping by the global norm, wherever gradients lie, against torch.nn.utils.clip_grad_norm_."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from hapdsl.check.verify import verify
from hapdsl.check.write import write
from hapdsl.graph.program import Program, Value
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.print import to_text
from hapdsl.run.initial import initial, random_inputs
from hapdsl.run.inprocess import InProcess, gather
from hapdsl.theory.placements import P, R
from tests.check.random_programs import random_program
from tests.graph.helpers import graph_of, same
from tests.programs.helpers import replicated
from tests.texts import program_in

MODEL = """
def layer(x, d) {
    param w : f32[d, d] init normal(std = 0.5)
    param b : f32[d] init normal
    repeat inner in 2 { x = cell(x, d) }
    return gelu(add(matmul(x, w), b))
}
def cell(x, d) {
    param s : f32[d] init normal(std = 1)
    return mul(x, s)
}
model m(batch = 8, d = 6, turns = 3, most = 0.1) {
    input rows : f32[batch, d]
    param tail : f32[d, 1] init normal(std = 0.5)
    x = neg(rows)
    repeat turn in turns { x = layer(x, d) }
    repeat other in 2 { x = layer(x, d) }
    loss = mean(matmul(x, tail), dims = [0, 1])
    train loss with sgd(lr = 1) clip most
}
"""


def graph(**settings: float) -> TrainingGraph:
    return graph_of(MODEL, **settings)


def torchs(t: dict[str, Tensor], x: Tensor, turns: int) -> Tensor:
    for at in [*(f"turn.{k}.layer." for k in range(turns)), *(f"other.{k}.layer." for k in range(2))]:
        for k in range(2):
            x = x * t[f"{at}inner.{k}.cell.s"]
        x = torch.nn.functional.gelu(x @ t[at + "w"] + t[at + "b"])
    return (x @ t["tail"]).mean()


@pytest.mark.parametrize("most", [0.1, 1e6], ids=["clipped", "as it is"])
@pytest.mark.parametrize("mesh", [(("devices", 3),), (("nodes", 2), ("devices", 2))], ids=["three", "two-by-two"])
def test_against_torch(most: float, mesh: tuple[tuple[str, int], ...]) -> None:
    made = graph(most=most)
    held, inputs = initial(made, 3, torch.float64), random_inputs(made, 3, torch.float64)
    leaves = {t.name: held[t.name].clone().requires_grad_() for t in made.of_kind("param")}
    torchs(leaves, -inputs["rows"], 3).backward()
    norm = torch.nn.utils.clip_grad_norm_(leaves.values(), most)
    assert bool(norm > most) == (most == 0.1)
    torch.optim.SGD(leaves.values(), lr=1.0).step()
    for seed in range(3):
        program = random_program(made, mesh, seed)
        executor = InProcess(program, torch.float64)
        executor.load(held)
        values = executor.step(inputs, 1)
        same(gather(program, values, "grad.norm", 1e-12), norm, "norm")
        for name, leaf in leaves.items():
            same(gather(program, values, made.updates[name], 1e-12), leaf, name)


def test_the_norm_is_a_metric() -> None:
    assert graph().metrics == ("grad.norm",)


def test_partial_sums_of_squares_are_reduced_as_one_scalar() -> None:
    """Gradients cut on three devices: their squares stay partial sums until the total."""
    text = """
    model m(batch = 6, d = 9) {
        input x : f32[batch, d]
        param w, v : f32[d]
        loss = sum(mul(mul(x, w), v), dims = [0, 1])
        train loss with sgd() clip 1.0
    }"""
    found = [n for n in graph_of(text).nodes if n.section == "update"]
    assert [n.op for n in found] == [
        "sum_squares",
        "sum_squares",
        "add",
        "sqrt",
        "clip_factor",
        "clip",
        "clip",
        "sgd",
        "sgd",
    ]
    add = found[2]
    assert any(r.inputs == (P, P) and r.outputs == (P,) for r in add.rules)
    assert [r.inputs for r in found[3].rules] == [(R,)]


def test_equal_turns_are_printed_once() -> None:
    """Whatever the number of turns, a program reads the same but for that number, and is read back."""
    text = MODEL.replace("    repeat inner in 2 { x = cell(x, d) }\n", "")
    texts = {}
    for turns in (3, 5):
        made = graph_of(text, turns=turns)
        program = replicated(made)
        written = to_text(write(program))
        checked = verify(program_in(written), made, 2)
        assert checked.ok, [d.message for d in checked.diagnostics.errors]
        assert _compute(checked.program) == _compute(program)
        texts[turns] = re.sub(r"0\.\.\d|fingerprint.*", "", written[written.index("    update {") :])
    assert "squares.turn" in texts[3] and texts[3] == texts[5]


def _compute(program: Program) -> list[tuple[str, tuple[Value, ...], tuple[Value, ...]]]:
    return [(i.op, i.inputs, i.outputs) for i in program.instructions if i.node is not None]
