"""Functions by themselves: what the text of a module answers is what the module answers, in the dtype that it asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hapdsl.importing import weights
from hapdsl.importing.convert import import_module
from hapdsl.lang.diagnostics import HapError
from hapdsl.run.initial import initial
from hapdsl.run.reference import Reference
from hapdsl.workbench import Workbench

SMALL = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)) * 1e-3
IDS = torch.tensor([[1, 2, -1], [0, 3, 4]])


class Around(nn.Module):
    """A function of numbers, behind a layer, or of whole numbers, in front of a table."""

    def __init__(self, function: Callable[[Tensor], Tensor], inside: nn.Module, ids: bool) -> None:
        super().__init__()
        self.function, self.inside, self.ids = function, inside, ids

    def forward(self, x: Tensor) -> Tensor:
        return self.inside(self.function(x)) if self.ids else self.function(self.inside(x))


def turned(at: int) -> Callable[[Tensor], Tensor]:
    """What stands behind a place before what is in front of it, weighed by tables; in the middle this may be rotary positions."""
    cos, sin = torch.linspace(0, 1, 24).view(4, 6), torch.linspace(1, -1, 24).view(4, 6)
    return lambda x: torch.add(x * cos, torch.cat([-x[:, at:], x[:, :at]], -1) * sin, alpha=1 if at == 2 else 2)


def overwritten(x: Tensor) -> Tensor:
    """A constant, read before and after parts of it are overwritten."""
    mask = torch.ones(4, 6)
    found = x * (2 * mask)
    mask[:, 2:] = 5.0
    more = mask + 1
    mask[0].fill_(0)
    return found + x * mask + more


class Bf16(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.bfloat16()


class Scaled(nn.Module):
    """A norm written in steps, scaled by what isn't a vector, or with an eps that isn't a number."""

    def __init__(self, scale: Tensor | float, eps: Tensor | float = 1e-6) -> None:
        super().__init__()
        self.scale = nn.Parameter(scale) if isinstance(scale, Tensor) else scale
        self.eps = nn.Parameter(eps) if isinstance(eps, Tensor) else eps

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


FLOATS: dict[str, tuple[Callable[[Tensor], Tensor], nn.Module]] = {
    "rms_norm": (lambda x: x, nn.RMSNorm(6)),
    "rms_norm 1e-5": (lambda x: x, nn.RMSNorm(6, eps=1e-5)),
    "rms_norm 1e-6": (lambda x: x, nn.RMSNorm(6, eps=1e-6)),
    "layer_norm 1e-6": (lambda x: x, nn.LayerNorm(6, eps=1e-6)),
    "sum in f64": (lambda x: x.sum(-1, dtype=torch.float64), nn.Linear(6, 6)),
    "mean in f64": (lambda x: x.mean(-1, dtype=torch.float64), nn.Linear(6, 6)),
    "softmax in f64": (lambda x: x.softmax(-1, dtype=torch.float64), nn.Linear(6, 6)),
    "counted": (lambda x: (x > 0).sum(-1), nn.Linear(6, 6)),
    "clamp_max": (lambda x: x.clamp_max(0.1), nn.Linear(6, 6)),
    "relu6": (lambda x: F.relu6(1e4 * x), nn.Linear(6, 6)),
    "clamped by nothing": (lambda x: x.clamp(min=0, max=float("inf")), nn.Linear(6, 6)),
    "infinite by choice": (lambda x: torch.where(x > 1e9, float("inf"), 0.0) + x, nn.Linear(6, 6)),
    "compared with False": (lambda x: x.masked_fill((x > 0) == False, 0.5), nn.Linear(6, 6)),  # noqa: E712
    "power of one number": (lambda x: x ** torch.tensor(2.0) + torch.tensor(2.0) ** x, nn.Linear(6, 6)),
    "longest and largest": (lambda x: x.norm(p=1, dim=-1) + x.norm(p=float("inf"), dim=-1), nn.Linear(6, 6)),
    "all dims reversed": (lambda x: x[:, None].repeat(1, 2, 1).T, nn.Linear(6, 6)),
    "a constant overwritten": (overwritten, nn.Linear(6, 6)),
    "turned elsewhere": (turned(2), nn.Linear(6, 6)),
    "turned in the middle": (turned(3), nn.Linear(6, 6)),
    "not turned": (
        lambda x: x * torch.ones(4, 6) + torch.cat([-x[:, 3:], x[:, :3]], 1) * torch.zeros(4, 6),
        nn.Linear(6, 6),
    ),
    "rms_norm alone": (lambda x: F.rms_norm(x, (6,)), nn.Linear(6, 6)),
    "a norm times 2": (lambda x: x, Scaled(2.0)),
    "a norm times a scalar": (lambda x: x, Scaled(torch.tensor(1.5))),
    "a norm times a matrix": (lambda x: x, Scaled(torch.ones(4, 6) / 3)),
    "a norm with a trained eps": (lambda x: x, Scaled(torch.ones(6), torch.tensor(0.1))),
    "a scalar's dtype counts less": (lambda x: x, nn.Sequential(Bf16(), Scaled(torch.tensor(2.0), 0.0))),
    "fractions of whole numbers": (
        lambda x: 1.0 / (x.argmax(1) + 1) + x.argmax(1) / (1 + x.argmin(1)),
        nn.Linear(6, 6),
    ),
    "less a whole number": (lambda x: 0.5 - x.argmax(1), nn.Linear(6, 6)),
    "functions of whole numbers": (
        lambda x: x.argmax(1).exp() + x.argmax(1).sqrt() + x.argmax(1) ** 0.5 + torch.erf(x.argmax(1)),
        nn.Linear(6, 6),
    ),
    # results whose dims are stored otherwise than the module shows them
    "kept dim": (lambda x: x.amax(-1, keepdim=True), nn.Linear(6, 6)),
    "every other": (lambda x: x[:, ::2], nn.Linear(6, 6)),
    "repeated": (lambda x: x[:, None].repeat(1, 3, 1), nn.Linear(6, 6)),
}
WHOLE: dict[str, Callable[[Tensor], Tensor]] = {
    "from 0": lambda x: x.clamp(min=0),
    "up to 3": lambda x: x.abs().clamp_max(3),
    "maximum": lambda x: torch.maximum(x, torch.zeros_like(x)),
}


def same(module: nn.Module, x: Tensor) -> None:
    text = import_module(module.eval(), {"x": x})
    graph = Workbench("imported.hap", text.text).graph()
    held = initial(graph, 0, None, given=weights.from_module(graph, module, text.tables))
    answer = Reference(graph, None).step({**held, "x": x}, 1)[graph.outputs[0]]
    wanted = module(x)
    assert answer.dtype == wanted.dtype
    torch.testing.assert_close(answer, wanted)


@pytest.mark.parametrize("name", FLOATS)
def test_of_numbers(name: str) -> None:
    function, inside = FLOATS[name]
    same(Around(function, inside, ids=False), SMALL)


@pytest.mark.parametrize("name", WHOLE)
def test_of_whole_numbers(name: str) -> None:
    same(Around(WHOLE[name], nn.Embedding(7, 5), ids=True), IDS)


def test_a_table_in_bf16_is_kept(tmp_path: Path) -> None:
    """numpy has no such numbers."""
    module = Around(lambda x: x, nn.Linear(6, 6), ids=False).bfloat16()
    module.register_buffer("table", SMALL[0].bfloat16())
    module.function = lambda x: x * module.table
    imported = import_module(module, {"x": SMALL.bfloat16()})
    assert weights.save_tables(tmp_path / "m.hap", imported.tables) == tmp_path / "m.hap.npz"
    graph = Workbench("imported.hap", imported.text).graph()
    held = initial(graph, given=weights.from_tables(graph, weights.load_tables(tmp_path / "m.hap")))
    assert torch.equal(held["table"], module.table)


def test_a_gradient_by_count_is_refused() -> None:
    table = nn.Embedding(7, 5, scale_grad_by_freq=True)
    with pytest.raises(HapError) as stop:
        import_module(Around(lambda x: x, table, ids=True), {"x": IDS.abs()})
    assert [d.code for d in stop.value.diagnostics] == ["HAP877"]
