"""Where texts of the language lie, those that several rooms' tests begin with, and how the one block or the one object of a text is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from hapdsl.cluster import Cluster, build
from hapdsl.lang import nodes
from hapdsl.lang.parse import parse

REPOSITORY = Path(__file__).resolve().parents[1]
PROGRAMS = REPOSITORY / "programs"
REFERENCE = REPOSITORY / "tests" / "identity" / "reference.hap"

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
TINY_MODEL, TINY_CLUSTER = TINY[: TINY.index("cluster")], TINY[TINY.index("cluster") :]

# Data parallelism by hand, for TINY.
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

# Two nodes of two devices, which plans take for two.
LAB = """
cluster lab {
    device fast { compute = 3 GFLOP/s, memory = 1 GiB, bandwidth = 8 GB/s }
    device slow { compute = 1 GFLOP/s, memory = 1 GiB, bandwidth = 8 GB/s }
    node big   = 2 * fast over { bandwidth = 1 GB/s, latency = 1 us }
    node mixed = 1 * fast, 1 * slow over { bandwidth = 1 GB/s, latency = 1 us }
    network 1 * big virtual, 1 * mixed virtual over { bandwidth = 0.1 GB/s, latency = 10 us }
}
"""

Block = TypeVar("Block", bound=nodes.Block)


def block_in(text: str, kind: type[Block]) -> Block:
    """The one block of this kind in a text; what else stands there is passed over."""
    (found,) = (item for item in parse(text, "text.hap").items if isinstance(item, kind))
    return found


def program_in(text: str) -> nodes.Program:
    return block_in(text, nodes.Program)


def cluster_in(text: str) -> Cluster:
    return build(block_in(text, nodes.Cluster))


def object_in(text: str) -> dict[str, Any]:
    """The one JSON object of a text; NaN and infinities are none of JSON's."""

    def refuse(word: str) -> float:
        raise AssertionError(f"{word} in JSON")

    found = json.loads(text, parse_constant=refuse)
    assert isinstance(found, dict)
    return found
