"""Learning rates that follow a schedule: from a buffer that counts steps, or as an input; against torch.optim.lr_scheduler."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from hapdsl.graph.build import build, operators
from hapdsl.graph.program import Program
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.load import load_text
from hapdsl.lang.resources import programs_folder
from hapdsl.run.initial import initial, random_inputs
from hapdsl.run.inprocess import InProcess, gather
from tests.check.random_programs import random_program
from tests.graph.helpers import same

STEPS = 9
MODEL = """
import "std/schedules.hap"
model m(batch = 6, d = 4) {
    input x     : f32[batch, d]
    param w     : f32[d, d]
    param bias  : f32[d]
    buffer step : i64[]
    count = shift(step, by = 1)
    step.new = count
    rate = {RATE}
    loss = mean(gelu(add(matmul(x, w), bias)), dims = [0, 1])
    train loss with {OPTIMIZER}
    group bias with {GROUP}
}
"""
# the def's call; the factor of the peak at step t (from 1), written without clamps
SCHEDULES: dict[str, tuple[str, Callable[[int], float]]] = {
    "constant": ("warmup_constant(count, peak = 0.1, warmup = 3)", lambda t: t / 3 if t < 3 else 1.0),
    "linear": (
        "warmup_linear(count, peak = 0.1, warmup = 3, total = 7)",
        lambda t: t / 3 if t < 3 else (7 - t) / 4 if t < 7 else 0.0,
    ),
    "cosine": (
        "warmup_cosine(count, peak = 0.1, warmup = 2, total = 8, least = 0.01)",
        lambda t: t / 2 if t < 2 else 0.1 + 0.9 * (1 + math.cos(math.pi * (t - 2) / 6)) / 2 if t < 8 else 0.1,
    ),
}
OPTIMIZERS: dict[str, tuple[str, str, Callable[[Tensor, Tensor], torch.optim.Optimizer]]] = {
    "sgd": (
        "sgd(lr = rate)",
        "sgd(weight_decay = 0.5)",
        lambda w, b: torch.optim.SGD([{"params": [w]}, {"params": [b], "weight_decay": 0.5}], lr=0.1),
    ),
    "momentum": (
        "momentum(lr = rate)",
        "momentum(lr = scale(rate, by = 2))",
        lambda w, b: torch.optim.SGD([{"params": [w]}, {"params": [b], "lr": 0.2}], lr=0.1, momentum=0.9),
    ),
    "adam": (
        "adam(rate, weight_decay = 0.1)",
        "adam()",
        lambda w, b: torch.optim.Adam([w, b], lr=0.1, weight_decay=0.1),
    ),
    "adamw": (
        "adamw(lr = rate, weight_decay = 0.1)",
        "adamw(weight_decay = 0)",
        lambda w, b: torch.optim.AdamW(
            [{"params": [w]}, {"params": [b], "weight_decay": 0.0}], lr=0.1, weight_decay=0.1
        ),
    ),
}


def graph(schedule: str, optimizer: str) -> TrainingGraph:
    train, group, _ = OPTIMIZERS[optimizer]
    text = MODEL.replace("{RATE}", SCHEDULES[schedule][0]).replace("{OPTIMIZER}", train).replace("{GROUP}", group)
    bundle = load_text(text, "m.hap", programs_folder())
    return build(bundle.models["m"], bundle.defs, operators(bundle.ops))


def run(
    program: Program, held: dict[str, Tensor], inputs: dict[str, Tensor], first: int, last: int
) -> dict[str, Tensor]:
    """Everything that is kept, after these steps."""
    executor = InProcess(program, torch.float64)
    executor.load(held)
    for number in range(first, last + 1):
        made = executor.step(inputs, number)
    new = {old: gather(program, made, name, 1e-12) for old, name in program.graph.updates.items()}
    return {**held, **new}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_against_torch(schedule: str, optimizer: str) -> None:
    made = graph(schedule, optimizer)
    factor, torchs = SCHEDULES[schedule][1], OPTIMIZERS[optimizer][2]
    held, inputs = initial(made, 1, torch.float64), random_inputs(made, 1, torch.float64)
    w, bias = (held[n].clone().requires_grad_() for n in ("w", "bias"))
    stepper = torchs(w, bias)
    schedules = torch.optim.lr_scheduler.LambdaLR(stepper, lambda t: factor(t + 1))
    for _ in range(STEPS):
        stepper.zero_grad()
        torch.nn.functional.gelu(inputs["x"] @ w + bias).mean().backward()
        stepper.step()
        schedules.step()
    for mesh in ((("devices", 3),), (("nodes", 2), ("devices", 2))):
        after = run(random_program(made, mesh, 2), held, inputs, 1, STEPS)
        same(after["w"], w, "w")
        same(after["bias"], bias, "bias")
        assert after["step"].item() == STEPS and after["step"].dtype == torch.int64


def test_a_run_goes_on_from_what_it_kept() -> None:
    """Four steps, then five more from parameters, state and buffers on other devices: the same to the last bit."""
    made = graph("cosine", "adamw")
    held, inputs = initial(made, 1, torch.float64), random_inputs(made, 1, torch.float64)
    one = (("devices", 1),)
    whole = run(random_program(made, one, 0), held, inputs, 1, STEPS)
    half = run(random_program(made, one, 0), held, inputs, 1, 4)
    assert half["step"].item() == 4
    rest = run(random_program(made, one, 0), half, inputs, 5, STEPS)
    assert set(whole) == {"w", "bias", "w.m", "w.v", "bias.m", "bias.v", "step"}
    assert all(torch.equal(whole[n], rest[n]) for n in whole)
    elsewhere = run(random_program(made, (("devices", 3),), 4), half, inputs, 5, STEPS)
    for name in whole:
        same(elsewhere[name].double(), whole[name].double(), name)


def test_a_rate_that_is_fed() -> None:
    text = """
    model m(batch = 6) {
        input x : f32[batch]
        input rate : f32[]
        param w : f32[batch]
        loss = sum(mul(x, w), dims = 0)
        train loss with sgd(lr = rate)
    }"""
    bundle = load_text(text, "m.hap", programs_folder())
    made = build(bundle.models["m"], bundle.defs, operators(bundle.ops))
    held, x = initial(made, 1, torch.float64), random_inputs(made, 1, torch.float64)["x"]
    executor = InProcess(random_program(made, (("devices", 3),), 1), torch.float64)
    executor.load(held)
    for rate in (0.5, 0.25, -1.0):
        values = executor.step({"x": x, "rate": torch.tensor(rate)})
    same(gather(executor.program, values, "w.new"), held["w"] + 0.25 * x, "w")


def test_buffers_that_a_call_does_not_read_are_cut_like_what_replaces_them() -> None:
    """A copy in the buffer's dtype is made where the last call doesn't read the buffer itself; one class holds for both."""
    text = """
    def track(x, d) {
        buffer mean : f32[d]
        buffer last : f64[d]
        now = mean(x, dims = 0)
        mean.new = add(scale(mean, by = 0.9), scale(now, by = 0.1))
        last.new = now
        return sub(x, mean)
    }
    model m(batch = 6, d = 4) {
        input rows : f32[batch, d]
        param w    : f32[d]
        x = mul(rows, w)
        repeat turn in 2 { x = track(x, d) }
        loss = mean(mul(x, x), dims = [0, 1])
        train loss with sgd(lr = 0.1)
    }"""
    bundle = load_text(text, "m.hap", programs_folder())
    made = build(bundle.models["m"], bundle.defs, operators(bundle.ops))
    assert made.updates["turn.1.track.mean"] == "turn.1.track.mean.new" and len(made.updates) == 5
    assert made.tensors["turn.0.track.last.new"].dtype == "f64"
    assert made.tensors["turn.0.track.last"].classes == made.tensors["turn.0.track.last.new"].classes
    assert made.tensors["turn.0.track.mean"].classes == made.tensors["turn.0.track.mean.new"].classes
    held, rows = initial(made, 1, torch.float64), random_inputs(made, 1, torch.float64)["rows"]
    w, mean = held["w"].clone().requires_grad_(), torch.zeros(2, 4, dtype=torch.float64)
    for _ in range(3):
        x, new = rows * w, []
        for turn in range(2):
            new.append(0.9 * mean[turn] + 0.1 * x.mean(0))
            x = x - mean[turn]
        (g,) = torch.autograd.grad((x * x).mean(), w)
        w, mean = (w - 0.1 * g).detach().requires_grad_(), torch.stack(new).detach()
    for seed in range(4):
        after = run(random_program(made, (("devices", 3),), seed), held, {"rows": rows}, 1, 3)
        same(after["w"], w, "w")
        same(after["turn.1.track.mean"], mean[1], "mean")


def test_an_evaluation_leaves_buffers_as_they_are() -> None:
    bundle = load_text(
        MODEL.replace("{RATE}", SCHEDULES["linear"][0])
        .replace("{OPTIMIZER}", "sgd(lr = rate)")
        .replace("{GROUP}", "sgd()"),
        "m.hap",
        programs_folder(),
    )
    made = build(bundle.models["m"], bundle.defs, operators(bundle.ops), train=False)
    assert not made.updates and "step" not in {n for node in made.nodes for n in node.inputs}


def test_the_schedules_are_defs_of_a_standard_file() -> None:
    bundle = load_text('import "std/schedules.hap"\nmodel m { input x : f32[4]; output x }', "m.hap", programs_folder())
    assert {n for n, d in bundle.defs.items() if isinstance(d, nodes.Def)} >= {
        "warmup_constant",
        "warmup_linear",
        "warmup_cosine",
    }
