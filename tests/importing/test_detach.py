"""Where a gradient stops in a module's forward pass: the same loss and updated weights as the module itself."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapdsl.importing.convert import import_module
from tests.importing.helpers import bench_of, round_trip


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head = nn.Linear(8, 6), nn.Linear(6, 6)


class Predicts(Base):
    """SimSiam: each view predicts the other one's projection, which passes no gradient."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        a, b = self.fc(x), self.fc(y)
        near = F.cosine_similarity(self.head(a), b.detach(), -1) + F.cosine_similarity(self.head(b), a.detach(), -1)
        return 1 - near.mean() / 2


class Straight(Base):
    """A straight-through estimator: forward the sign, backward as if it weren't there."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        a = self.fc(x)
        a = a + (a.sign() - a).detach()
        return F.mse_loss(self.head(a), self.head(self.fc(y).detach()))


class InPlace(Base):
    """Who reads a tensor behind `detach_` gets no gradient, whoever read it before gets one."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        a = self.fc(x) * 1
        before = a.sum(1, keepdim=True)
        z = a.detach_()
        return (before * a * self.head(z)).mean() + y.mean()


class Quantized(nn.Module):
    """VQ-VAE: the nearest code stands for a vector; codes go to vectors, and vectors to codes."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.codes, self.back = nn.Linear(8, 6), nn.Embedding(5, 6), nn.Linear(6, 8)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        z = self.fc(x)
        away = z.pow(2).sum(1, keepdim=True) - 2 * z @ self.codes.weight.T + self.codes.weight.pow(2).sum(1)
        nearest = self.codes(away.argmin(1))
        loss = F.mse_loss(nearest, z.detach()) + 0.25 * F.mse_loss(z, nearest.detach())
        return F.mse_loss(self.back(z + (nearest - z).detach()), y) + loss


class Scaled(Base):
    """A loss that is measured by its own size."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        a = (self.head(self.fc(x)) - self.fc(y)).abs()
        return (a / a.detach().mean(-1, keepdim=True)).mean()


@pytest.mark.parametrize("made", [Predicts, Straight, InPlace, Quantized, Scaled])
def test_against_eager(made: type[nn.Module]) -> None:
    torch.manual_seed(2)
    batch = {"x": torch.randn(6, 8), "y": torch.randn(6, 8)}
    trip = round_trip(made(), "x : f32[batch = 6, 8]; y : f32[batch, 8]", batch, lambda own, given: own(**given))
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10
    assert "detach(" in trip.imported.text and not any(n.op == "detach" for n in trip.graph.nodes)


class Chooses(nn.Module):
    """By the largest of some scores, and by a comparison: neither passes a gradient to what makes it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.gate, self.codes, self.back = (
            nn.Linear(8, 5),
            nn.Linear(8, 1),
            nn.Embedding(5, 6),
            nn.Linear(6, 8),
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        away = F.mse_loss(self.back(self.codes(self.fc(x).argmax(-1))), y, reduction="none")
        return (away * (self.gate(x) > 0).to(x.dtype)).mean()


def test_what_only_chooses_is_not_trained() -> None:
    torch.manual_seed(3)
    batch = {"x": torch.randn(6, 8), "y": torch.randn(6, 8)}
    trip = round_trip(Chooses(), "x : f32[batch = 6, 8]; y : f32[batch, 8]", batch, lambda own, given: own(**given))
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10
    assert {t.name for t in trip.graph.of_kind("frozen")} == {"fc.weight", "fc.bias", "gate.weight", "gate.bias"}
    assert {"fc.weight", "gate.bias"} <= set(trip.imported.unused)


class Nothing(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.fc(x)).detach().mean()


def test_where_no_gradient_is_left_the_loss_is_an_output() -> None:
    found = import_module(Nothing(), "x : f32[batch = 6, 8]")
    assert "train loss" not in found.text and "output loss" in found.text and not found.unused
    assert bench_of(found).graph().loss is None
