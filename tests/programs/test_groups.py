"""Parameter groups: names by pattern, other attributes or another optimizer, against torch.optim's param_groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from hapdsl.graph.optimizer import fits
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text
from hapdsl.run.initial import initial, random_inputs
from hapdsl.run.inprocess import InProcess, gather
from tests.check.random_programs import random_program
from tests.graph.helpers import graph_of, same

MODEL = """\
def layer(x, d) {
    param norm.weight : f32[d] init ones
    param norm.bias   : f32[d] init zeros
    param w           : f32[d, d] init normal(std = 0.5)
    param bias        : f32[d] init normal
    n = layer_norm(x, norm.weight, norm.bias)
    return gelu(add(matmul(n, w), bias))
}
model m(batch = 8, d = 6) {
    input rows : f32[batch, d]
    param head : f32[d, 1] init normal(std = 0.5)
    x = neg(rows)
    repeat turn in 2 { x = layer(x, d) }
    loss = mean(matmul(x, head), dims = [0, 1])
    {TRAIN}
}
"""
Groups = Callable[[dict[str, Tensor]], list[dict[str, object]]]


def named(t: dict[str, Tensor], *ends: str) -> list[Tensor]:
    return [p for n, p in t.items() if n.endswith(ends)]


def others(t: dict[str, Tensor], *ends: str) -> list[Tensor]:
    return [p for n, p in t.items() if not n.endswith(ends)]


def torchs(t: dict[str, Tensor], x: Tensor) -> Tensor:
    for turn in range(2):
        at = f"turn.{turn}.layer."
        n = torch.nn.functional.layer_norm(x, x.shape[-1:], t[at + "norm.weight"], t[at + "norm.bias"])
        x = torch.nn.functional.gelu(n @ t[at + "w"] + t[at + "bias"])
    return (x @ t["head"]).mean()


NO_DECAY = (".bias", ".norm.weight")
# what a model says, torch's optimizers of its parameters
CASES: dict[str, tuple[str, Callable[[dict[str, Tensor]], list[torch.optim.Optimizer]]]] = {
    "no decay on biases and norms": (
        "train loss with adamw(lr = 0.01, weight_decay = 0.1)\n    group *.bias, *.norm.* with adamw(weight_decay = 0)",
        lambda t: [
            torch.optim.AdamW(
                [{"params": others(t, *NO_DECAY)}, {"params": named(t, *NO_DECAY), "weight_decay": 0.0}],
                lr=0.01,
                weight_decay=0.1,
            )
        ],
    ),
    "a layer of its own rate, the last group wins, a group above `train`": (
        "group turn.1.* with sgd(lr = 0.5)\n    train loss with sgd(lr = 0.1, weight_decay = 0.2)\n    group *w with sgd(weight_decay = 0)",
        lambda t: [
            torch.optim.SGD(
                [
                    {
                        "params": [
                            t["head"],
                            *(p for n, p in t.items() if n.startswith("turn.0") and not n.endswith("w")),
                        ]
                    },
                    {"params": [p for n, p in t.items() if n.startswith("turn.1") and not n.endswith("w")], "lr": 0.5},
                    {"params": named(t, "w"), "weight_decay": 0.0},
                ],
                lr=0.1,
                weight_decay=0.2,
            )
        ],
    ),
    "another optimizer": (
        "train loss with adamw(lr = 0.01)\n    group *.w with momentum(lr = 0.1)",
        lambda t: [
            torch.optim.AdamW(others(t, ".w"), lr=0.01, weight_decay=0.01),
            torch.optim.SGD(named(t, ".w"), lr=0.1, momentum=0.9),
        ],
    ),
}


def graph(train: str) -> TrainingGraph:
    return graph_of(MODEL.replace("{TRAIN}", train))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("mesh", [(("devices", 3),), (("nodes", 2), ("devices", 2))], ids=["three", "two-by-two"])
def test_against_torch(case: str, mesh: tuple[tuple[str, int], ...]) -> None:
    text, optimizers = CASES[case]
    made = graph(text)
    held, inputs = initial(made, 3, torch.float64), random_inputs(made, 3, torch.float64)
    leaves = {t.name: held[t.name].clone().requires_grad_() for t in made.of_kind("param")}
    steppers = optimizers(leaves)
    for _ in range(3):
        for leaf in leaves.values():
            leaf.grad = None
        torchs(leaves, -inputs["rows"]).backward()
        for stepper in steppers:
            stepper.step()
    program = random_program(made, mesh, 5)
    executor = InProcess(program, torch.float64)
    executor.load(held)
    for number in (1, 2, 3):
        values = executor.step(inputs, number)
    for name, leaf in leaves.items():
        same(gather(program, values, made.updates[name], 1e-12), leaf, name)


def test_what_a_group_leaves_open_is_as_in_train() -> None:
    made = graph(
        "train loss with adamw(lr = 0.3, beta1 = 0.5, weight_decay = 0.1)\n    group *.bias with adamw(weight_decay = 0)"
    )
    given = {n.path: n.instance.attributes for n in made.nodes if n.section == "update"}
    bias, w = given["turn.0.layer.bias"], given["turn.0.layer.w"]
    assert (bias["lr"], bias["beta1"], bias["weight_decay"]) == (0.3, 0.5, 0)
    assert w["weight_decay"] == 0.1
    other = graph("train loss with adamw(lr = 0.3, weight_decay = 0.1)\n    group *.bias with adam(beta1 = 0.5)")
    bias = {n.path: n.instance.attributes for n in other.nodes if n.section == "update"}["turn.0.layer.bias"]
    assert (bias["lr"], bias["weight_decay"]) == (0.001, 0)  # adam's own, not what was said of adamw


def test_the_fingerprint_knows_groups() -> None:
    plain = graph("train loss with adamw()")
    assert (
        plain.fingerprint != graph("train loss with adamw()\n    group *.bias with adamw(weight_decay = 0)").fingerprint
    )


@pytest.mark.parametrize(
    ("pattern", "name", "answer"),
    [
        ("*.bias", "turn.0.layer.bias", True),
        ("*.bias", "bias", False),
        ("*bias", "bias", True),
        ("*.norm.*", "a.norm.weight", True),
        ("w", "w1", False),
        ("a.b", "aXb", False),  # a dot is a dot
        ("*", "anything.at.all", True),
        ("t*.*.w", "turn.0.w", True),
    ],
)
def test_patterns(pattern: str, name: str, answer: bool) -> None:
    assert fits(pattern, name) is answer


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("bias", "*.bias would fit turn.0.layer.norm.bias"),
        ("*.nrom.*", "the parameters are head, "),
        ("turn.0", "turn.0.* would fit"),
    ],
)
def test_a_pattern_that_fits_nothing(pattern: str, hint: str) -> None:
    with pytest.raises(HapError) as stop:
        graph(f"train loss with adamw()\n    group *.w, {pattern} with adamw(weight_decay = 0)")
    (found,) = stop.value.diagnostics
    assert found.code == "HAP231" and pattern in found.message and hint in found.help


def test_printed_back() -> None:
    text = """\
model m {
    # none on these
    group *.bias, layer.*.norm.*, b1, * with adamw(weight_decay = 0)  # as usual
    train loss with adamw(lr = 0.001) clip 1.0
}
"""
    assert to_text(parse(text)) == text
    assert to_text(parse(text.replace(", ", " ,\n   ").replace("clip 1.0", "clip  1.0"))) == text
