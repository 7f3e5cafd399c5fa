"""Programs that evaluate a model that trains: no dropout, running statistics, metrics; as a module of torch in eval()."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapdsl.api import plan as plan_module
from hapdsl.check.write import write
from hapdsl.cli import main
from hapdsl.graph.program import Program
from hapdsl.importing import weights
from hapdsl.importing.convert import import_module
from hapdsl.lang.print import to_text
from hapdsl.run.data import open_feed
from hapdsl.run.initial import initial
from hapdsl.run.inprocess import InProcess
from hapdsl.run.pieces import assemble
from hapdsl.run.train import train
from hapdsl.search.planner import plan
from hapdsl.workbench import Workbench

CLUSTER = """
cluster three {
    device fast { compute = 8 GFLOP/s, memory = 2 GiB, bandwidth = 8 GB/s }
    device slow { compute = 3 GFLOP/s, memory = 2 GiB, bandwidth = 4 GB/s }
    node host = 1 * fast, 2 * slow over { bandwidth = 90 GB/s, latency = 1 ns }
}
"""


class Net(nn.Module):
    """Batch normalisation and dropout, the two that evaluate otherwise than they train."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = F.dropout(F.relu(self.norm(self.conv(x))), 0.4, self.training)
        return self.head(h.mean((2, 3)))


@cache
def text() -> str:
    """Imported in training mode; the accuracy is a metric of the text."""
    found = import_module(Net(), "x : f32[batch = 13, 3, 6, 6]; label : i64[batch]", "net", "cross_entropy").text
    assert "dropout(" in found and "running(" in found
    return found.replace("    output y\n", "    acc = accuracy(y, label)\n    output y\n    metric acc\n") + CLUSTER


def program(shares: str = "") -> Program:
    bench = Workbench("net.hap", text())
    found = plan(bench.graph(train=False), bench.cluster(), gap=1.0, baselines=False, name="e").program
    written = to_text(write(found))
    assert "forward {" in written and "backward {" not in written and "dropout" not in written
    lines = [shares if shares and line.strip().startswith("shares batch") else line for line in written.split("\n")]
    return _proven(text() + "\n".join(lines) + "\n")


def _proven(source: str) -> Program:
    bench = Workbench("program.hap", source)
    return bench.proven(bench.program()).program


def wanted(start: Mapping[str, Tensor], batch: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """What torch says of the same weights."""
    module = Net().to(dtype)
    weights.into_module(module, start)
    module.eval()
    with torch.no_grad():
        y = module(batch["x"].to(dtype))
        return {
            "loss": F.cross_entropy(y, batch["label"]),
            "y": y,
            "acc": (y.argmax(-1) == batch["label"]).to(dtype).mean(),
        }


def held(graph, dtype: torch.dtype) -> dict[str, Tensor]:
    """First values, with statistics that aren't those of a new module."""
    start = dict(initial(graph, 3, dtype))
    start["norm.running_mean"] = torch.linspace(-1, 1, 6, dtype=dtype)
    start["norm.running_var"] = torch.linspace(0.3, 2, 6, dtype=dtype)
    return start


@pytest.mark.parametrize("shares", ["", "    shares batch = [13, 0, 0]", "    shares batch = [7, 0, 6]"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_in_one_process(shares: str, dtype: torch.dtype, tolerance: float) -> None:
    proven = program(shares)
    start = held(proven.graph, dtype)
    draw = torch.Generator().manual_seed(0)
    batch = {
        "x": torch.randn(13, 3, 6, 6, generator=draw, dtype=dtype),
        "label": torch.randint(5, (13,), generator=draw),
    }
    executor = InProcess(proven, dtype)
    executor.load(start)
    for _ in range(2):  # nothing changes from one to the next
        made = {v.tensor: assemble(proven, v, local) for v, local in executor.step(batch).items()}
        for name, value in wanted(start, batch, dtype).items():
            assert (made[name] - value).abs().max() <= tolerance, name


def test_on_processes_of_their_own() -> None:
    proven = program("    shares batch = [9, 4, 0]")
    found = train(proven, 3, 2, seed=3)
    assert found is not None
    feed = open_feed("random", proven.graph, 3)
    said = [wanted(initial(proven.graph, 3, torch.float32), feed.batch(step), torch.float32) for step in (1, 2)]
    assert found.loss == pytest.approx([float(s["loss"]) for s in said], abs=1e-5)
    assert found.metrics["acc"] == pytest.approx(sum(float(s["acc"]) for s in said) / 2, abs=1e-6)  # over both batches


def test_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = tmp_path / "net.hap", tmp_path / "eval.hap"
    model.write_text(text(), encoding="utf-8")
    assert main(["plan", str(model), "--evaluate", "--gap", "1", "-o", str(out)]) == 0
    assert main(["check", str(out)]) == 0
    assert "proven" in capsys.readouterr().out


def test_a_text_with_another_activation_in_evaluation() -> None:
    """A person's own operator says what stands for it: noise in training, nothing in evaluation; a call works as well as an operand."""
    source = """
        op noisy(x[*i], attr by = 0.5) -> y[*i] { flops i; grad x = y.grad; evaluation y = scale(x, by = by); torch "hapdsl.shift" }
        model m(n = 4) {
            input x : f32[n]
            param w : f32[n]
            y = noisy(mul(x, w), by = 0.25)
            loss = sum(y, dims = 0)
            train loss with sgd()
        }
    """
    bench = Workbench("m.hap", source)
    assert [n.op for n in bench.graph(train=False).nodes] == ["mul", "scale", "sum"]
    assert bench.graph(train=False).nodes[1].instance.attributes["by"] == 0.25
    assert "noisy" in [n.op for n in bench.graph().nodes]


def test_from_python() -> None:
    torch.manual_seed(0)
    module = Net()
    module.norm.running_mean += 0.5
    x, label = torch.randn(12, 3, 6, 6), torch.randint(5, (12,))
    step = plan_module(module, {"x": x, "label": label}, loss="cross_entropy", evaluate=True).compile(module)
    found = step(x, label)
    module.eval()
    assert abs(float(found) - float(F.cross_entropy(module(x), label).detach())) < 1e-5
    assert (step.outputs()["y"] - module(x)).abs().max() < 1e-5
