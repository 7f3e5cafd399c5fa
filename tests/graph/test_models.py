"""The example models against torch: the same functions written independently with torch.nn.functional, in float64.

Loss and all gradients of one step; then parameters after one and after three steps of each optimizer, against torch.optim.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from hapdsl.graph.build import build, operators
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.load import load, load_text
from tests.graph.helpers import MODELS, example, gradient, same, source, step, steps, values
from tests.graph.models import EXAMPLES
from tests.graph.parts import Tensors


def prepared(graph: TrainingGraph, below: dict[str, int]) -> Tensors:
    tensors = values(graph, below)
    for t in graph.of_kind("param"):
        tensors[t.name] *= 0.4  # no layer blows up, whatever it lacks
        if f"{t.name}.master" in tensors:
            tensors[f"{t.name}.master"] = tensors[t.name].clone()
    if "target" in tensors and graph.model in ("decoder", "bert", "bert_moe"):
        tensors["target"][0, 1] = tensors["target"][1, 3] = -100  # padding
    return tensors


def buffers_of(graph: TrainingGraph, tensors: Tensors) -> Tensors:
    """Buffers of torch's own: it writes into them."""
    return {t.name: tensors[t.name].clone() for t in graph.of_kind("buffer")}


def leaves_of(graph: TrainingGraph, tensors: Tensors) -> Tensors:
    return {t.name: tensors[t.name].clone().requires_grad_() for t in graph.of_kind("param")}


@pytest.mark.parametrize("name", EXAMPLES)
def test_loss_and_gradients(name: str) -> None:
    oracle, settings, below = EXAMPLES[name]
    graph = example(name, **settings)
    tensors = prepared(graph, below)
    leaves = leaves_of(graph, tensors)
    loss = oracle({**tensors, **buffers_of(graph, tensors), **leaves})
    loss.backward()
    made = step(graph, tensors)
    assert graph.loss is not None
    same(made[graph.loss], loss, "loss")
    for param, leaf in leaves.items():
        assert leaf.grad is not None
        # A bias of keys moves nothing: rounding of 1e-16.
        same(gradient(graph, made, param), leaf.grad, param, least=1e-6)


# (as a model writes it, torch's)
OPTIMIZERS: dict[str, tuple[str, Callable[[list[Tensor]], torch.optim.Optimizer]]] = {
    "sgd": ("sgd(lr = 0.1)", lambda p: torch.optim.SGD(p, lr=0.1)),
    "sgd-decay": ("sgd(lr = 0.1, weight_decay = 0.2)", lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.2)),
    "momentum": ("momentum(lr = 0.1)", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    "momentum-decay": (
        "momentum(lr = 0.1, momentum = 0.5, weight_decay = 0.2)",
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.5, weight_decay=0.2),
    ),
    "adam": ("adam(lr = 0.01)", lambda p: torch.optim.Adam(p, lr=0.01)),
    "adam-all": (
        "adam(lr = 0.01, beta1 = 0.8, beta2 = 0.95, eps = 0.0001, weight_decay = 0.2)",
        lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.2),
    ),
    "adamw": ("adamw(lr = 0.01)", lambda p: torch.optim.AdamW(p, lr=0.01)),
    "adamw-all": (
        "adamw(lr = 0.01, beta1 = 0.8, beta2 = 0.95, eps = 0.0001, weight_decay = 0.2)",
        lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.2),
    ),
}  # fmt: skip


def with_optimizer(name: str, optimizer: str, settings: dict[str, Any]) -> TrainingGraph:
    text, changed = re.subn(r"train loss with .*(\n *group .*)*", f"train loss with {optimizer}", source(name))
    assert changed == 1
    bundle = load_text(text, f"{name}.hap", MODELS)
    return build(bundle.models[name], bundle.defs, operators(bundle.ops), settings)


def agree_after(
    graph: TrainingGraph, name: str, optimizer: Callable[[list[Tensor]], torch.optim.Optimizer], count: int
) -> None:
    oracle, _, below = EXAMPLES[name]
    tensors = prepared(graph, below)
    leaves, buffers = leaves_of(graph, tensors), buffers_of(graph, tensors)
    stepper = optimizer(list(leaves.values()))
    for _ in range(count):
        stepper.zero_grad()
        oracle({**tensors, **buffers, **leaves}).backward()
        stepper.step()
    after = steps(graph, tensors, count)
    for name, kept in {**leaves, **buffers}.items():
        same(after[name], kept, name)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers(optimizer: str, count: int) -> None:
    text, theirs = OPTIMIZERS[optimizer]
    agree_after(with_optimizer("mlp", text, EXAMPLES["mlp"][1]), "mlp", theirs, count)


@pytest.mark.parametrize("name", EXAMPLES)
def test_three_steps_of_each_model(name: str) -> None:
    """With adamw, whatever the file says; momentum as well, which no adaptive scaling hides. The eps is not the smallest: a shift
    before a batch normalisation has a gradient of zero, whose rounding adamw would make a step of."""
    for key in ("adamw-all", "momentum"):
        text, theirs = OPTIMIZERS[key]
        agree_after(with_optimizer(name, text, EXAMPLES[name][1]), name, theirs, 3)


@pytest.mark.parametrize("name", ["llama", "mixtral"])
def test_norms_do_not_decay(name: str) -> None:
    graph = example(name, **EXAMPLES[name][1])
    decay = {n.inputs[0]: n.instance.attributes["weight_decay"] for n in graph.nodes if n.section == "update"}
    assert {p for p, by in decay.items() if by == 0} == {p for p in decay if "norm" in p}
    assert set(decay.values()) == {0, 0.1}


def test_every_example_model_is_tried() -> None:
    assert {p.stem for p in MODELS.glob("*.hap")} == set(EXAMPLES)


def test_examples_at_their_own_size() -> None:
    """Every model of every file builds with the parameters it names."""
    for path in sorted(MODELS.glob("*.hap")):
        bundle = load(path)
        assert path.stem in bundle.models
        for model in bundle.models.values():
            graph = build(model, bundle.defs, operators(bundle.ops))
            assert graph.loss and set(graph.updates) >= {t.name for t in graph.of_kind("param")}
            assert "batch" in graph.parameters
