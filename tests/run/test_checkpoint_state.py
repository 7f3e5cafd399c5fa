"""State_dicts become checkpoints and checkpoints state_dicts: against a module of plain PyTorch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from hapdsl.cli import main
from hapdsl.importing.convert import import_module
from hapdsl.run.alone import train_alone
from hapdsl.run.checkpoint import find
from hapdsl.run.checkpoint_state import state_dict
from hapdsl.run.initial import random_inputs
from hapdsl.workbench import Workbench
from tests.texts import PROGRAM, TINY


class Heads(nn.Module):
    """A projection that the text splits into heads, a table, a tied name, and layers that are called by numbers."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(12, 24)
        self.tail = nn.Sequential(nn.ReLU(), nn.Linear(24, 10))
        self.register_buffer("scale", torch.rand(24))

    def forward(self, x):
        y = self.project(x).reshape(8, 4, 6).transpose(1, 2).transpose(1, 2).reshape(8, 24)
        return self.tail(y * self.scale)


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """A module, its text in a file, and its weights in another."""
    torch.manual_seed(3)
    module, folder = Heads(), tmp_path_factory.mktemp("heads")
    made = import_module(module, "x : f32[batch = 8, 12]; label : i64[batch]", "heads", loss="cross_entropy")
    (folder / "heads.hap").write_text(made.text)
    save_file(module.state_dict(), folder / "weights.safetensors")
    return module, folder


def answer(capsys, *words):
    status = main([*map(str, words), "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_there_and_back(imported, tmp_path, capsys):
    module, folder = imported
    weights, base, out = folder / "weights.safetensors", tmp_path / "c", tmp_path / "out.safetensors"
    status, said = answer(capsys, "checkpoint", "import", weights, folder / "heads.hap", "-o", base)
    assert status == 0 and said["checkpoint"] == str(base / "step-00000000")
    # what a run begins with are the module's weights: its loss is the module's
    graph = Workbench(folder / "heads.hap").graph("heads")
    batch = random_inputs(graph, 0)
    found = train_alone(graph, 3, "random", resume=find(base))
    assert found.first_step == 1
    assert found.loss[0] == pytest.approx(float(F.cross_entropy(module(batch["x"]), batch["label"]).detach()), rel=1e-5)
    assert found.loss[2] < found.loss[0]
    # and back, as the module has them
    status, said = answer(capsys, "checkpoint", "export", base, "-o", out, "--like", weights)
    assert status == 0 and said["missing"] == [] and said["step"] == 0
    back = load_file(out)
    other = Heads()
    other.load_state_dict(back)
    assert all(torch.equal(t, module.state_dict()[n]) for n, t in other.state_dict().items())
    assert out.stat().st_mode & 0o777 == (folder / "heads.hap").stat().st_mode & 0o777
    # with the optimizer's state, in the text's shapes
    status, said = answer(capsys, "checkpoint", "export", base, "-o", out, "--state")
    assert {n for n in said["tensors"] if n not in back} == {f"{t.name}" for t in graph.of_kind("state")}
    status, said = answer(capsys, "checkpoint", "show", base, "--verify")
    assert (
        status == 0 and [c["step"] for c in said["checkpoints"]] == [0] and said["checkpoints"][0]["model"] == "heads"
    )


def test_weights_for_a_program_are_of_its_header(tmp_path, capsys):
    """Its model has other sizes than the text's, which `--model` would mean."""
    path, weights = tmp_path / "tiny.hap", tmp_path / "w.safetensors"
    path.write_text(TINY + PROGRAM.replace("for tiny on", "for tiny(hidden = 5) on"))
    own = {"w1": torch.randn(6, 5), "w2": torch.randn(5, 4)}
    save_file(own, weights)
    status, said = answer(capsys, "checkpoint", "import", weights, path, "-o", tmp_path / "c")
    assert (status, said["model"], said["tensors"]) == (0, "tiny", 2)
    assert all(torch.equal(t, own[n]) for n, t in state_dict(find(tmp_path / "c")).items())
    status, said = answer(capsys, "checkpoint", "import", weights, path, "-o", tmp_path / "d", "--model", "tiny")
    assert (status, [d["code"] for d in said["diagnostics"]]) == (2, ["HAP753"])
    named = ("--program", "by_batch", "--set", "hidden=5")
    status, said = answer(capsys, "checkpoint", "import", weights, path, "-o", tmp_path / "d", *named)
    (found,) = said["diagnostics"]
    assert (status, found["code"]) == (2, "HAP850") and "parameters from its header" in found["message"] + found["help"]
    assert not (tmp_path / "d").exists()


def test_a_table_beside_the_text_is_none_of_the_weights(tmp_path, capsys):
    """What an import has left there is taken from there; without it, it is missing."""
    path, weights = tmp_path / "m.hap", tmp_path / "w.safetensors"
    path.write_text("model m(batch = 4) {\n    input x : f32[batch, 3]\n    param w : f32[3]\n    frozen t : f32[3] init table\n    loss = sum(mul(mul(x, w), t), [0, 1])\n    train loss with sgd(lr = 0.1)\n}\n")  # fmt: skip
    save_file({"w": torch.tensor([1.0, 2, 3])}, weights)
    status, said = answer(capsys, "checkpoint", "import", weights, path, "-o", tmp_path / "c")
    assert (status, [d["code"] for d in said["diagnostics"]]) == (2, ["HAP753"])
    assert "has no 't' for model 'm'" in said["diagnostics"][0]["message"]
    np.savez(tmp_path / "m.hap.npz", t=np.array([0.5, 0.25, 4], dtype=np.float32))
    status, said = answer(capsys, "checkpoint", "import", weights, path, "-o", tmp_path / "c")
    assert (status, said["tensors"]) == (0, 2)
    assert {n: t.tolist() for n, t in state_dict(find(tmp_path / "c")).items()} == {"w": [1, 2, 3], "t": [0.5, 0.25, 4]}
    # and back, as a module has them that has one thing more
    save_file({"w": torch.zeros(3, 1), "other": torch.zeros(2)}, tmp_path / "like.safetensors")
    export = ["checkpoint", "export", tmp_path / "c", "-o", tmp_path / "x", "--like", tmp_path / "like.safetensors"]
    assert main([*map(str, export)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert "1 tensors" in first and second == "  not in the checkpoint: other"
    assert {n: t.tolist() for n, t in load_file(tmp_path / "x").items()} == {"w": [[1], [2], [3]]}


def spoilt(folder: Path, tmp_path: Path, how: str) -> tuple[Path, Path]:
    """Weights and a text that don't go together."""
    tensors, text = load_file(folder / "weights.safetensors"), folder / "heads.hap"
    path = tmp_path / "w.safetensors"
    if how == "a name":
        tensors["other.weight"] = tensors.pop("project.weight")
    elif how == "a size":
        tensors["project.bias"] = torch.zeros(25)
    save_file(tensors, path)
    if how == "a pickle":
        torch.save(tensors, path)
    elif how == "short":
        path.write_bytes(path.read_bytes()[:-9])
    elif how == "none":
        path.unlink()
    return path, text


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("a name", "HAP753", "no 'project.weight'"),
        ("a size", "HAP753", "'project.bias'"),
        ("a pickle", "HAP752", "holds no tensors"),
        ("short", "HAP752", "holds no tensors"),
        ("none", "HAP750", "no file"),
    ],
)
def test_weights_that_do_not_fit(imported, tmp_path, capsys, how, code, words):
    path, text = spoilt(imported[1], tmp_path, how)
    status, said = answer(capsys, "checkpoint", "import", path, text, "-o", tmp_path / "c")
    (found,) = said["diagnostics"]
    assert status == 2 and found["code"] == code and words in found["message"] and found["help"]
    assert not (tmp_path / "c").exists()


def test_what_an_export_may_meet(imported, tmp_path, capsys):
    folder = imported[1]
    base = tmp_path / "c"
    assert (
        main(["checkpoint", "import", str(folder / "weights.safetensors"), str(folder / "heads.hap"), "-o", str(base)])
        == 0
    )
    capsys.readouterr()
    for words, status, code in (
        ((tmp_path / "no", "-o", tmp_path / "x"), 2, "HAP750"),
        ((base, "-o", tmp_path / "no" / "x"), 1, "HAP754"),
        ((base, "-o", tmp_path / "x", "--like", folder / "heads.hap"), 2, "HAP752"),
    ):
        got, said = answer(capsys, "checkpoint", "export", *words)
        assert (got, [d["code"] for d in said["diagnostics"]]) == (status, [code]), said
    save_file({"unheard.of": torch.zeros(2)}, tmp_path / "other.safetensors")
    got, said = answer(
        capsys, "checkpoint", "export", base, "-o", tmp_path / "x", "--like", tmp_path / "other.safetensors"
    )
    assert (got, said["diagnostics"][0]["code"]) == (2, "HAP753") and not (tmp_path / "x").exists()
    part = base / "step-00000000" / "rank-0.safetensors"
    part.write_bytes(part.read_bytes()[:-1] + b"\x7f")
    got, said = answer(capsys, "checkpoint", "show", base, "--verify")
    assert (got, [d["code"] for d in said["diagnostics"]]) == (1, ["HAP751"])
    assert main(["checkpoint", "show", str(base)]) == 0  # sizes are right; contents are looked at when asked
