"""Models from text, and one step of them on one device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from hapdsl.graph.build import build, operators
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.load import load
from hapdsl.lang.parse import parse
from hapdsl.run.initial import first
from hapdsl.run.reference import Reference, advance
from tests.texts import PROGRAMS

MODELS = PROGRAMS / "models"


def graph_of(text: str, train: bool = True, **settings: Any) -> TrainingGraph:
    """The training graph of the text's only model."""
    items = parse(text).items
    (model,) = (i for i in items if isinstance(i, nodes.Model))
    defs = {i.name: i for i in items if isinstance(i, nodes.Def)}
    ops = {i.name: i for i in items if isinstance(i, nodes.Op)}
    return build(model, defs, operators(ops), settings, train)


def source(name: str) -> str:
    """The text of an example model."""
    return (MODELS / f"{name}.hap").read_text(encoding="utf-8")


def example(name: str, **settings: Any) -> TrainingGraph:
    """The training graph of an example model."""
    bundle = load(MODELS / f"{name}.hap")
    return build(bundle.models[name], bundle.defs, operators(bundle.ops), settings)


def calls(graph: TrainingGraph, section: str = "forward") -> list[str]:
    """`y = op(x, w)` of each call of a section."""
    return [f"{', '.join(n.outputs)} = {n.op}({', '.join(n.inputs)})" for n in graph.nodes if n.section == section]


def values(graph: TrainingGraph, below: Mapping[str, int] | None = None, seed: int = 0) -> dict[str, Tensor]:
    """Random f64 inputs and parameters; state and buffers as they start; integers below the given bounds."""
    graph = graph.undivided
    draw = torch.Generator().manual_seed(seed)
    found: dict[str, Tensor] = {}
    for t in graph.of_kind("input", "param", "frozen", "state", "buffer"):
        if t.kind in ("state", "buffer"):
            found[t.name] = first(t, seed, torch.float64)
        elif t.dtype.startswith("i"):
            found[t.name] = torch.randint((below or {})[t.name], t.shape, generator=draw)
        else:
            found[t.name] = torch.randn(t.shape, generator=draw, dtype=torch.float64)
    return found


def step(graph: TrainingGraph, tensors: Mapping[str, Tensor], number: int = 1) -> dict[str, Tensor]:
    """Every tensor of one step in f64."""
    return Reference(graph, torch.float64).step(tensors, number)


def steps(graph: TrainingGraph, tensors: Mapping[str, Tensor], count: int) -> dict[str, Tensor]:
    """Parameters and state after `count` steps on the same inputs."""
    runner = Reference(graph, torch.float64)
    now = dict(tensors)
    for number in range(1, count + 1):
        now = advance(graph, now, runner.step(now, number))
    return now


def gradient(graph: TrainingGraph, made: Mapping[str, Tensor], param: str) -> Tensor:
    return made[graph.resolve(f"{param}.grad")]


def same(ours: Tensor, theirs: Tensor, what: str = "", tolerance: float = 1e-10, least: float = 1e-30) -> None:
    """Equal within `tolerance` of the largest element; of `least` where all are smaller, as in a gradient that is zero but for rounding."""
    assert ours.shape == theirs.shape, (what, ours.shape, theirs.shape)
    scale = max(least, theirs.detach().abs().max().item() if theirs.numel() else 0.0)
    worst = (ours - theirs.detach()).abs().max().item() / scale if theirs.numel() else 0.0
    assert worst <= tolerance, f"{what}: {worst:.3g} off"
