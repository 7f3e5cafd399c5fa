"""Numbers that Python works out from lengths: at other lengths the text answers what the module does, or it has been remarked on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapdsl.importing import convert, weights
from hapdsl.importing.convert import Imported, import_module
from hapdsl.importing.trace import trace
from hapdsl.run.initial import initial
from hapdsl.run.reference import Reference
from tests.importing import indexed
from tests.importing.helpers import bench_of, refused

EXAMPLE = "x : f32[batch = 6, seq = 7, 8]"


class Around(nn.Module):
    """A function behind a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.fc, self.function = nn.Linear(8, 5), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.fc(x))


def answers(module: nn.Module, found: Imported, settings: Mapping[str, int], x: Tensor) -> tuple[Tensor, Tensor]:
    graph = bench_of(found).graph(settings=settings)
    assert graph.loss is not None
    held = initial(graph, 0, None, given=weights.from_module(graph, module))
    return Reference(graph, None).step({**held, "x": x}, 1)[graph.loss], module(x)


def sums(y: Tensor) -> Tensor:
    """Divided, multiplied, in place, inverted, less one, by products, powers and roots; and a number that only looks like a length."""
    batch, seq = y.shape[0], y.shape[1]
    whole = (y**2).sum()
    found = whole / batch + whole * (1.0 / len(y)) + whole / (batch * seq) + 2 * whole / y.numel() - whole / -y.size(0)
    found = found + whole / (batch - 1) + whole / seq**0.5 + (seq / (1 + y**2)).mean() + seq + whole.clone().div_(batch)
    found = (
        found
        + y[:, seq - 2].tanh().mean()
        + y[:, : seq - 1].cos().mean()
        + y[:, 2:seq].exp().mean()
        - (3 - seq) * y.mean()
    )
    found = found + F.cross_entropy(y.flatten(0, 1), y.flatten(0, 1).softmax(-1), reduction="sum") / batch
    return found + F.kl_div(y.log_softmax(-1), y.softmax(-1).roll(1, -1), reduction="batchmean") + y.mean() / 6


def test_numbers_that_are_lengths_go_with_them():
    torch.manual_seed(1)
    module = Around(sums)
    found = import_module(module, EXAMPLE)
    assert found.remarks == []
    torch.testing.assert_close(*answers(module, found, {"batch": 4, "seq": 12}, torch.randn(4, 12, 8)))
    assert f"by = {1 / 6}" in found.text and "by = 1 / batch" in found.text


def test_what_is_counted_from_the_end_goes_with_the_length():
    torch.manual_seed(1)
    module = indexed.FromTheEnd()
    found = import_module(module, EXAMPLE)
    torch.testing.assert_close(*answers(module, found, {"batch": 4, "seq": 12}, torch.randn(4, 12, 8)))


class Table(nn.Module):
    """With no more positions than the example has: it can't be looked at with another length."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.table = nn.Linear(8, 5), nn.Parameter(torch.zeros(7, 5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x) + self.table
        return (y**2).sum() / 7 / y.shape[0]


@pytest.mark.parametrize(
    ("module", "number", "words"),
    [
        (Around(lambda y: y[:, : y.shape[1] // 2].mean()), "3", "in a way that this text can't say"),
        (Table(), "7", "is as long as 'seq'"),
    ],
)
def test_what_can_not_be_said_is_remarked_on_with_its_line(module, number, words):
    found = import_module(module, EXAMPLE)
    (said,) = found.remarks
    assert said.startswith(f"{number} (") and f"{Path(__file__).name}:" in said and words in said
    assert f"# {said[:40]}" in found.text
    if isinstance(module, Table):
        assert "by = 1 / batch" in found.text


def rows(y: Tensor) -> Tensor:
    """Numbers one over a length and a number, factors of a sum, pieces by their lengths, and what stands behind a prefix."""
    seq = y.shape[1]
    found = (
        (y * (1 / (seq + 1))).sin().sum() + (y + (seq - 7)).tanh().sum() + torch.add(y, y.sin(), alpha=1 / seq).sum()
    )
    found = found + torch.add(y, 3.0, alpha=1 / seq).cos().sum() + (y + torch.finfo(torch.float64).tiny).exp().mean()
    first, last = y.split([seq - 1, 1], 1)
    found = found + first.tanh().mean() + (last**2).mean() + y.narrow(1, seq - 1, 1).sin().mean()
    found = found + (torch.cat([y[:, :2].cos(), y], 1)[:, -seq:] * y).mean() + (y * y.roll(seq - 1, 1)).mean()
    found = found + sum(part.sin().mean() for part in F.pad(y, (0, 0, 1, 2))[:, :-1].split([2, seq], 1))
    return found + y.narrow(1, 2, seq - 2).exp().mean()


def test_numbers_of_all_places_go_with_the_lengths():
    torch.manual_seed(1)
    module = Around(rows)
    found = import_module(module, EXAMPLE)
    assert found.remarks == []
    torch.testing.assert_close(*answers(module, found, {"batch": 4, "seq": 12}, torch.randn(4, 12, 8)))


def test_each_number_that_can_not_be_said_is_remarked_on():
    said = (
        lambda y: y * math.log(y.shape[1]),
        lambda y: y * (y.shape[1] + 0.5),
        lambda y: y * y.shape[1] ** -0.25,
        lambda y: y * (y.shape[1] // 2),
        lambda y: y * (math.log(y.shape[1]) / math.log(512)),
        lambda y: F.pad(y, (0, 0, 0, 30 - y.shape[1])),
        lambda y: y * y.roll(y.shape[1] // 2, 1),
        lambda y: y.sigmoid() ** (1 / y.shape[1]),
        lambda y: y * (torch.ones(5) / (y.shape[1] + 2)),
    )
    found = import_module(Around(lambda y: sum(f(y).mean() for f in said)), EXAMPLE)
    numbers = [r.split()[0] for r in found.remarks]
    for cut in (lambda y: y.chunk(2, 1)[0].sin(), lambda y: y.split(3, 1)[1].sin()):
        (remark,) = import_module(Around(lambda y, cut=cut: cut(y).mean()), EXAMPLE).remarks
        assert "those of a longer dim would be others" in remark
    assert numbers == ["1.94591", "7.5", "0.614788", "3", "0.311928", "23", "0.142857", "9"]


def overwritten(y: Tensor) -> Tensor:
    """Parts counted from the end, of what there is and of zeros, by numbers and by tensors."""
    found = y.mean()
    for where, value in (
        (slice(2, None), 0),
        (slice(None, -2), 0),
        (slice(None, 3), 1),
        (-1, y[:, 0].sin()),
        (0, y[:, 1]),
        (slice(-3, -1), y[:, :2].sin()),
        (slice(1, None), y[:, :-1].sin()),
    ):
        z = y.clone()
        z[:, where] = value
        found = found + z.exp().mean()
    for where, value in ((-1, y[:, 0]), (0, y[:, -1]), (slice(1, -1), y[:, 2:])):
        z = torch.zeros_like(y)
        z[:, where] = value
        found = found + z.exp().mean()
    z = torch.zeros(y.shape)
    z[:, -1] = y[:, 2]
    return found + z.exp().mean() + y.mean().expand(y.shape[1]).tanh().sum()


def test_what_is_overwritten_or_repeated_goes_with_the_length():
    torch.manual_seed(1)
    module = Around(overwritten)
    found = import_module(module, EXAMPLE)
    torch.testing.assert_close(*answers(module, found, {"batch": 4, "seq": 12}, torch.randn(4, 12, 8)))


def test_half_a_length_of_whole_numbers_is_no_fraction():
    """7 // 2 at an even length is a whole number, at an odd one no half."""
    even = "x : f32[batch = 6, seq = 8, 8]"
    (said,) = import_module(Around(lambda y: (y * (y.shape[1] // 2)).mean()), even).remarks
    assert said.startswith("4 (")
    torch.manual_seed(1)
    module = Around(lambda y: (y * (y.shape[1] / 2)).tanh().mean())
    found = import_module(module, even)
    assert found.remarks == []
    torch.testing.assert_close(*answers(module, found, {"batch": 4, "seq": 11}, torch.randn(4, 11, 8)))


def test_one_named_dim_that_can_not_be_longer_is_tried_once_and_without_memory(monkeypatch):
    made: list[tuple[int, bool]] = []

    def seen(module, arguments, *rest):
        made.append((arguments["x"].shape[1], arguments["x"].is_meta))
        return trace(module, arguments, *rest)

    monkeypatch.setattr(convert, "trace", seen)
    import_module(Table(), "x : f32[6, seq = 7, 8]")
    assert made == [(7, True), (14, True)]  # without memory


def test_nothing_is_divided_by_a_length_that_is_0_here():
    found = refused(lambda: import_module(Around(lambda y: (y / (y.shape[1] - 7)).mean()), EXAMPLE))
    assert found.code == "HAP877" and "division by 0" in found.message
