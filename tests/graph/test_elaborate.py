"""From a model's text to tensors and calls: names, defs, settings, aliases, dead code."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hapdsl.run.reference import Reference
from tests.graph.helpers import calls, example, gradient, graph_of, same, source, step, values


def test_mlp() -> None:
    graph = example("mlp")
    assert calls(graph) == [
        "u = matmul(x, w1)", "a = add(u, b1)", "h = relu(a)", "z = matmul(h, w2)", "loss = cross_entropy(z, label)",
    ]  # fmt: skip
    assert calls(graph, "backward") == [
        "z.grad = cross_entropy_grad(z, label, loss.grad)",
        "h.grad = matmul_nt(z.grad, w2)",
        "w2.grad = matmul_tn(h, z.grad)",
        "a.grad = relu_grad(h, h.grad)",
        "b1.grad = sum(a.grad)",
        "w1.grad = matmul_tn(x, a.grad)",
    ]
    assert calls(graph, "update") == [
        f"{p}.new, {p}.m.new, {p}.v.new = adam({p}, {p}.grad, {p}.m, {p}.v)" for p in ("w1", "b1", "w2")
    ]
    assert graph.aliases == {"u.grad": "a.grad"}  # add passes its gradient unchanged
    assert graph.updates == {old: f"{old}.new" for p in ("w1", "b1", "w2") for old in (p, f"{p}.m", f"{p}.v")}
    assert (graph.loss, graph.outputs) == ("loss", ("z",))
    kinds = {t.name: t.kind for t in graph.tensors.values()}
    assert kinds["x"] == "input" and kinds["w1"] == "param" and kinds["w1.m"] == "state"
    assert kinds["loss.grad"] == "seed" and kinds["u"] == "value"
    assert graph.tensors["w1.m"].init == ("zeros", {}) and graph.tensors["w1"].init == ("normal", {"std": 0.05})


DEFS = """def inner(x, w) {
    y = mul(x, w)
    return exp(y)
}
def outer(x, d, factor = 2 * d) {
    param w : f32[d]
    a = inner(x, w)
    b = inner(a, w) as second
    return scale(b, by = factor)
}
model m(d = 4) {
    input x : f32[d]
    y = outer(x, d)
    z = outer(y, d, factor = 3) as more
    output z
}"""


def test_defs() -> None:
    graph = graph_of(DEFS)
    assert calls(graph) == [
        "outer.inner.y = mul(x, outer.w)",
        "outer.a = exp(outer.inner.y)",
        "outer.second.y = mul(outer.a, outer.w)",
        "outer.b = exp(outer.second.y)",
        "y = scale(outer.b)",
        "more.inner.y = mul(y, more.w)",
        "more.a = exp(more.inner.y)",
        "more.second.y = mul(more.a, more.w)",
        "more.b = exp(more.second.y)",
        "z = scale(more.b)",
    ]
    factors = [n.instance.attributes["by"] for n in graph.nodes if n.op == "scale"]
    assert factors == [8, 3]


def test_a_returned_value_takes_the_callers_name() -> None:
    graph = graph_of("def f(x) {\n h = neg(x)\n return h\n}\nmodel m() { input x : f32[3]\n y = f(x)\n output y }")
    assert calls(graph) == ["y = neg(x)"]


def test_a_returned_value_of_a_repeat_takes_the_callers_name() -> None:
    graph = graph_of(
        """def f(x) {
            y = neg(x)
            repeat t in 2 { y = exp(y) }
            return y
        }
        model m() { input x : f32[3]
            z = f(x)
            output z }"""
    )
    assert calls(graph) == ["f.t.0.y = neg(x)", "f.t.1.y = exp(f.t.0.y)", "z = exp(f.t.1.y)"]


def test_a_returned_argument_is_another_name() -> None:
    graph = graph_of(
        "def f(x) { return x }\nmodel m() { input x : f32[3]\n h = neg(x)\n y = f(h)\n z = exp(y)\n output z }"
    )
    assert calls(graph) == ["h = neg(x)", "z = exp(h)"]
    assert graph.resolve("y") == "h"


def test_a_returned_buffer_s_new_value_keeps_its_name() -> None:
    graph = graph_of(
        """def f(x, d) {
            buffer b : f32[d]
            b.new = add(b, x)
            return b.new
        }
        model m(d = 4) {
            input x : f32[d]
            param w : f32[d]
            y = f(x, d)
            loss = sum(mul(y, w), dims = 0)
            train loss with sgd()
        }"""
    )
    assert graph.updates["f.b"] == "f.b.new" and graph.resolve("y") == "f.b.new"


def test_several_returned_values() -> None:
    graph = graph_of(
        "def f(x) {\n h = neg(x)\n return h, exp(h)\n}\nmodel m() { input x : f32[3]\n a, b = f(x)\n output a, b }"
    )
    assert calls(graph) == ["a = neg(x)", "b = exp(a)"]
    assert graph.outputs == ("a", "b")


def test_calls_within_calls_are_named_by_operator_and_count() -> None:
    graph = graph_of("model m() { input x : f32[3]\n y = add(neg(x), neg(exp(x)))\n output y }")
    assert calls(graph) == ["neg.1 = neg(x)", "exp.1 = exp(x)", "neg.2 = neg(exp.1)", "y = add(neg.1, neg.2)"]


def test_settings() -> None:
    assert example("mlp", batch=6, hidden=3).tensors["u"].shape == (6, 3)
    assert example("gpt", layers=5, d=24, ffn=8).repeats == {"layer": 5}
    graph = graph_of("model m(d = 4, twice = 2 * d) { input x : f32[d, twice]\n y = neg(x)\n output y }", d=5)
    assert graph.tensors["x"].shape == (5, 10) and graph.parameters == {"d": 5, "twice": 10}


def test_arithmetic_in_calls() -> None:
    text = "def f(x, s) { return scale(x, by = s) }\nmodel m(d = 9, p = 0.5) { input x : f32[d, d // 2]\n"
    graph = graph_of(text + " y = f(x, 1 / sqrt(d))\n z = f(y, sqrt(d) - p) as again\n output z }")
    assert [n.instance.attributes["by"] for n in graph.nodes] == [pytest.approx(1 / 3), 2.5]
    root = graph_of("model m() { input x : f32[4]\n y = sqrt(x)\n output y }")  # the operator of the same name
    assert calls(root) == ["y = sqrt(x)"]


def test_attributes_by_place_and_by_name() -> None:
    graph = graph_of(
        'model m() { input x : f32[4, 6]\n a = sum(x, 0)\n b = sum(dims = [1], x)\n c = rearrange(x, "a (b c) -> b a c", c = 2)\n output a, b, c }'
    )
    assert [n.instance.attributes["dims"] for n in graph.nodes[:2]] == [0, [1]]
    assert graph.tensors["c"].shape == (3, 4, 2)


def test_operands_by_name() -> None:
    graph = graph_of("model m() { input x, y : f32[4]\n z = div(b = x, a = y)\n output z }")
    assert calls(graph) == ["z = div(y, x)"]


def test_dropout_is_keyed_by_path() -> None:
    graph = graph_of(
        'def f(x) { return dropout(x) }\nmodel m() { input x : f32[4]\n param w : f32[4]\n a = f(x)\n b = f(x) as g\n c = dropout(x, key = "own")\n'
        " loss = sum(w, 0)\n output a, b, c\n train loss with sgd() }"
    )
    assert [n.instance.attributes["key"] for n in graph.nodes if n.op == "dropout"] == ["a", "b", "own"]
    assert [n.instance.attributes["p"] for n in graph.nodes if n.op == "dropout"] == [0.1] * 3
    trained = graph_of(
        "model m() { param x : f32[4]\n a = dropout(x)\n loss = sum(a, dims = 0)\n train loss with sgd() }"
    )
    # The gradient zeroes what the forward pass did: its key is the same.
    assert [n.instance.attributes["key"] for n in trained.nodes if n.op == "dropout"] == ["a", "a"]


def test_dead_code_is_never_computed() -> None:
    graph = graph_of(
        """model m() { param w : f32[4]
            input x : f32[4]
            unused = exp(w)
            count = sum(x, dims = 0)
            y = mul(x, w)
            more = exp(y)
            loss = sum(y, dims = 0)
            metric count
            train loss with sgd() }"""
    )
    assert calls(graph) == ["count = sum(x)", "y = mul(x, w)", "loss = sum(y)"]
    assert "unused" not in graph.tensors and "more.grad" not in graph.tensors
    assert graph.metrics == ("count",)


def test_evaluation_has_a_forward_part_only() -> None:
    graph = graph_of(source("mlp"), train=False)
    assert {n.section for n in graph.nodes} == {"forward"} and not graph.updates
    assert "w1.m" not in graph.tensors and graph.loss == "loss"


def test_frozen_parameters_get_no_gradient() -> None:
    graph = graph_of(
        """model m() { input x : f32[2, 4]
            frozen w1 : f32[4, 4]
            param w2 : f32[4, 4]
            buffer scale2 : f32[4]
            h = matmul(x, w1)
            k = mul(h, scale2)
            y = matmul(k, w2)
            loss = sum(y, dims = [0, 1])
            train loss with sgd() }"""
    )
    assert not {"h.grad", "k.grad", "w1.grad", "scale2.grad"} & set(graph.tensors)
    assert set(graph.updates) == {"w2"}


def test_tied_weights_sum_their_gradients() -> None:
    """One parameter, two uses."""
    graph = example("decoder", batch=2, seq=3, d=4, heads=2, ffn=4, vocab=5, p=0)
    assert sum("table" in n.inputs for n in graph.nodes if n.section == "forward") == 2
    assert [f"{n.op}({', '.join(n.inputs)})" for n in graph.nodes if "table.grad" in n.outputs] == [
        "add(table.grad.1, table.grad.2)"
    ]
    assert len([t for t in graph.of_kind("param") if t.name == "table"]) == 1


def test_three_readers_sum_in_order() -> None:
    graph = graph_of(
        "model m() { param w : f32[3]\n a = exp(w)\n b = neg(w)\n c = tanh(w)\n y = add(a, add(b, c))\n loss = sum(y, dims = 0)\n train loss with sgd() }"
    )
    made = calls(graph, "backward")
    assert "w.grad.sum2 = add(w.grad.1, w.grad.2)" in made and "w.grad = add(w.grad.sum2, w.grad.3)" in made


def test_operators_of_a_file() -> None:
    graph = graph_of(
        """op cube(x[*i]) -> y[*i] {
            flops 2 * i
            grad x = mul(y.grad, scale(mul(x, x), by = 3))
            torch "torch.relu"
        }
        model m() { param w : f32[3]
            y = cube(w)
            loss = sum(y, dims = 0)
            train loss with sgd() }"""
    )
    assert calls(graph, "backward")[1:] == [
        "w.grad.1.scale.mul = mul(w, w)", "w.grad.1.scale = scale(w.grad.1.scale.mul)", "w.grad = mul(y.grad, w.grad.1.scale)",
    ]  # fmt: skip


def test_an_output_that_nobody_reads_has_a_gradient_of_zeros() -> None:
    graph = graph_of(
        """op both(x[*i]) -> y[*i], z[*i] {
            flops 2 * i
            grad x = add(y.grad, z.grad)
            torch "torch.relu"
        }
        model m() { param w : f32[3]
            a, b = both(w)
            loss = sum(a, dims = 0)
            train loss with sgd() }"""
    )
    (zeros,) = [n for n in graph.nodes if "b.grad" in n.outputs]
    assert (zeros.op, zeros.instance.attributes["by"], zeros.inputs) == ("scale", 0.0, ("b",))


def test_a_gradient_of_several_operands_of_which_one_is_left_out() -> None:
    """It is made, of nobody, under a name that no tensor has."""
    graph = graph_of(
        """op shifted(x[*i], b[*i]?) -> y[*i] {
            flops i
            grad  (x, b) = shifted_grad(y.grad)
            torch "torch.relu"
        }
        op shifted_grad(g[*i]) -> x_grad[*i], b_grad[*i] {
            flops i
            torch "torch.frexp"
        }
        model m() {
            param v, w : f32[3]
            y = shifted(v)
            z = shifted(w, y)
            loss = sum(z, dims = 0)
            train loss with sgd()
        }"""
    )
    assert calls(graph, "backward") == [
        "z.grad = spread(loss.grad)",
        "w.grad, y.grad = shifted_grad(z.grad)",
        "v.grad, y.grad.b = shifted_grad(y.grad)",
    ]


def test_initialisers() -> None:
    graph = graph_of(
        """model m() {
            param a : f32[2] init normal(0.5, mean = 1)
            param b : f32[2] init constant(3)
            param c : f32[2] init uniform(bound = 0.1)
            param d : f32[2] init ones
            param e : f32[2]
            buffer f : f32[2]
            s = add(add(a, b), add(c, add(d, add(e, f))))
            loss = sum(s, dims = 0)
            train loss with sgd() }"""
    )
    assert [graph.tensors[n].init for n in "abcdef"] == [
        ("normal", {"std": 0.5, "mean": 1}), ("constant", {"value": 3}), ("uniform", {"bound": 0.1}), ("ones", {}),
        ("normal", {"std": 0.02}), ("zeros", {}),
    ]  # fmt: skip


def test_the_norm_of_gradients_of_several_dtypes_is_added_up_in_the_widest() -> None:
    graph = graph_of(
        """model m() {
            param w : f32[4]
            param v : f64[4]
            loss = add(cast(sum(w, dims = 0), to = f64), sum(v, dims = 0))
            train loss with sgd(lr = 1) clip 1
        }"""
    )
    made = Reference(graph).step({"w": torch.zeros(4), "v": torch.zeros(4, dtype=torch.float64)})
    assert made["grad.norm"].dtype == torch.float64 and made["w.new"].dtype == torch.float32
    assert made["grad.norm"].item() == pytest.approx(8**0.5)
    assert made["w.new"].tolist() == pytest.approx([-(8**-0.5)] * 4, rel=1e-6)


def test_a_small_dtype_throughout() -> None:
    graph = graph_of("model m() { param w : bf16[4]\n y = exp(w)\n loss = sum(y, dims = 0)\n train loss with adam() }")
    dtypes = {t.name: t.dtype for t in graph.tensors.values()}
    assert set(dtypes.values()) == {"bf16"}
    assert graph.tensors["w"].bytes == 8


def test_the_loss_may_be_summed_from_several() -> None:
    text = """model m() { param w : f64[3]
        input x, y : f64[3]
        a = mse_loss(mul(w, x), y)
        b = sum(mul(w, w), dims = 0)
        loss = add(a, scale(b, by = 0.5))
        train loss with sgd() }"""
    graph = graph_of(text)
    tensors = values(graph)
    w: Any = tensors["w"].clone().requires_grad_()
    loss = torch.nn.functional.mse_loss(w * tensors["x"], tensors["y"]) + 0.5 * (w * w).sum()
    loss.backward()
    made = step(graph, tensors)
    same(made["loss"], loss)
    same(gradient(graph, made, "w"), w.grad)


def test_dropout_of_nothing_is_no_call() -> None:
    """Where its attribute is 0, what the declaration says stands there."""
    text = "model m(p = 0.5) {{ input x : f32[4, 3]\n param w : f32[3]\n a = mul(x, w)\n b = {call}\n loss = sum(b, [0, 1])\n train loss with sgd(lr = 1) }}"
    for call, count in [
        ("dropout(a, p = p)", 2),
        ("dropout(a, p = p * 0)", 0),
        ("drop_path(a, p = 0)", 0),
        ("dropout(a)", 2),
    ]:
        graph = graph_of(text.format(call=call))
        assert sum(n.op.startswith("drop") for n in graph.nodes) == count, call


def test_what_stands_where_an_attribute_is_0_may_be_said_in_several_lines() -> None:
    text = """op halves(x[*i], attr p = 0.5) -> a[*i], b[*i] {
        flops i
        without p : a = x
        without p : b = neg(x)
        torch "torch.frexp"
    }
    model m() { input x : f32[3]
        a, b = halves(x, p = 0)
        y = add(a, b)
        output y }"""
    assert calls(graph_of(text, train=False)) == ["b = neg(x)", "y = add(x, b)"]
