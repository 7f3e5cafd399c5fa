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
