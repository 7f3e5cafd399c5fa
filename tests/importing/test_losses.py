"""Losses that are put together of several operators, beside torch's."""

from __future__ import annotations

import torch

from tests.importing import losses
from tests.importing.helpers import Trip, round_trip


def beside_torch(module: torch.nn.Module, example: str, batch: dict[str, torch.Tensor], **options) -> Trip:
    trip = round_trip(module, example, batch, lambda own, given: own(**given), **options)
    assert trip.loss_diff < 1e-9 and trip.weight_diff < 1e-9 and trip.compared == 2
    return trip


def test_of_classes():
    torch.manual_seed(1)
    batch = {"x": torch.randn(8, 8), "label": torch.arange(8) % 4}
    beside_torch(losses.OfClasses(), "x : f32[batch = 8, 8]; label : i64[batch]", batch, distributed=False)


def test_of_classes_along_another_dim_with_labels_that_do_not_count():
    torch.manual_seed(2)
    batch = {"x": torch.randn(4, 3, 8), "label": torch.randint(4, (4, 3))}
    batch["label"][1, 1:] = -100
    beside_torch(losses.OfImages(), "x : f32[batch = 4, 3, 8]; label : i64[batch, 3]", batch)


def test_of_yes_and_no():
    torch.manual_seed(3)
    batch = {"x": torch.randn(6, 8), "target": torch.rand(6, 4).round()}
    trip = beside_torch(losses.OfYesAndNo(), "x : f32[batch = 6, 8]; target : f32[batch, 4]", batch, lr=1e-3)
    assert trip.imported.tables["weights"].shape == (4,)  # not once for each sample


def test_labels_that_another_number_leaves_out():
    """nanoGPT's ignore_index = -1."""
    torch.manual_seed(4)
    batch = {"x": torch.randn(6, 8), "label": torch.tensor([1, -1, 3, 0, -1, 2])}
    beside_torch(losses.LeavesOut(), "x : f32[batch = 6, 8]; label : i64[batch]", batch, distributed=False)


def test_classes_that_are_a_named_dim():
    torch.manual_seed(5)
    module, example = losses.OfAsManyClasses(), "x : f32[batch = 6, 8]; counts : f32[batch, k = 3]"
    batch = {"x": torch.randn(4, 8), "counts": torch.randn(4, 5)}
    beside_torch(module, example, batch, settings={"batch": 4, "k": 5}, distributed=False)


def test_of_distances_and_signs():
    torch.manual_seed(6)
    batch = {"x": torch.randn(6, 8), "y": torch.randn(6, 8), "sign": torch.tensor([1.0, -1, 1, 1, -1, -1])}
    beside_torch(losses.OfDistances(), "x : f32[batch = 6, 8]; y : f32[batch, 8]; sign : f32[batch]", batch, lr=1e-3)


def test_a_target_that_is_0_in_places():
    torch.manual_seed(7)
    batch = {"x": torch.randn(6, 8), "target": torch.eye(4)[torch.tensor([0, 1, 3, 2, 0, 1])]}
    beside_torch(losses.OfZeros(), "x : f32[batch = 6, 8]; target : f32[batch, 4]", batch)
