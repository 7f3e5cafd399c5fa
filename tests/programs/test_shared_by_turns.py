"""What the turns of a batch have in common: an input that is read whole by several lines, a parameter that several of a turn's lines add up, gradients
with two names. All of it against torch on the whole batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hapdsl.lang.diagnostics import HapError
from hapdsl.run.initial import initial, random_inputs
from hapdsl.run.inprocess import InProcess, gather
from tests.check.random_programs import random_program
from tests.graph.helpers import graph_of, same

MODEL = """
model m(batch = 6, d = 4, k = 3) {
    input x : f32[batch, d]
    param v, w, p : f32[d]
    most  = max(x, dims = 0)
    least = neg(max(neg(x), dims = 0))
    microbatch k {
        z = add(v, w)
        y = mul(sub(x, least), mul(z, most))
        s = sum(y, dims = 0)
        twice = add(add(s, p), p)
        loss = sum(twice, dims = 0)
    }
    train loss with sgd(lr = 0.1)
}
"""


def oracle(x: Tensor, v: Tensor, w: Tensor, p: Tensor) -> Tensor:
    y = (x - x.amin(0)) * ((v + w) * x.amax(0))
    return (y.sum(0) + p + p).sum()


def test_against_torch_on_the_whole_batch() -> None:
    whole, turned = graph_of(MODEL, k=1), graph_of(MODEL)
    # Whole beside the turns, once for both of its readers; a third of `p` in each turn, likewise.
    assert turned.tensors["x.whole"].shape == (6, 4) and turned.tensors["x"].shape == (2, 4)
    assert sum("p.share" in n.outputs for n in turned.nodes) == 1
    assert sum("p.share" in n.inputs for n in turned.nodes) == 2
    assert turned.resolve("v.grad") == turned.resolve("w.grad") == whole.resolve("w.grad")
    held, inputs = initial(whole, 2, torch.float64), random_inputs(whole, 2, torch.float64)
    leaves = {n: held[n].clone().requires_grad_() for n in ("v", "w", "p")}
    loss = oracle(inputs["x"], **leaves)
    loss.backward()
    for mesh, seed in (((("devices", 3),), 0), ((("devices", 3),), 1), ((("nodes", 2), ("devices", 2)), 2)):
        program = random_program(turned, mesh, seed)
        executor = InProcess(program, torch.float64)
        executor.load(held)
        made = executor.step(inputs, 1)
        same(gather(program, made, "loss", 1e-12), loss, "loss")
        for name, leaf in leaves.items():
            assert leaf.grad is not None
            same(gather(program, made, f"{name}.new", 1e-12), held[name] - 0.1 * leaf.grad, name)


def test_a_buffer_that_turns_would_make_in_parts_is_refused() -> None:
    """It is read by the call that makes its new value, whatever that is made of."""
    text = MODEL.replace("    most ", "    buffer last : f32[batch, d]\n    most ")
    text = text.replace("        z = ", "        last.new = neg(x)\n        z = ")
    with pytest.raises(HapError) as stop:
        graph_of(text)
    (found,) = stop.value.diagnostics
    assert (found.code, found.message) == ("HAP208", "buffer 'last' has a dim of the batch")
    assert text.split("\n")[found.span.line - 1].strip() == "buffer last : f32[batch, d]"
