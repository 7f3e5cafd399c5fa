"""What a forward pass does under no_grad."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from hapdsl.importing.convert import import_module
from hapdsl.lang.diagnostics import HapError
from tests.importing.helpers import round_trip


class Taught(nn.Module):
    """By a frozen layer, and by a mask of the inputs; blocks within blocks, and products of vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.teacher = nn.Linear(8, 4), nn.Linear(8, 4).requires_grad_(False)
        self.along = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = self.teacher(x).softmax(-1)
            with torch.enable_grad():
                kept = (x.abs().sum(-1, keepdim=True) > 1).to(x.dtype)
        away = (kept * (self.fc(x).softmax(-1) - wanted)).pow(2)
        return away.mean() + (self.fc(x) @ self.along).tanh().mean() + torch.dot(self.along, self.along)


def test_a_teacher_and_a_mask():
    torch.manual_seed(1)
    batch = {"x": torch.randn(6, 8)}
    trip = round_trip(Taught(), "x : f32[batch = 6, 8]", batch, lambda own, given: own(**given), distributed=False)
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10
    assert "frozen teacher.weight" in trip.imported.text


class Own(nn.Module):
    """Its gradient stops in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        with torch.no_grad():
            wanted = y.softmax(-1)
        return (y - wanted).pow(2).mean()


class Changed(Own):
    """Keeps the last batch's mean."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        with torch.no_grad():
            self.seen.copy_(y.mean(0))
        return (y - self.seen).pow(2).mean()


@pytest.mark.parametrize(
    ("module", "code", "line"),
    [
        (Changed(), "HAP875", "self.seen.copy_(y.mean(0))"),
        (spectral_norm(nn.Linear(8, 4)), "HAP875", ""),
    ],
)
def test_what_would_need_more_is_refused(module, code, line):
    with pytest.raises(HapError) as stop:
        import_module(module, "x : f32[batch = 6, 8]")
    (found,) = stop.value.diagnostics
    assert found.code == code and found.help
    if line:
        source = Path(found.span.file).read_text(encoding="utf-8").splitlines()[found.span.line - 1]
        assert source.strip() == line
    else:  # no line of the module's own: torch's parametrization wrote it
        assert "parametrizations.weight.0" in found.message and "eval()" in found.help
        assert import_module(module.eval(), "x : f32[batch = 6, 8]").tables


def test_what_parameters_make_under_no_grad():
    batch = {"x": torch.randn(6, 8)}
    trip = round_trip(Own(), "x : f32[batch = 6, 8]", batch, lambda own, given: own(**given))
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10
