"""What can't be imported is named: the module, the line, the operator, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hapdsl.cli import main
from hapdsl.importing import example, weights
from hapdsl.importing.convert import import_module
from hapdsl.importing.factory import find, make
from hapdsl.lang.diagnostics import Diagnostic
from tests.importing import modules
from tests.importing.helpers import bench_of, refused

X = "x : f32[batch = 4, 8]"
TOKENS = "x : f32[batch = 4, seq = 3, 8]"


def source_line(found: Diagnostic) -> str:
    return Path(found.span.file).read_text(encoding="utf-8").splitlines()[found.span.line - 1].strip()


def test_a_branch_on_data():
    found = refused(lambda: import_module(modules.Branches(), X))
    assert found.code == "HAP873"
    assert source_line(found) == "if x.sum() > 0:"
    assert "torch.where" in found.help


def test_an_unknown_operator():
    found = refused(lambda: import_module(modules.Unknown(), X))
    assert found.code == "HAP874"
    assert "aten.median" in found.message and "inner.1" in found.message
    assert source_line(found) == "return x.median(dim=-1).values"
    assert "declare an `op`" in found.help


def test_a_view_changed_in_place():
    found = refused(lambda: import_module(modules.InPlace(), X))
    assert found.code == "HAP875"
    assert source_line(found) == "y.t()[0].add_(1)"


def test_complex_numbers():
    assert refused(lambda: import_module(modules.Complex(), X)).code == "HAP876"


def test_a_form_that_is_not_known():
    found = refused(lambda: import_module(modules.Cubic(), X))
    assert found.code == "HAP877" and "norm of order 3" in found.message
    assert source_line(found) == "return torch.linalg.vector_norm(x, 3)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x : f32[batch = 4, 9]; scale = 1.0", "can't be called"),
        ("x : f32[batch = 4, 8]", "no 'scale'"),
        ("x : f32[batch = 4, 8]; scale = 1.0; z : f32[3]", "no argument 'z'"),
        ("x : float[4]", "no type of a tensor"),
        ("x : f32[batch, 8]", "has no length"),
        ("x : f32[batch = 0, 8]", "dim of 0"),
        ("x", "no argument"),
        ("flag = true", "no tensor"),
        ("x : f32[4, 8]; x : f32[4, 8]", "there twice"),
        ("my x : f32[4, 8]", "no name"),
        ("x : f32[²]", "has no length"),
    ],
)
def test_an_example_that_does_not_fit(text, words):
    found = refused(lambda: import_module(modules.KeywordOnly(), text))
    assert found.code == "HAP872" and words in f"{found.message} {found.help}"


def test_one_symbol_has_one_length():
    found = refused(lambda: example.atoms({"a": ["n"], "b": ["n"]}, {"a": _tensor(3), "b": _tensor(4)}))
    assert found.code == "HAP872"


def _tensor(n: int):
    return torch.zeros(n)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("tests.importing.modules", "doesn't name a factory"),
        ("tests.importing.no_such:thing", "can't be imported"),
        ("tests.importing.modules:thing", "has no 'thing'"),
    ],
)
def test_a_factory_that_is_not_there(spec, words):
    found = refused(lambda: find(spec))
    assert found.code == "HAP870" and words in found.message


def routed(x: torch.Tensor) -> torch.Tensor:
    """The weights of each token's two best experts."""
    return x.reshape(-1, 8).softmax(-1).topk(2, -1)[0]


class Around(nn.Module):
    """A function behind a layer, or of an image by itself."""

    def __init__(self, function: Callable[[torch.Tensor], object], inside: nn.Module) -> None:
        super().__init__()
        self.function, self.inside = function, inside

    def forward(self, x: torch.Tensor) -> object:
        return self.function(self.inside(x))


@pytest.mark.parametrize(
    ("function", "inside", "example", "code", "words"),
    [
        (lambda x: x + torch.empty(8).normal_(), nn.Linear(8, 8), X, "HAP874", "aten.normal_"),
        (lambda x: x + torch.multinomial(torch.ones(8), 1), nn.Linear(8, 8), X, "HAP874", "aten.multinomial"),
        (lambda x: torch.native_dropout(x, 0.5, True)[0], nn.Linear(8, 8), X, "HAP874", "aten.native_dropout"),
        (lambda x: 0.0 ** x.abs(), nn.Linear(8, 8), X, "HAP877", "0 to the power"),
        (lambda x: F.softplus(x, 1, 2), nn.Linear(8, 8), X, "HAP877", "a threshold of 2"),
        (lambda x: torch.einsum("ii->i", x.T @ x), nn.Linear(8, 8), X, "HAP877", "a diagonal"),
        (lambda x: x[:, 5:3].sum(1), nn.Linear(8, 8), X, "HAP877", "without elements"),
        (lambda x: routed(x).clamp(max=0.5), nn.Linear(8, 8), TOKENS, "HAP877", "what a topk made"),
        (lambda x: routed(x) / routed(x).sum(0), nn.Linear(8, 8), TOKENS, "HAP877", "what a topk made"),
        (lambda x: None, nn.Linear(8, 8), X, "HAP873", "returns no tensor"),
        (lambda x: torch.ones(3), nn.Linear(8, 8), X, "HAP873", "returns no tensor"),
        (lambda x: x, nn.Conv2d(4, 3, 3), "x : f32[4, 4, 8]", "HAP877", "a dim of the batch"),
        (lambda x: x, nn.Conv1d(4, 3, 3), X, "HAP877", "a dim of the batch"),
        (lambda x: x, nn.MaxPool2d(2), "x : f32[4, 4, 8]", "HAP877", "a dim of the batch"),
        (lambda x: x, nn.AdaptiveAvgPool2d(1), "x : f32[4, 4, 8]", "HAP877", "a dim of the batch"),
    ],
)
def test_what_would_come_out_wrong(function, inside, example, code, words):
    found = refused(lambda: import_module(Around(function, inside), example))
    assert found.code == code and words in found.message and found.help


class Counted(nn.Module):
    """A buffer that counts steps, and a number that begins anew in each."""

    def __init__(self, read: bool) -> None:
        super().__init__()
        self.fc, self.read = nn.Linear(8, 8), read
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        own = torch.tensor(1.0)
        own += 1
        return self.fc(x) * (self.steps if self.read else own)


def test_a_buffer_that_goes_on_from_step_to_step():
    found = refused(lambda: import_module(Counted(True), X))
    assert found.code == "HAP875" and "'steps'" in found.message and source_line(found) == "self.steps += 1"
    assert "by = 2.0" in import_module(Counted(False), X).text


def test_no_loss_without_results():
    found = refused(
        lambda: import_module(Around(lambda x: None, nn.Linear(8, 8)), f"{X}; label : i64[4]", loss="cross_entropy")
    )
    assert found.code == "HAP873" and "returns no tensor" in found.message


def stops() -> nn.Module:
    raise SystemExit("usage: …")


def test_a_factory_that_fails():
    found = refused(lambda: make(modules.fails, "modules:fails"))
    assert refused(lambda: make(stops, "modules:stops")).code == "HAP870"
    assert found.code == "HAP870" and source_line(found) == 'raise ValueError("no")'
    assert refused(lambda: make(modules.nothing, "modules:nothing")).code == "HAP871"
    assert refused(lambda: import_module(modules.nothing, X)).code == "HAP871"


@pytest.mark.parametrize(
    ("options", "code"),
    [({"loss": "hinge"}, "HAP878"), ({"optimizer": "adam"}, "HAP878"), ({"loss": "cross_entropy"}, "HAP872")],
)
def test_unknown_losses_and_optimizers(options, code):
    assert refused(lambda: import_module(modules.mlp(), X, **options)).code == code


def test_weights_of_another_module():
    text = "tokens : i64[batch = 4, seq = 8]; labels : i64[batch, seq]"
    graph = bench_of(import_module(modules.transformer(), text)).graph()
    assert refused(lambda: weights.from_module(graph, modules.mlp())).code == "HAP879"
    assert refused(lambda: weights.from_module(graph, modules.Transformer(ffn=96))).code == "HAP879"


def test_the_verb(tmp_path, capsys):
    out = tmp_path / "net.hap"
    spec = "tests.importing.modules:transformer"
    assert (
        main(
            ["import", spec, "--example", "tokens : i64[batch = 4, seq = 8]; labels : i64[batch, seq]", "-o", str(out)]
        )
        == 0
    )
    assert main(["check", str(out)]) == 0
    assert main(["fmt", "--check", str(out)]) == 0
    capsys.readouterr()
    assert main(["import", "tests.importing.modules:Branches", "--example", X]) == 2
    said = capsys.readouterr().err
    assert "HAP873" in said and "if x.sum() > 0:" in said
    assert main(["import", "tests.importing.modules:mlp", "--example", X, "--name", "my-net"]) == 2
    assert "HAP850" in capsys.readouterr().err
    assert main(["import", "tests.importing.modules:nothing", "--example", X, "-o", str(tmp_path)]) == 2
    assert "HAP852" in capsys.readouterr().err  # before anything is imported


def test_options_that_a_module_has_no_use_for(tmp_path, capsys):
    """An optimizer for what returns no loss is refused; operators that nothing calls are remarked on."""
    net = ("import", "tests.importing.modules:mlp", "--example")
    asked = ("--optimizer", "sgd(lr = 0.1)", "-o", str(tmp_path / "net.hap"))
    assert main([*net, X, *asked]) == 2
    assert "error HAP850: --optimizer is about training" in capsys.readouterr().err
    assert not (tmp_path / "net.hap").exists()
    assert main([*net, f"{X}; label : i64[batch]", *asked, "--loss", "cross_entropy"]) == 0
    assert "train loss with sgd(lr = 0.1)" in (tmp_path / "net.hap").read_text()
    ops = tmp_path / "ops.hap"
    ops.write_text("op halved(x[*i]) -> y[*i] { flops i }\n")
    capsys.readouterr()
    assert main([*net, X, "--ops", str(ops)]) == 0
    said = capsys.readouterr()
    assert "note: " in said.err and "ops.hap isn't needed: the module calls none of its operators" in said.err
    assert "halved" not in said.out


def test_a_table_that_is_no_buffer(capsys):
    """Without weights it has no numbers; the verb then makes the module with them."""
    assert main(["import", "tests.importing.modules:Tabled", "--example", X]) == 0
    assert "frozen" in capsys.readouterr().out
