"""Public models with positions by distance or windows of images: the same loss and updated weights as the module itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapdsl.importing.convert import import_module
from tests.importing import public
from tests.importing.helpers import bench_of, classify, own_loss, round_trip
from tests.importing.public import CACHED, images, tokens

PIXELS = "pixel_values : f32[batch = 2, 3, 32, 32]; labels : i64[batch]"


@pytest.mark.parametrize(
    ("make", "example"),
    [
        (public.bloom, CACHED),
        (public.falcon, CACHED),
        (public.xlnet, public.TOKENS),
        (public.swin, PIXELS),
        (public.beit, PIXELS),
        (public.timm_swin, public.TINY),
    ],
)
def test_against_eager(make: Callable[[], nn.Module], example: str) -> None:
    pixels = {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.randint(5, (2,))}
    batch = tokens() if "input_ids" in example else pixels if example == PIXELS else images(32)
    given = {"loss": "cross_entropy"} if example == public.TINY else {}
    trip = round_trip(
        make(), example, batch, classify if given else own_loss, torch.float32, distributed=False, steps=1, **given
    )
    assert trip.loss_diff < 1e-5 and trip.weight_diff < 1e-5


class Heads(nn.Module):
    """Of two heads the loss sees one, and of two layers each has a part that nobody calls."""

    def __init__(self, stop: bool = False) -> None:
        super().__init__()
        self.stop = stop
        self.layers = nn.ModuleList(
            nn.ModuleDict({"used": nn.Linear(6, 6), "spare": nn.Linear(6, 6)}) for _ in range(2)
        )
        self.first, self.head, self.other = nn.Linear(5, 6), nn.Linear(6, 4), nn.Linear(6, 3)

    def forward(self, x: Tensor, label: Tensor) -> dict[str, Tensor]:
        x = self.first(x)
        for layer in self.layers:
            x = x + torch.tanh(layer["used"](x))
        other = self.other(x)
        target = self.head(x.detach() if self.stop else x)
        return {"loss": F.cross_entropy(target, label), "other": other}


def test_what_the_loss_does_not_see_stays_as_it_is() -> None:
    example = "x : f32[batch = 8, 5]; label : i64[batch]"
    found = import_module(Heads(), example)
    graph = bench_of(found).graph()
    assert {t.name.partition(".")[0] for t in graph.of_kind("param")} == {"first", "layers", "head"}
    assert {t.name for t in graph.of_kind("frozen")} == {"other.weight", "other.bias"}
    assert "spare" not in found.text.partition("\n")[2] and "repeat layers in layers {" in found.text
    assert {"layers.0.spare.weight", "other.bias"} <= set(found.unused)


def test_where_the_gradient_stops_nothing_is_trained() -> None:
    """Behind `detach` the head alone is; what comes before it is read as it is."""
    example = "x : f32[batch = 8, 5]; label : i64[batch]"
    batch = {"x": torch.randn(8, 5), "label": torch.randint(4, (8,))}
    trip = round_trip(Heads(stop=True), example, batch)
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10
    assert {t.name for t in trip.graph.of_kind("param")} == {"head.weight", "head.bias"}
    assert {"first.weight", "layers.1.used.bias"} <= {t.name for t in trip.graph.of_kind("frozen")}
    assert not any(n.section == "backward" and n.op == "tanh_grad" for n in trip.graph.nodes)
