"""Indexing by tensors, borders and reparametrized weights, beside torch."""

from __future__ import annotations

import pytest
import torch

from hapdsl.importing.convert import import_module
from hapdsl.lang.diagnostics import HapError
from tests.importing import indexed
from tests.importing.helpers import round_trip


def test_elements_by_their_numbers():
    torch.manual_seed(1)
    batch = {"x": torch.randn(6, 4, 8), "at": torch.randint(4, (6, 3)), "one": torch.randint(4, (6,))}
    example = "x : f32[batch = 6, 4, 8]; at : i64[batch, 3]; one : i64[batch]"
    trip = round_trip(indexed.Indexed(), example, batch, lambda own, given: own(**given), distributed=False)
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10 and trip.compared == 4


class Picked(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(8, 5)

    def forward(self, x, at):
        return self.fc(x).gather(1, at[:, :, None].expand(-1, -1, 5)).tanh().mean()


def test_they_are_found_on_devices_that_have_a_part():
    torch.manual_seed(1)
    batch = {"x": torch.randn(6, 4, 8), "at": torch.randint(4, (6, 3))}
    example = "x : f32[batch = 6, 4, 8]; at : i64[batch, 3]"
    trip = round_trip(Picked(), example, batch, lambda own, given: own(**given))
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10


def test_borders_and_weights_by_length():
    torch.manual_seed(1)
    batch = {"x": torch.randn(6, 8), "label": torch.randint(4, (6,))}
    example = "x : f32[batch = 6, 8]; label : i64[batch]"
    trip = round_trip(indexed.Bordered(), example, batch, lambda own, given: own(**given), distributed=False)
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10 and trip.compared == 11


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x, at: x[at, at], "several dims"),
        (lambda x, at: x[:, torch.tensor([2, -1, 3])], "negative numbers"),
        (lambda x, at: x.gather(1, at[:2, None]), "part of the rows"),
        (lambda x, at: x[at > 1], "by a mask"),
        (lambda x, at: x[:, :2][:, torch.tensor([False, True])], "by a mask"),
        (lambda x, at: (x @ x.T)[torch.arange(6), torch.arange(6)], "a diagonal"),
    ],
)
def test_what_stays_refused_says_another_way(function, words):
    class Refused(torch.nn.Module):
        def forward(self, x, at):
            return function(x, at)

    with pytest.raises(HapError) as stop:
        import_module(Refused(), "x : f32[batch = 6, 8]; at : i64[batch]")
    (found,) = stop.value.diagnostics
    assert found.code == "HAP877" and words in found.message and found.help
    assert found.span.file == __file__


class Twins(torch.nn.Module):
    """Indices that repeat what they read, and ones along the second dim of a square of scores."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(8, 8)
        self.bias, self.one = torch.nn.Parameter(torch.randn(1, 8)), torch.nn.Parameter(torch.randn(8, 1))

    def forward(self, x, at):
        z = self.fc(x)
        best, every = (z @ z.T).argmax(0), torch.arange(len(x))
        found = torch.take_along_dim(self.bias, at, 1).sum(1).tanh().sum()
        found = found + torch.take_along_dim(z, at[:1], 1).sum(1).sin().sum()
        found = found + self.one[:, torch.zeros(5, dtype=torch.long)].sum(1).tanh().sum()
        found = found + (z.gather(1, best[:, None]) * z).tanh().sum() + (z[every, best] * z[:, 0]).sin().sum()
        return found + (z[best] * z).cos().sum()


def test_what_is_repeated_and_what_stands_across():
    torch.manual_seed(1)
    batch = {"x": torch.randn(6, 8), "at": torch.randint(8, (6, 3))}
    example = "x : f32[batch = 6, 8]; at : i64[batch, 3]"
    trip = round_trip(Twins(), example, batch, lambda own, given: own(**given), distributed=False)
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10 and trip.compared == 4
