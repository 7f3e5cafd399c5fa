"""The command line called in this process, with what it wrote and its exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hapdsl.cli import main

REPOSITORY = Path(__file__).resolve().parents[2]

# Small enough that a plan takes a moment.
TINY = """
model tiny(batch = 16, d = 6, hidden = 8, classes = 4, bias = true) {
    input x     : f32[batch, d]
    input label : i64[batch]
    param w1 : f32[d, hidden]       init normal(std = 0.5)
    param w2 : f32[hidden, classes] init normal(std = 0.5)
    u = matmul(x, w1)
    h = relu(u)
    z = matmul(h, w2)
    loss = cross_entropy(z, label)
    output z
    train loss with sgd(lr = 0.1)
}
cluster pair {
    device quick { compute = 3 GFLOP/s, memory = 1 GiB, bandwidth = 8 GB/s }
    device slow  { compute = 1 GFLOP/s, memory = 1 GiB, bandwidth = 4 GB/s }
    node host = 1 * quick, 1 * slow over { bandwidth = 1 GB/s, latency = 1 us }
}
"""

PROGRAM = """
program by_batch for tiny on pair {
    shares batch = [12, 4]
    forward {
        x@S(0), label@S(0) = input()
        w1@R, w2@R  = param()
        u@S(0)      = matmul(x@S(0), w1@R)
        h@S(0)      = relu(u@S(0))
        z@S(0)      = matmul(h@S(0), w2@R)
        loss@P      = cross_entropy(z@S(0), label@S(0))
    }
    backward {
        loss.grad@R = seed()
        z.grad@S(0) = cross_entropy_grad(z@S(0), label@S(0), loss.grad@R)
        w2.grad@P   = matmul_tn(h@S(0), z.grad@S(0))
        h.grad@S(0) = matmul_nt(z.grad@S(0), w2@R)
        u.grad@S(0) = relu_grad(h@S(0), h.grad@S(0))
        w1.grad@P   = matmul_tn(x@S(0), u.grad@S(0))
        w2.grad@R, w1.grad@R = all_reduce(w2.grad@P, w1.grad@P)
    }
    update {
        w1.new@R = sgd(w1@R, w1.grad@R)
        w2.new@R = sgd(w2@R, w2.grad@R)
    }
}
"""


@dataclass(frozen=True)
class Ran:
    """What a call gave."""

    status: int
    out: str
    err: str

    @property
    def object(self) -> dict[str, Any]:
        """The one JSON object on stdout; anything else there, NaN included, fails."""

        def refuse(word: str) -> float:
            raise AssertionError(f"{word} in JSON")

        found = json.loads(self.out, parse_constant=refuse)
        assert isinstance(found, dict)
        return found

    @property
    def codes(self) -> list[str]:
        return [d["code"] for d in self.object["diagnostics"]]


Run = Callable[..., Ran]


@pytest.fixture
def hapdsl(capsys: pytest.CaptureFixture[str]) -> Run:
    """Calls `hapdsl` with arguments; a traceback anywhere fails the test."""

    def call(*arguments: object) -> Ran:
        capsys.readouterr()
        status = main([str(a) for a in arguments])
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return Ran(status, said.out, said.err)

    return call


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A file with a model, a cluster and a proven program."""
    path = tmp_path / "tiny.hap"
    path.write_text(TINY + PROGRAM, encoding="utf-8")
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file with a model and a cluster."""
    path = tmp_path / "model.hap"
    path.write_text(TINY, encoding="utf-8")
    return path
