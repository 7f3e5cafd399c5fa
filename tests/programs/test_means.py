"""Means over what is cut unevenly, ignored labels and dropout: programs of a few lines, against torch.

A mean divides by the global count, wherever elements lie; a mask depends on an element's place in the whole.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hapdsl.check.verify import verify
from hapdsl.graph.build import build, operators
from hapdsl.lang import nodes
from hapdsl.run.inprocess import InProcess, gather
from hapdsl.run.reference import Reference
from tests.texts import block_in, program_in


def run(text: str, tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Global tensors as the text's program makes them, and as one device does."""
    graph = build(block_in(text, nodes.Model), {}, operators({}))
    checked = verify(program_in(text), graph)
    assert not list(checked.diagnostics)
    devices = InProcess(checked.program, torch.float64, keep_all=True)
    devices.load(tensors)
    made = devices.step(tensors)
    names = {v.tensor for v in made}
    return {n: gather(checked.program, made, n, 1e-12) for n in names}, Reference(graph, torch.float64).step(tensors)


def test_mean_over_uneven_shares() -> None:
    """pytorch #163241: shares of 6 and 4."""
    text = """
    model m(batch = 10) {
        input x : f64[batch]
        param w : f64[batch]
        y = mul(x, w)
        loss = mean(y, dims = 0)
        train loss with sgd(lr = 1)
    }
    program p for m {
        shares batch = [6, 4]
        x@S(0) = input(); w@S(0) = param()
        y@S(0) = mul(x@S(0), w@S(0))
        loss@P = mean(y@S(0))
        loss@R = all_reduce(loss@P)
        backward {
            loss.grad@R = seed()
            y.grad.1.spread@S(0) = spread(loss.grad@R)
            y.grad@S(0) = scale(y.grad.1.spread@S(0))
            w.grad@S(0) = mul(y.grad@S(0), x@S(0))
        }
        update { w.new@S(0) = sgd(w@S(0), w.grad@S(0)) }
    }"""
    x, w = torch.randn(2, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ours, _ = run(text, {"x": x, "w": w})
    assert torch.allclose(ours["loss"], (x * w).mean(), rtol=1e-12)
    assert torch.allclose(ours["w.new"], w - x / 10, rtol=1e-12)


def test_ignored_labels_dropout_and_an_empty_share() -> None:
    """The first device has all the padding, the last one nothing; the mean is over the labels that count."""
    text = """
    model m(batch = 7, d = 5, classes = 3) {
        input x     : f64[batch, d]
        input label : i64[batch]
        param w     : f64[d, classes]
        h = dropout(x, p = 0.4)
        z = matmul(h, w)
        count = count_labels(label, to = f64)
        loss = cross_entropy(z, label, count)
        train loss with sgd(lr = 1)
    }
    program p for m {
        shares batch = [3, 2, 2, 0]
        x@S(0), label@S(0) = input(); w@R = param()
        h@S(0) = dropout(x@S(0))
        z@S(0) = matmul(h@S(0), w@R)
        count@P = count_labels(label@S(0))
        count@R = all_reduce(count@P)
        loss@P = cross_entropy(z@S(0), label@S(0), count@R)
        backward {
            loss.grad@R = seed()
            z.grad@S(0) = cross_entropy_grad(z@S(0), label@S(0), loss.grad@R, count@R)
            w.grad@P = matmul_tn(h@S(0), z.grad@S(0))
            w.grad@R = all_reduce(w.grad@P)
        }
        update { w.new@R = sgd(w@R, w.grad@R) }
    }"""
    draw = torch.Generator().manual_seed(2)
    x, w = (
        torch.randn(7, 5, dtype=torch.float64, generator=draw),
        torch.randn(5, 3, dtype=torch.float64, generator=draw),
    )
    label = torch.tensor([-100, -100, 1, 0, 2, -100, 1])
    ours, alone = run(text, {"x": x, "label": label, "w": w})
    assert torch.equal(ours["h"], alone["h"])  # one mask, however x is cut
    assert 0 < int((ours["h"] == 0).sum()) < 35
    leaf = w.clone().requires_grad_()
    loss = F.cross_entropy(ours["h"] @ leaf, label, ignore_index=-100)
    loss.backward()
    assert leaf.grad is not None
    assert torch.allclose(ours["loss"], loss, rtol=1e-12)
    assert torch.allclose(ours["w.new"], w - leaf.grad, rtol=1e-12)


def test_replicated_and_cut_on_another_dim() -> None:
    """Partial sums inside a line of products: a contraction cut unevenly, then a bias, which must wait for the sum."""
    text = """
    model m(batch = 4, d = 9, e = 2) {
        input x : f64[batch, d]
        param w : f64[d, e]
        param b : f64[e]
        u = matmul(x, w)
        y = add(u, b)
        loss = mean(y, dims = [0, 1])
        train loss with sgd()
    }
    program p for m {
        shares d = [5, 0, 4]
        x@S(1) = input(); w@S(0), b@R = param()
        u@P = matmul(x@S(1), w@S(0))
        u@R = all_reduce(u@P)
        y@R = add(u@R, b@R)
        loss@R = mean(y@R)
        ...
    }"""
    graph = build(block_in(text, nodes.Model), {}, operators({}))
    checked = verify(program_in(text), graph)
    assert checked.ok and checked.sketch
    early = text.replace(
        "        u@R = all_reduce(u@P)\n        y@R = add(u@R, b@R)\n",
        "        y@P = add(u@P, b@R)\n        y@R = all_reduce(y@P)\n",
    )
    assert early != text
    codes = [
        (d.code, early.splitlines()[d.span.line - 1].strip()) for d in verify(program_in(early), graph).diagnostics
    ]
    assert codes == [("HAP533", "y@P = add(u@P, b@R)")]
