"""Partial sums: what may be added to them, and what would count once for each device.

Elsewhere: a number added to partial sums was added on every rank; so was the bias of a row-sharded layer; a reduction wrote into
its operand; the gradient through a gather was wrong.
"""

from __future__ import annotations

import pytest
import torch

from tests.cases.helpers import case, run, same

LINEAR = """
model m(batch = 3, d = 6, out = 4) {{
    input x : f32[batch, d]
    param w : f32[d, out]
    param b : f32[out]
    u = matmul(x, w)
    y = add(u, b)
    output y
}}
program p for m {{
    shares d = [3, 2, 1, 0]
    forward {{
        x@S(1) = input()
        w@S(0), b@R = param()
        u@P = matmul(x@S(1), w@S(0))
        {rest}
    }}
}}
"""


def linear(*rest: str) -> str:
    return LINEAR.format(rest="\n        ".join(rest))


def test_a_bias_added_to_each_partial_sum_is_refused() -> None:
    found = case(linear("y@P = add(u@P, b@R)"))
    assert found.codes == [("HAP533", 15)]
    assert "`b@P = partial(b@R)`" in found.helps


@pytest.mark.parametrize("y", ["R", "P"])
def test_whole_and_partial_operands_do_not_mix(y: str) -> None:
    assert case(linear(f"y@{y} = add(b@R, u@P)")).codes[0][0] == "HAP532", "operands in another order"
    assert case(linear(f"y@{y} = add(u@P, b@R)")).codes == [("HAP533", 15)]


@pytest.mark.parametrize(
    "rest",
    [
        ["u@R = all_reduce(u@P)", "y@R = add(u@R, b@R)"],
        ["b@P = partial(b@R)", "y@P = add(u@P, b@P)", "y@R = all_reduce(y@P)"],
        ["b@P = partial(b@R)", "y@P = add(u@P, b@P)"],
    ],
)
def test_a_bias_counts_once(rest: list[str]) -> None:
    ran = run(linear(*rest))
    assert same(ran["y"], ran.whole["x"] @ ran.whole["w"] + ran.whole["b"])


@pytest.mark.parametrize(
    ("op", "call"), [("shift", "shift(u, by = 1)"), ("relu", "relu(u)"), ("exp", "exp(u)"), ("softmax", "softmax(u)")]
)
def test_what_is_not_linear_takes_no_partial_sums(op: str, call: str) -> None:
    text = (
        linear(f"y@P = {op}(u@P)")
        .replace("add(u, b)", call)
        .replace("    param b : f32[out]\n", "")
        .replace(", b@R", "")
    )
    assert case(text).codes == [("HAP533", 14)]
    right = text.replace(f"y@P = {op}(u@P)", f"u@R = all_reduce(u@P)\n        y@R = {op}(u@R)")
    assert case(right).checked.ok


@pytest.mark.parametrize(("op", "call", "factor"), [("scale", "scale(u, by = 3)", 3), ("neg", "neg(u)", -1)])
def test_what_is_linear_does(op: str, call: str, factor: float) -> None:
    text = (
        linear(f"y@P = {op}(u@P)")
        .replace("add(u, b)", call)
        .replace("    param b : f32[out]\n", "")
        .replace(", b@R", "")
    )
    ran = run(text)
    assert same(ran["y"], factor * (ran.whole["x"] @ ran.whole["w"]))


def test_a_product_of_two_partial_sums_is_no_product() -> None:
    text = (
        linear("y@P = mul(u@P, u@P)")
        .replace("add(u, b)", "mul(u, u)")
        .replace("    param b : f32[out]\n", "")
        .replace(", b@R", "")
    )
    assert case(text).codes == [("HAP533", 14)]
    ran = run(text.replace("y@P = mul(u@P, u@P)", "u@R = all_reduce(u@P)\n        y@P = mul(u@P, u@R)"))
    assert same(ran["y"], (ran.whole["x"] @ ran.whole["w"]) ** 2), "one of them whole: the sum of the products"


def test_a_reduction_leaves_its_operand_as_it_was() -> None:
    """The partial sums are read again behind the all_reduce."""
    ran = run(linear("u@R = all_reduce(u@P)", "b@P = partial(b@R)", "y@P = add(u@P, b@P)"))
    assert same(ran["y"], ran.whole["x"] @ ran.whole["w"] + ran.whole["b"])
    parts = ran.locals("u", "P")
    assert same(sum(parts[1:], parts[0].clone()), ran.whole["x"] @ ran.whole["w"])
    assert not same(parts[0], ran.whole["x"] @ ran.whole["w"])


EVERY = """
model m(batch = 5, d = 4, hidden = 6, out = 3) {
    input x, target : f32[batch, d]
    param w1 : f32[d, hidden]
    param w2 : f32[hidden, d]
    u = matmul(x, w1)
    h = tanh(u)
    z = matmul(h, w2)
    loss = mse_loss(z, target)
    train loss with sgd(lr = 0.5)
}
program p for m {
    shares batch  = [2, 0, 3]
    shares d      = [1, 2, 1]
    shares hidden = [1, 1, 4]
    forward {
        x@S(1) = input()
        target@S(0) = input()
        w1@S(0), w2@S(1) = param()
        u@P = matmul(x@S(1), w1@S(0))
        u@S(1) = reduce_scatter(u@P)
        h@S(1) = tanh(u@S(1))
        h@S(0) = all_to_all(h@S(1))
        w2@R = all_gather(w2@S(1), method = grouped)
        z@S(0) = matmul(h@S(0), w2@R)
        loss@P = mse_loss(z@S(0), target@S(0))
        loss@R = all_reduce(loss@P)
    }
    backward {
        loss.grad@R = seed()
        z.grad@S(0) = mse_loss_grad(z@S(0), target@S(0), loss.grad@R)
        z.grad@R = all_gather(z.grad@S(0))
        z.grad@P = partial(z.grad@R)
        h.grad@P = matmul_nt(z.grad@P, w2@R)
        h.grad@S(1) = reduce_scatter(h.grad@P)
        w2.grad@P = matmul_tn(h@S(0), z.grad@S(0))
        w2.grad@S(1) = reduce_scatter(w2.grad@P, method = grouped)
        u.grad@S(1) = tanh_grad(h@S(1), h.grad@S(1))
        u.grad@R = all_gather(u.grad@S(1))
        u.grad@S(0) = slice(u.grad@R)
        x@S(0) = all_to_all(x@S(1))
        w1.grad@P = matmul_tn(x@S(0), u.grad@S(0))
        w1.grad@R = all_reduce(w1.grad@P)
        w1.grad@S(0) = slice(w1.grad@R)
    }
    update {
        w1.new@S(0) = sgd(w1@S(0), w1.grad@S(0))
        w2.new@S(1) = sgd(w2@S(1), w2.grad@S(1))
    }
}
"""


def test_gradients_through_every_conversion_equal_autograd() -> None:
    ran = run(EVERY)
    used = {i.op for i in ran.case.checked.program.instructions}
    assert {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "slice", "partial"} <= used
    w1, w2 = (ran.whole[n].clone().requires_grad_() for n in ("w1", "w2"))
    loss = torch.nn.functional.mse_loss(torch.tanh(ran.whole["x"] @ w1) @ w2, ran.whole["target"])
    loss.backward()
    assert same(ran["loss"], loss.detach())
    assert w1.grad is not None and w2.grad is not None
    assert same(ran["w1.new"], (w1 - 0.5 * w1.grad).detach())
    assert same(ran["w2.new"], (w2 - 0.5 * w2.grad).detach())
