"""Lengths of vectors and distances of rows, where they are 0 as well: torch's gradient is 0 there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.importing.helpers import Trip, refused, round_trip

Function = Callable[[Any, Tensor], Tensor]


class Around(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.fc, self.other, self.function = nn.Linear(8, 6), nn.Linear(6, 6), function
        self.few, self.many = nn.Parameter(torch.randn(5, 6)), nn.Parameter(torch.randn(30, 6))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, self.fc(x))

    @staticmethod
    def gone(h: Tensor) -> Tensor:
        """The first rows are 0."""
        return h * (torch.arange(7.0) > 2).to(h.dtype)[:, None]


def trip(function: Function, **options: Any) -> Trip:
    torch.manual_seed(6)
    batch = {"x": torch.randn(7, 8)}
    return round_trip(Around(function), "x : f32[batch = 7, 8]", batch, lambda own, given: own(**given), **options)


@pytest.mark.parametrize(
    "function",
    [
        lambda m, h: F.normalize(m.gone(h), dim=-1).mul(m.other(h)).mean(),
        lambda m, h: m.gone(h).norm(dim=1).mean(),
        lambda m, h: F.cosine_similarity(m.gone(h), m.other(h)).mean(),
    ],
    ids=["normalize", "norm", "cosine"],
)
def test_vectors_of_zeros(function: Function) -> None:
    found = trip(function, distributed=False)
    assert found.loss_diff < 1e-10 and found.weight_diff < 1e-10


PRODUCTS = "use_mm_for_euclid_dist"
DISTANCES: dict[str, Function] = {
    "few rows": lambda m, h: torch.cdist(h, m.few).square().mean(),
    "many rows": lambda m, h: torch.cdist(h, m.many).mean(),
    "of a row to itself": lambda m, h: torch.cdist(h, h).mean(),
    "in a batch": lambda m, h: torch.cdist(torch.stack([h, h + 1]), torch.stack([m.other(h), h * 2])).mean(),
    "in a batch, by products": lambda m, h: torch.cdist(torch.stack([h, h + 1]), torch.stack([m.other(h), h]), 2.0, PRODUCTS).mean(),
    "of a batch to the same rows": lambda m, h: torch.cdist(torch.stack([h, h + 1]), m.few[None]).mean(),
    "the nearest": lambda m, h: F.mse_loss(m.few[torch.cdist(h.detach(), m.few).argmin(1)], h),
}  # fmt: skip


@pytest.mark.parametrize("name", DISTANCES)
def test_cdist(name: str) -> None:
    found = trip(DISTANCES[name], steps=1)
    assert found.loss_diff < 1e-10 and found.weight_diff < 1e-10


def test_distances_of_another_kind_are_refused() -> None:
    found = refused(lambda: trip(lambda m, h: torch.cdist(h, m.few, p=1).mean()))
    assert found.code == "HAP877" and "p = 1" in found.message and "abs()" in found.help
