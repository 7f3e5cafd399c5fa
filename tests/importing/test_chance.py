"""Stochastic depth: masks of random numbers become `drop_path`; with the same masks the module's loss and weights are the text's."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapdsl.graph.training import TrainingGraph
from hapdsl.importing.convert import import_module
from hapdsl.run.call import prepare
from hapdsl.run.context import Clock, dtypes_at, whole
from tests.importing.helpers import bench_of, own_loss, refused, round_trip

P = 0.4


def by_rand(x: Tensor) -> Tensor:
    """As transformers writes it."""
    mask = torch.floor(torch.rand((x.shape[0], *(1,) * (x.ndim - 1)), dtype=x.dtype) + (1 - P))
    return x.div(1 - P) * mask


def in_place(x: Tensor) -> Tensor:
    """As timm and torchvision write it."""
    mask = x.new_empty((x.shape[0], *(1,) * (x.ndim - 1))).bernoulli_(1 - P)
    return x * mask.div_(1 - P)


class Deep(nn.Module):
    """Branches that fall away; `masks` are given instead of drawn, in the order of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))
        self.masks: list[Tensor] | None = None

    def forward(self, x: Tensor, label: Tensor) -> dict[str, Tensor]:
        for k, fc in enumerate(self.fc):
            y = torch.tanh(fc(x))
            x = x + (y * self.masks[k] if self.masks is not None else (by_rand if k % 2 else in_place)(y))
        return {"loss": F.cross_entropy(x[:, 0], label)}


def masks(graph: TrainingGraph) -> list[Tensor]:
    """What the text's calls draw in step 1 of seed 0."""
    found = []
    for node in graph.nodes:
        if node.op == "drop_path" and node.section == "forward":
            shapes = [whole(g.shape) for g in node.instance.given]
            (made,) = prepare(node, shapes, shapes, Clock(0, 1), dtypes_at(torch.float64))(
                [torch.ones(graph.tensors[node.inputs[0]].shape, dtype=torch.float64)]
            )
            found.append(made)
    return found


EXAMPLE = "x : f32[batch = 12, 5, 6]; label : i64[batch]"


def test_masks_are_the_same_on_all_devices() -> None:
    torch.manual_seed(0)
    module = Deep()
    drawn = masks(bench_of(import_module(module, EXAMPLE)).graph())
    assert len(drawn) == 4 and all(0 < (m == 0).double().mean() < 1 for m in drawn)

    def loss(own: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        own.masks = drawn
        return own_loss(own, batch)

    batch = {"x": torch.randn(12, 5, 6), "label": torch.randint(6, (12,))}
    trip = round_trip(module, EXAMPLE, batch, loss, by_batch=True, steps=1)
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10
    assert trip.imported.text.count("drop_path(") == 1 and "repeat fc in layers {" in trip.imported.text


def test_nothing_falls_away_in_evaluation() -> None:
    bench = bench_of(import_module(Deep(), EXAMPLE))
    assert not any(node.op == "drop_path" for node in bench.graph(train=False).nodes)


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand(x.shape)


def test_other_random_numbers() -> None:
    found = refused(lambda: import_module(Noise(), "x : f32[batch = 4, 6]"))
    assert found.code == "HAP877" and "random numbers" in found.message and "DropPath" in found.help
