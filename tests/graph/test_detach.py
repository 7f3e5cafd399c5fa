"""`detach`: a tensor is read, and no gradient passes to it; and operators of a file's own that say so of an operand."""

from __future__ import annotations

import pytest
from torch import Tensor

from hapdsl.graph.training import TrainingGraph
from tests.graph.helpers import calls, gradient, graph_of, same, step, values

HEAD = """
model m(n = 6, d = 4) {
    input x : f32[n, d]
    param w, v : f32[d, d]
"""


def made_of(body: str) -> tuple[TrainingGraph, dict[str, Tensor], dict[str, Tensor]]:
    """The graph of a body, what it reads, and all that one step makes."""
    graph = graph_of(f"{HEAD}{body}\n    train loss with sgd()\n}}")
    given = values(graph)
    return graph, given, step(graph, given)


# The forward pass behind `h = matmul(x, w)`, and the same in torch's words.
CASES = {
    "a target": (
        "y = matmul(h, v); t = detach(h); z = sub(y, t); loss = mean(mul(z, z), dims = [0, 1])",
        lambda h, v: (h @ v - h.detach()).square().mean(),
    ),
    "a straight-through estimator": (
        "r = sub(sign(detach(h)), h); z = matmul(add(h, detach(r)), v); loss = mean(mul(z, z), dims = [0, 1])",
        lambda h, v: ((h + (h.detach().sign() - h).detach()) @ v).square().mean(),
    ),
    "both operands": (
        "a = detach(matmul(h, v)); b = matmul(h, v); loss = mean(mul(a, b), dims = [0, 1])",
        lambda h, v: ((h @ v).detach() * (h @ v)).mean(),
    ),
    "twice, and of what needs none": (
        "t = detach(detach(h)); u = detach(x); z = matmul(mul(h, mul(t, u)), v); loss = mean(z, dims = [0, 1])",
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_against_torch(name: str) -> None:
    body, oracle = CASES[name]
    graph, given, made = made_of(f"    h = matmul(x, w)\n    {body.replace('; ', chr(10) + '    ')}")
    w, v = (given[n].clone().requires_grad_() for n in "wv")
    h = given["x"] @ w
    loss = oracle(h, v) if oracle is not None else (h * (h.detach() * given["x"]) @ v).mean()
    loss.backward()
    same(made["loss"], loss, "loss")
    for n, leaf in (("w", w), ("v", v)):
        assert leaf.grad is not None
        same(gradient(graph, made, n), leaf.grad, f"{n}.grad")
    assert not any(n.op == "detach" for n in graph.nodes)


def test_no_gradient_is_computed_where_none_passes() -> None:
    graph, _, _ = made_of("    h = matmul(x, w)\n    z = mul(detach(matmul(x, v)), h)\n    t = matmul(x, v)\n    loss = mean(sub(z, t), dims = [0, 1])")  # fmt: skip
    # of two products with v the first passes none
    assert sum("v.grad" in o for n in graph.nodes for o in n.outputs) == 1


def test_its_name_is_another_one_of_the_tensor() -> None:
    graph, _, made = made_of("    h = matmul(x, w)\n    t = detach(h)\n    y = sub(matmul(t, v), h)\n    loss = mean(y, dims = [0, 1])")  # fmt: skip
    assert graph.resolve("t") == "h"
    assert calls(graph)[1].endswith("matmul(h, v)")
    assert "t" not in made


DEFS = """
def layer(x) {
    param w : f32[4, 4]
    y = matmul(x, w)
    kept = detach(y)
    return add(y, kept), kept
}
"""


def test_in_layers() -> None:
    """What a def returns and what a repeat carries on may be detached."""
    graph = graph_of(
        DEFS
        + """
        model m(n = 6) {
            input given : f32[n, 4]
            x = neg(given)
            t = detach(x)
            repeat h in 3 { x, t = layer(add(x, t)) }
            loss = mean(mul(x, x), dims = [0, 1])
            output t
            train loss with sgd()
        }
        """
    )
    given = values(graph)
    made = step(graph, given)
    names = [t.name for t in graph.of_kind("param")]
    leaves = [given[n].clone().requires_grad_() for n in names]
    x = t = -given["given"]
    for w in leaves:
        y = (x + t) @ w
        x, t = y + y.detach(), y.detach()
    x.square().mean().backward()
    for name, leaf in zip(names, leaves, strict=True):
        assert leaf.grad is not None
        same(gradient(graph, made, name), leaf.grad, name)
    same(made[graph.outputs[0]], t, "t")


def test_in_turns() -> None:
    """A batch that is taken in turns has the same gradients."""
    text = """
    model m(n = 6) {
        input x : f32[n, 4]
        param w : f32[4, 4]
        microbatch 3 {
            h = matmul(x, w)
            loss = mean(mul(h, detach(sub(h, x))), dims = [0, 1])
        }
        train loss with sgd()
    }
    """
    turns, whole = graph_of(text), graph_of(text.replace("microbatch 3", "microbatch 1"))
    given = values(whole)
    same(step(turns, given)[turns.updates["w"]], step(whole, given)[whole.updates["w"]])


def test_a_buffer_keeps_what_is_detached() -> None:
    """A running mean of what parameters make; and the same of a buffer itself."""
    graph, given, made = made_of(
        "    buffer b, c : f32[n, d]\n    h = matmul(x, w)\n    b.new = detach(h)\n    c.new = detach(c)\n    loss = mean(mul(add(b, h), matmul(h, v)), dims = [0, 1])"
    )
    same(made[graph.updates["b"]], given["x"] @ given["w"])
    same(made[graph.updates["c"]], given["c"])


def test_evaluation_reads_the_tensor() -> None:
    text = f"{HEAD}    y = detach(matmul(x, w))\n    z = matmul(y, v)\n    output y, z\n}}"
    graph = graph_of(text, train=False)
    assert [n.op for n in graph.nodes] == ["matmul", "matmul"]


OWN = """
op blend(a[*i], b[*i]) -> y[*i] {
    linear (a, b)
    flops  i
    grad   a = y.grad, b = none
    torch  "torch.add"
}
"""


def test_an_operator_may_pass_a_gradient_to_some_operands_only() -> None:
    graph = graph_of(f"{OWN}{HEAD}    p = matmul(x, w)\n    q = matmul(p, v)\n    z = blend(p, exp(q))\n    loss = mean(mul(z, add(z, q)), dims = [0, 1])\n    train loss with sgd()\n}}")  # fmt: skip
    given = values(graph)
    made = step(graph, given)
    w, v = (given[n].clone().requires_grad_() for n in "wv")
    p = given["x"] @ w
    q = p @ v
    z = p + q.exp().detach()
    (z * (z + q)).mean().backward()
    for n, leaf in (("w", w), ("v", v)):
        assert leaf.grad is not None
        same(gradient(graph, made, n), leaf.grad, n)
    assert "exp" in [n.op for n in graph.nodes if n.section == "forward"]
    assert sum(n.op == "mul" for n in graph.nodes if n.section == "backward") == 2  # none for exp


def test_what_only_such_an_operand_reads_gets_none() -> None:
    """Calls between a parameter and an operand that passes nothing are no part of the backward pass: `sign` has no gradient."""
    graph = graph_of(f"{OWN}{HEAD}    h = matmul(x, w)\n    z = blend(h, sign(matmul(h, v)))\n    loss = mean(add(mul(z, z), matmul(h, v)), dims = [0, 1])\n    train loss with sgd()\n}}")  # fmt: skip
    given = values(graph)
    made = step(graph, given)
    w, v = (given[n].clone().requires_grad_() for n in "wv")
    h = given["x"] @ w
    z = h + (h @ v).sign()
    (z * z + h @ v).mean().backward()
    for n, leaf in (("w", w), ("v", v)):
        assert leaf.grad is not None
        same(gradient(graph, made, n), leaf.grad, n)
