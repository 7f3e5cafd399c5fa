"""What is repeated: each row beside each row, heads that share keys, dims again and again; and modules that are called twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.importing.helpers import Trip, refused, round_trip

Function = Callable[[Tensor, Any], Tensor]


class Around(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.fc, self.other, self.function = nn.Linear(8, 6), nn.Linear(6, 6), function
        self.rows = nn.Parameter(torch.randn(3, 6))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.fc(x), self).square().mean()


def trip(function: Function, batch: int = 7, **options: Any) -> Trip:
    torch.manual_seed(4)
    given = {"x": torch.randn(batch, 8)}
    return round_trip(Around(function), "x : f32[batch = 7, 8]", given, lambda own, g: own(**g), **options)


# Every row beside every other one. Which of both runs along which dim is what may go wrong.
PAIRS: dict[str, Function] = {
    "broadcast": lambda h, m: h[:, None] - h[None],
    "one expanded": lambda h, m: h[:, None].expand(len(h), len(h), 6) - h[None],
    "both expanded": lambda h, m: h[:, None].expand(len(h), len(h), 6) - h[None].expand(len(h), len(h), 6),
    "repeated": lambda h, m: h.unsqueeze(1).repeat(1, len(h), 1) - h.unsqueeze(0).repeat(len(h), 1, 1),
    "in one dim": lambda h, m: h.repeat_interleave(len(h), 0) - h.repeat(len(h), 1),
    "in one dim, seen as two": lambda h, m: h.repeat_interleave(len(h), 0).view(len(h), len(h), 6) - h[None],
    "side by side": lambda h, m: torch.cat([h.repeat_interleave(len(h), 0), h.repeat(len(h), 1)], 1).view(len(h), len(h), 12),
    "flattened": lambda h, m: (h[:, None].expand(len(h), len(h), 6) * h[None]).view(len(h) * len(h), 6),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_each_row_beside_each_row(name: str) -> None:
    found = trip(lambda h, m: PAIRS[name](h, m).tanh(), distributed=False, steps=1)
    assert found.loss_diff < 1e-10 and found.weight_diff < 1e-10


REPEATS: dict[str, Function] = {
    "columns": lambda h, m: h.repeat(1, 3).sigmoid() + torch.arange(18.0),
    "rows": lambda h, m: h.repeat(2, 1) * m.other(torch.cat([h, h + 1])),
    "a new dim and old ones": lambda h, m: m.other(h.repeat(2, 3, 1)).view(2, 3, -1, 6) * torch.arange(3.0).view(3, 1, 1),
    "tiles": lambda h, m: h.tile(2) * torch.arange(12.0),
    "each row": lambda h, m: h.repeat_interleave(2, dim=0) * torch.cat([h, m.other(h)]),
    "each column": lambda h, m: h.repeat_interleave(3, dim=-1) * torch.arange(18.0),
    "a vector": lambda h, m: h.sum(1).repeat_interleave(2) * torch.cat([h[:, 0], h[:, 1]]),
    "in a product": lambda h, m: m.other(h[:, None].repeat(1, 4, 1)) @ h.repeat(2, 1)[:6].T,
}  # fmt: skip


@pytest.mark.parametrize("name", REPEATS)
def test_repeats(name: str) -> None:
    found = trip(REPEATS[name], steps=1)
    assert found.loss_diff < 1e-10 and found.weight_diff < 1e-10 and not found.imported.remarks


OFTEN: dict[str, Function] = {
    "beside the batch": lambda h, m: m.rows.repeat(len(h), 1).view(len(h), 3, 6) * h.repeat_interleave(3, 0).view(-1, 3, 6),
    "by itself": lambda h, m: m.rows.repeat(len(h) + 1, 1).sum(0) * h,
    "each": lambda h, m: m.rows.repeat_interleave(len(h), 0).sum(0) * h,
    "each one of the batch": lambda h, m: h.repeat_interleave(len(h), 0).sum(0).tanh(),
    "twice as often": lambda h, m: m.rows.repeat(2 * len(h), 1).sum(0) * h,
}  # fmt: skip


@pytest.mark.parametrize("name", OFTEN)
def test_as_often_as_there_are_samples(name: str) -> None:
    """The text was imported at a batch of 7 and runs at 5; what it can't say has been remarked on."""
    found = trip(OFTEN[name], 5, settings={"batch": 5}, distributed=False, steps=1)
    if name == "twice as often":
        assert "with other lengths it is wrong" in found.imported.remarks[0]
    else:
        assert found.loss_diff < 1e-10 and found.weight_diff < 1e-10 and not found.imported.remarks


@pytest.mark.parametrize(
    ("function", "words", "way_out"),
    [
        (lambda h, m: h.repeat_interleave(2), "all dims as one", "which dim"),
        (lambda h, m: h + torch.randn_like(h), "noise that is drawn", "argument"),
        (lambda h, m: h + torch.randn(6), "noise that is drawn", "argument"),
        (lambda h, m: h.tile(2, 2).view(-1, 2, 6) * h.repeat_interleave(2, 0)[:, None], "don't nest", "same order"),
    ],
)
def test_what_is_refused(function: Function, words: str, way_out: str) -> None:
    found = refused(lambda: trip(function))
    assert found.code == "HAP877" and words in found.message and way_out in found.help and found.span.line


class Twice(nn.Module):
    """Two views of a batch through one normalisation, whose running statistics go on from the first to the second."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6, momentum=0.3), nn.ReLU(), nn.Linear(6, 4))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return (self.net(a) - self.net(b).detach()).square().mean()


def test_batch_norm_that_is_called_twice() -> None:
    torch.manual_seed(5)
    batch = {"a": torch.randn(6, 8), "b": torch.randn(6, 8)}
    found = round_trip(Twice(), "a : f32[batch = 6, 8]; b : f32[batch, 8]", batch, lambda own, given: own(**given))
    assert found.loss_diff < 1e-10 and found.weight_diff < 1e-10
    assert {"net.1.running_mean", "net.1.running_var"} <= found.graph.updates.keys()
