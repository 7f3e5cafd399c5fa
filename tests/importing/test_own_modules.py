"""Modules written by hand: their text, and that it trains as they do."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hapdsl.cli import main
from hapdsl.importing import weights
from hapdsl.importing.convert import import_module
from hapdsl.importing.factory import make
from hapdsl.run.data import open_feed
from hapdsl.run.initial import initial
from hapdsl.run.reference import Reference
from hapdsl.workbench import Workbench
from tests.importing import modules
from tests.importing.helpers import CLUSTER, bench_of, classify, round_trip

TOKENS = "tokens : i64[batch = 4, seq = 8]; labels : i64[batch, seq]"


def tokens(batch: int = 4, seq: int = 8) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return {n: torch.randint(50, (batch, seq), generator=draw) for n in ("tokens", "labels")}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_mlp(dtype, tolerance):
    batch = {"x": torch.randn(8, 8), "label": torch.randint(4, (8,))}
    example = "x : f32[batch = 8, 8]; label : i64[batch]"
    trip = round_trip(modules.mlp(), example, batch, classify, dtype, loss="cross_entropy")
    assert trip.loss_diff < tolerance and trip.weight_diff < tolerance and trip.compared == 4


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_transformer(dtype, tolerance):
    trip = round_trip(modules.transformer(), TOKENS, tokens(), dtype=dtype, by_batch=dtype == torch.float32)
    assert trip.loss_diff < tolerance and trip.weight_diff < tolerance and trip.compared == 29
    assert "param attn.qkv.weight : f32[3, heads, head_dim, d]" in trip.imported.text
    assert trip.graph.classes["heads"].units == 3


def test_attention_in_single_steps():
    trip = round_trip(modules.by_hand(), TOKENS, tokens())
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10
    assert "causal_mask" in trip.imported.text and "[heads, head_dim" in trip.imported.text


def test_another_batch_and_length_by_set():
    """The text was imported at 4 x 8 and runs at 3 x 11."""
    trip = round_trip(modules.transformer(), TOKENS, tokens(3, 11), settings={"batch": 3, "seq": 11}, distributed=False)
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10


def test_layers_are_one_number():
    three, five = (import_module(modules.Transformer(n), TOKENS).text for n in (3, 5))
    assert three.replace("layers = 3", "layers = 5") == five
    assert "repeat blocks in layers {" in five


def test_names_are_those_of_the_state_dict():
    module = modules.transformer()
    graph = bench_of(import_module(module, TOKENS)).graph()
    assert {t.name for t in graph.of_kind("param")} == set(module.state_dict())


def test_weights_go_there_and_back():
    module, other = modules.transformer(), modules.transformer()
    graph = bench_of(import_module(module, TOKENS)).graph()
    weights.into_module(other, weights.from_module(graph, module))
    assert all(
        torch.equal(a, b) for a, b in zip(module.state_dict().values(), other.state_dict().values(), strict=True)
    )
    again = weights.from_state_dict(graph, module.state_dict())
    assert again["blocks.0.attn.qkv.weight"].shape == (3, 3, 8, 24)


def test_no_weights_are_needed():
    """The text of a module on the meta device is that of the module itself."""
    module = make(modules.transformer, "modules:transformer")
    assert all(p.is_meta for p in module.parameters())
    assert import_module(module, TOKENS).text == import_module(modules.transformer(), TOKENS).text


def test_square_matrices_keep_their_sides():
    """All dims of 8 are one, so that only the order of a matrix' dims tells rows from columns."""
    batch = {"x": torch.randn(5, 6, 8), "label": torch.randint(4, (5,))}
    trip = round_trip(
        modules.Square(), "x : f32[batch = 5, 6, 8]; label : i64[batch]", batch, classify, loss="cross_entropy"
    )
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10 and trip.compared == 8


def test_numbers_for_names():
    batch = {"x": torch.randn(8, 8), "label": torch.randint(4, (8,))}
    example = "x : f32[batch = 8, 8]; label : i64[batch]"
    trip = round_trip(modules.Numbered(), example, batch, classify, loss="cross_entropy", distributed=False)
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10 and trip.compared == 14
    assert "repeat layers in layers {" in trip.imported.text  # what stands between the layers is part of them


def test_digits_for_names_are_those_of_the_state_dict():
    """`0.weight` is `_0.weight` in the text; the way there and back is exact, and a file of weights fits by the module's own names."""
    module, other = modules.mlp(), modules.mlp()
    graph = bench_of(import_module(module, "x : f32[batch = 8, 8]; label : i64[batch]", loss="cross_entropy")).graph()
    assert {t.name for t in graph.of_kind("param")} == {"_0.weight", "_0.bias", "_2.weight", "_2.bias"}
    held = weights.from_state_dict(graph, module.state_dict())
    assert {weights.plain(n) for n in held} == set(module.state_dict())
    weights.into_module(other, held)
    assert all(
        torch.equal(a, b) for a, b in zip(module.state_dict().values(), other.state_dict().values(), strict=True)
    )


def test_many_functions():
    batch = {"x": torch.randn(6, 8), "label": torch.randint(4, (6,))}
    trip = round_trip(
        modules.Functions(),
        "x : f32[batch = 6, 8]; label : i64[batch]",
        batch,
        classify,
        loss="cross_entropy",
        distributed=False,
    )
    assert trip.loss_diff < 1e-9 and trip.weight_diff < 1e-9  # hardswish and softplus are rounded by torch itself


def test_choices_and_what_is_made_of_others():
    batch = {"x": torch.randn(6, 8), "label": torch.randint(4, (6,))}
    trip = round_trip(
        modules.Choices(),
        "x : f32[batch = 6, 8]; label : i64[batch]",
        batch,
        classify,
        loss="cross_entropy",
        distributed=False,
    )
    assert trip.loss_diff < 1e-9 and trip.weight_diff < 1e-9 and trip.compared == 7


def test_turns_of_a_recurrence_and_scalars_of_what_had_a_dim_of_one():
    batch = {"x": torch.randn(6, 3, 8)}
    trip = round_trip(modules.Recurrent(), "x : f32[batch = 6, 3, 8]", batch)
    assert trip.loss_diff < 1e-9 and trip.weight_diff < 1e-9 and trip.compared == 5


def test_losses_along_both_indices_of_a_square():
    batch = {"x": torch.randn(6, 8), "y": torch.randn(6, 8), "label": torch.randperm(6)}
    trip = round_trip(modules.Contrast(), "x : f32[batch = 6, 8]; y : f32[batch, 8]; label : i64[batch]", batch)
    assert trip.loss_diff < 1e-9 and trip.weight_diff < 1e-9 and trip.compared == 4


def test_losses():
    batch = {"x": torch.randn(6, 8), "label": torch.randint(8, (6,)), "target": torch.randn(6, 8)}
    batch["label"][0] = 2
    example = "x : f32[batch = 6, 8]; label : i64[batch]; target : f32[batch, 8]"
    trip = round_trip(modules.Losses(), example, batch, lambda module, given: module(**given), distributed=False)
    assert trip.loss_diff < 1e-9 and trip.weight_diff < 1e-9


def test_changes_in_place_that_nobody_else_sees():
    batch = {"x": torch.randn(8, 8), "label": torch.randint(4, (8,))}
    example = "x : f32[batch = 8, 8]; label : i64[batch]"
    trip = round_trip(modules.Harmless(), example, batch, classify, loss="cross_entropy", distributed=False)
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10


def test_a_loss_without_parameters_is_an_output():
    module = nn.Sequential(nn.ReLU())
    found = import_module(module, "x : f32[batch = 8, 4]; label : f32[batch, 4]", loss="mse_loss")
    graph = bench_of(found).graph()
    assert graph.loss is None and set(graph.outputs) == {"loss", "y"}


def test_arguments_by_keyword_only():
    found = import_module(
        modules.KeywordOnly(), "x : f32[batch = 8, 8]; scale = 3.0; label : i64[batch]", loss="cross_entropy"
    )
    assert "by = 3.0" in found.text


def test_arguments_and_results_of_several_tensors():
    """The parts of an argument are inputs of their own; whole numbers are no loss, and a result is an output once."""
    module = modules.Several()
    x, z, mask = torch.randn(3, 6, 8)
    found = import_module(module, {"pair": (x, z), "mask": mask}, optimizer="sgd(lr = 1.0)")
    graph = bench_of(found).graph()
    assert {t.name for t in graph.of_kind("input")} == {"pair.0", "pair.1", "mask"}
    assert graph.outputs == ("count", "y") and graph.loss is not None
    held = initial(graph, 0, None, given=weights.from_module(graph, module))
    made = Reference(graph, None).step({**held, "pair.0": x, "pair.1": z, "mask": mask}, 1)
    wanted = module((x, z), mask)
    torch.testing.assert_close(made[graph.loss], wanted["spread"])
    torch.testing.assert_close([made[n] for n in graph.outputs], [wanted["count"], wanted["y"]])


class Biased(nn.Module):
    """Scores with a learned bias by distance, like T5's: which bias is a table of whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head = nn.Linear(8, 8), nn.Linear(8, 4)
        self.bias = nn.Embedding(3, 1)

    def forward(self, x):
        h = self.fc(x)
        away = (torch.arange(6)[:, None] - torch.arange(6)[None]).abs().clamp(max=2)
        scores = h @ h.transpose(1, 2) + self.bias(away)[..., 0]
        return self.head((scores.softmax(-1) @ h).mean(1))


def biased() -> nn.Module:
    return Biased()


def test_tables_of_numbers_go_beside_text_and_plan_and_are_run(tmp_path, capsys):
    """import -o, plan -o, run: the table of distances is read by every process; without its file the run says so."""
    (tmp_path / "three.hap").write_text(CLUSTER)
    text, planned = tmp_path / "net.hap", tmp_path / "plan.hap"
    example = "x : f32[batch = 8, 6, 8]; label : i64[batch]"
    spec = "tests.importing.test_own_modules:biased"
    assert main(["import", spec, "--example", example, "--loss", "cross_entropy", "-o", str(text)]) == 0
    assert "init table" in text.read_text() and (tmp_path / "net.hap.npz").is_file()
    assert (
        main(
            [
                "plan",
                str(text),
                "--cluster",
                str(tmp_path / "three.hap"),
                "--gap",
                "1",
                "--all-devices",
                "-o",
                str(planned),
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert main(["run", str(planned), "--steps", "2", "--reference", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    module = Biased()
    bench = Workbench(planned)
    graph = bench.proven(bench.program()).program.graph
    weights.into_module(module, initial(graph, 0))
    batch = open_feed("random", graph, 0).batch(1)
    assert found["loss"][0] == pytest.approx(F.cross_entropy(module(batch["x"]), batch["label"]).item(), abs=1e-5)
    assert found["loss_diff"] < 1e-6
    (tmp_path / "plan.hap.npz").unlink()
    assert main(["run", str(planned), "--steps", "1"]) == 2
    assert "HAP710" in capsys.readouterr().err
