"""Cells of recurrent networks along a sequence, and what is refused in their place."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapdsl.importing.convert import import_module
from tests.importing.helpers import refused, round_trip

EXAMPLE = "x : f32[batch = 4, 3, 5]; label : i64[batch]"


class Along(nn.Module):
    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell, self.start, self.out = cell, nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        h = torch.tanh(self.start(x.mean(1)))
        found = (h, h * 2)
        for t in range(x.shape[1]):
            lstm = isinstance(self.cell, nn.LSTMCell)
            found = self.cell(x[:, t], found) if lstm else (self.cell(x[:, t], found[0]), found[1])
        return F.cross_entropy(self.out(found[0]), label)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cell", [nn.GRUCell, nn.LSTMCell])
def test_cells(cell: type[nn.Module], bias: bool) -> None:
    torch.manual_seed(7)
    batch = {"x": torch.randn(4, 3, 5), "label": torch.randint(3, (4,))}
    trip = round_trip(Along(cell(5, 6, bias=bias)), EXAMPLE, batch, lambda own, given: own(**given))
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10


class Whole(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)[0].mean()


@pytest.mark.parametrize("net", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_whole_sequence_is_refused(net: type[nn.Module]) -> None:
    found = refused(lambda: import_module(Whole(net(5, 6, batch_first=True)), "x : f32[batch = 4, 3, 5]"))
    assert found.code == "HAP877" and "whole sequence" in found.message and "Cell" in found.help and found.span.line
