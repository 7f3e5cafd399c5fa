"""Models that don't elaborate: each HAP2xx code, at the line and column that caused it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hapdsl.graph import elaborate
from hapdsl.lang.diagnostics import HapError
from tests.graph.helpers import graph_of


def inside(*lines: str, tail: str = "    output x") -> str:
    """A model `m(d = 4)` with input x : f32[d], then these lines from line 3 on."""
    return "model m(d = 4) {\n    input x : f32[d]\n" + "".join(f"    {line}\n" for line in lines) + tail + "\n}\n"


TRAIN = "    loss = sum(mul(x, w), dims = 0)\n    train loss with sgd()"
TWICE = "def f(x) {\n    return neg(x)\n}\n"
BOTH = "op both(x[*i]) -> a[*i], b[*i] {\n    flops i\n    evaluation a = x, b = x\n}\n"

# (code, line, column, text)
WRONG: list[tuple[str, int, int, str]] = [
    ("HAP201", 3, 13, inside("y = neg(z)")),
    ("HAP201", 3, 23, inside("y = scale(x, by = k)")),
    ("HAP201", 3, 19, inside("param w : f32[k]")),
    ("HAP201", 4, 5, inside("y = neg(x)", tail="    output z")),
    ("HAP202", 3, 23, inside("y = scale(x, by = 2 * [1])")),
    ("HAP203", 3, 23, inside("y = scale(x, by = 1 / (d - 4))")),
    ("HAP204", 3, 18, inside("y = relu(x = d)")),
    ("HAP204", 3, 23, inside("y = scale(x, by = x)")),
    ("HAP204", 3, 23, inside("y = scale(x, by = 2 * x)")),
    ("HAP204", 3, 9, inside("y = 3")),
    ("HAP205", 3, 19, inside("param w : f32[d - 4]")),
    ("HAP205", 3, 19, inside("param w : f32[d / 3]")),
    ("HAP205", 3, 20, inside("repeat turn in 0 { x = neg(x) }")),
    ("HAP207", 1, 9, "model m(d) {\n    input x : f32[d]\n    output x\n}\n"),
    ("HAP207", 3, 9, inside("y = sum(x)")),
    ("HAP207", 6, 9, "def f(x, s) {\n    return x\n}\nmodel m() {\n    input x : f32[4]\n    y = f(x)\n    output y\n}\n"),
    ("HAP208", 4, 5, inside("microbatch 2 { y = neg(x) }", "microbatch 2 { z = neg(x) }")),
    ("HAP208", 4, 5, inside("param w : f32[d]", "microbatch 3 { loss = sum(mul(x, w), dims = 0) }", tail="    train loss with sgd()")),
    ("HAP210", 3, 15, inside("param w : f31[d]")),
    ("HAP211", 3, 27, inside("input y : f32[d] init zeros")),
    ("HAP212", 3, 27, inside("param w : f32[d] init gaussian")),
    ("HAP212", 3, 27, inside("param w : f32[d] init 3")),
    ("HAP212", 3, 34, inside("param w : f32[d] init normal(sdt = 0.5)")),
    ("HAP212", 3, 33, inside("param w : f32[d] init zeros(0.5)")),
    ("HAP212", 3, 39, inside("param w : f32[d] init normal(0.5, std = 1)")),
    ("HAP212", 3, 34, inside('param w : f32[d] init normal("wide")')),
    ("HAP213", 3, 5, inside("x.grad = neg(x)")),
    ("HAP213", 3, 5, inside("x.new = neg(x)")),
    ("HAP213", 3, 5, inside("x.grad.1 = neg(x)")),
    ("HAP213", 3, 5, inside("param grad : f32[d]")),
    ("HAP213", 3, 5, inside("path = neg(x)")),
    ("HAP213", 6, 9, TWICE + inside("y = f(x) as new")),
    ("HAP214", 4, 5, inside("y = neg(x)", "y = neg(x)")),
    ("HAP214", 3, 5, inside("param x : f32[d]")),
    ("HAP214", 3, 5, inside("param d : f32[4]")),
    ("HAP214", 3, 5, inside("repeat t in 2 { d = neg(x) }")),
    ("HAP214", 4, 5, inside("repeat t in 2 { y = neg(x) }", "repeat t in 2 { z = neg(x) }")),
    ("HAP214", 4, 5, inside("repeat t in 2 { x = neg(x) }", "x = neg(x)")),
    ("HAP214", 4, 13, inside("y = neg(neg(x))", "neg.1 = neg(x)", tail="    output y, neg.1")),
    ("HAP215", 5, 5, inside("param w : f32[d]", "train x with sgd()", tail="    train x with sgd()").replace("f32[d]\n    param", "f32[]\n    param")),
    ("HAP216", 4, 5, inside("param w : f32[d]", tail="    train x with sgd()")),
    ("HAP217", 5, 21, inside("param w : f32[d]", tail="    loss = sum(mul(x, w), dims = 0)\n    train loss with sgdd()")),
    ("HAP217", 5, 21, inside("param w : f32[d]", tail="    loss = sum(mul(x, w), dims = 0)\n    train loss with relu_grad()")),
    ("HAP218", 5, 26, inside("param w : f32[d]", tail="    loss = sum(mul(x, w), dims = 0)\n    train loss with adam(rl = 0.1)")),
    ("HAP218", 5, 30, inside("param w : f32[d]", tail="    loss = sum(mul(x, w), dims = 0)\n    train loss with sgd(0.1, lr = 0.1)")),
    ("HAP218", 3, 18, inside("y = scale(x, to = 2)")),
    ("HAP218", 3, 21, inside("y = scale(x, 2, by = 2)")),
    ("HAP218", 6, 14, TWICE + inside("y = f(x, z = 3)")),
    ("HAP218", 6, 14, TWICE + inside("y = f(x, x)")),
    ("HAP218", 6, 14, TWICE + inside("y = f(x, x = x)")),
    ("HAP219", 3, 5, inside("y, z = x")),
    ("HAP219", 3, 12, inside("y, z = neg(x)")),
    ("HAP219", 6, 12, TWICE + inside("y, z = f(x)")),
    ("HAP219", 7, 9, BOTH + inside("y = both(x)")),
    ("HAP219", 7, 18, BOTH + inside("p, q, r = neg(x)").replace("p, q, r = neg", "p, q, rest = both")),
    ("HAP219", 6, 13, "def f(x) {\n    return x, neg(x)\n}\n" + inside("y = exp(f(x))")),
    ("HAP220", 3, 9, inside("y = neg(x) as other")),
    ("HAP221", 3, 9, inside("y = nge(x)")),
    ("HAP222", 3, 9, inside("y = adam(x, x)")),
    ("HAP223", 3, 17, inside("repeat t in 500000 { x = neg(x) }")),
    ("HAP223", 3, 17, inside("repeat t in 500000 { param w : f32[d] }")),
    ("HAP224", 7, 9, TWICE + inside("y = f(x)", "z = f(x)")),
    ("HAP224", 7, 9, TWICE + inside("y = f(x) as g", "z = f(x) as g")),
    ("HAP225", 2, 12, "def f(x) {\n    return f(x)\n}\n" + inside("y = f(x)")),
    ("HAP226", 1, 1, "def f(x) {\n    y = neg(x)\n}\n" + inside("y = f(x)")),
    ("HAP227", 3, 9, inside("y = add(x)")),
    ("HAP227", 3, 16, inside("y = neg(x, x)")),
    ("HAP227", 3, 16, inside("y = neg(x, 3)")),
    ("HAP227", 3, 20, inside("y = add(a = x, a = x)")),
    ("HAP228", 4, 9, inside("param w : f32[4, d]", "y = accuracy(w, x)", tail="    train y with sgd()").replace("x : f32[d]", "x : i64[d]")),
    ("HAP228", 3, 14, "op odd(a[*i]) -> y[*i] {\n    flops i\n    grad a = 3\n}\n" + inside("param w : f32[]", "y = odd(w)", tail="    train y with sgd()")),
    ("HAP228", 3, 14, "op odd(a[*i], attr by = 2) -> y[*i] {\n    flops i\n    grad a = by\n}\n" + inside("param w : f32[]", "y = odd(w)", tail="    train y with sgd()")),
    ("HAP229", 3, 5, inside("param w, v : f32[d]", tail=TRAIN)),
    ("HAP229", 5, 5, inside("param w : f32[d]", "loss = sum(x, dims = 0)", tail="    train loss with sgd()")),
    ("HAP230", 4, 5, inside("loss = sum(x, dims = 0)", tail="    train loss with sgd()")),
    ("HAP230", 1, 1, inside("y = neg(x)", tail="    z = neg(y)")),
    ("HAP231", 6, 5, inside("param w : f32[d]", tail=TRAIN + "\n    group w, *.bias with sgd(lr = 1)")),
    ("HAP231", 4, 5, inside("frozen b.w : f32[d]", "group b.* with sgd(lr = 1)", "param w : f32[d]", tail=TRAIN)),
    ("HAP232", 3, 5, inside("group *.bias with sgd(lr = 1)")),
    ("HAP233", 5, 32, inside("param w : f32[d]", tail=TRAIN + " clip 0")),
    ("HAP233", 5, 32, inside("param w : f32[d]", tail=TRAIN + " clip f32")),
    ("HAP218", 6, 30, inside("param w : f32[d]", tail=TRAIN + "\n    group w with sgd(lr = 1, lr = 2)")),
    ("HAP204", 5, 34, inside("param w : f32[d]", "loss = sum(mul(x, w), dims = 0)", tail="    train loss with adam(beta1 = loss)")),
    ("HAP204", 5, 25, inside("param w : f32[d]", tail=TRAIN.replace("sgd()", 'sgd(lr = "fast")'))),
    ("HAP204", 5, 26, inside("param w : f32[d]", tail=TRAIN.replace("sgd()", "adam(beta1 = true)"))),
    ("HAP214", 5, 5, inside("buffer b : f32[d]", "b.new = neg(b)", "b.new = exp(b)")),
    ("HAP214", 4, 21, inside("buffer b : f32[d]", "repeat t in 2 { b.new = neg(b) }")),
    ("HAP234", 4, 5, inside("buffer b : f32[3]", "b.new = neg(x)")),
    ("HAP210", 3, 5, inside("param w : bf16[d] master f31")),
    ("HAP235", 3, 5, inside("frozen w : bf16[d] master f32")),
    ("HAP235", 3, 5, inside("param w : f32[d] master bf16")),
    ("HAP235", 3, 5, inside("param w : bf16[d] master i64")),
    ("HAP236", 2, 5, "model m(n = 1000000000000000000) {\n    input x : f32[n]\n    y = relu(x)\n    output y\n}"),
    ("HAP236", 2, 5, f"model m(n = {2**62}) {{\n    input x : f32[{', '.join('n' * 20)}]\n    output x\n}}"),
    ("HAP236", 2, 5, f"model m(n = {2**62}) {{\n    input x : f32[{', '.join('n' * 400)}]\n    output x\n}}"),
    # shapes are reported where the call stands
    ("HAP301", 3, 9, inside("y = conv2d(x, x)")),
    ("HAP301", 5, 26, inside("param w : f32[d]", tail=TRAIN.replace("sgd()", "adam(lr = x)"))),
    ("HAP302", 4, 9, inside("param w : f32[3]", "y = add(x, w)")),
    ("HAP305", 4, 9, inside("param w : f64[d]", "y = add(x, w)")),
    ("HAP306", 3, 9, inside("y = slice(x, start = 0, stop = 5)")),
    ("HAP307", 3, 9, inside("y = sum(x, dims = 1)")),
    ("HAP308", 3, 9, inside('y = einsum("a->aa", x)')),
    ("HAP319", 3, 20, "op odd(x[*i]) -> y[*i] {\n    flops i\n    evaluation y = odd(x)\n}\n" + inside("y = odd(x)")),
]  # fmt: skip


@pytest.mark.parametrize(("code", "line", "column", "text"), WRONG, ids=[f"{k}-{r[0]}" for k, r in enumerate(WRONG)])
def test_wrong_models(code: str, line: int, column: int, text: str) -> None:
    with pytest.raises(HapError) as stop:
        graph_of(text)
    (found,) = stop.value.diagnostics
    assert (found.code, found.span.line, found.span.column) == (code, line, column), found
    assert stop.value.status == 2


@pytest.mark.parametrize(
    ("code", "settings"),
    [
        ("HAP206", {"depth": 3}),
        ("HAP205", {"d": 0}),
        ("HAP205", {"d": 2.5}),
        ("HAP205", {"d": "four"}),
        ("HAP205", {"d": True}),
    ],
)
def test_settings_that_do_not_fit(code: str, settings: dict[str, Any]) -> None:
    with pytest.raises(HapError) as stop:
        graph_of(inside("y = neg(x)"), **settings)
    assert [d.code for d in stop.value.diagnostics] == [code]


def test_a_near_name_is_offered() -> None:
    for text, near in ((inside("hidden = neg(x)", "y = neg(hiden)"), "hidden"), (inside("y = softmix(x)"), "softmax")):
        with pytest.raises(HapError) as stop:
            graph_of(text)
        assert near in stop.value.diagnostics[0].help


def test_too_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elaborate, "MAX_CALLS", 10)
    with pytest.raises(HapError) as stop:
        graph_of(inside("repeat t in 10 { y = neg(exp(x)) }"))
    assert [d.code for d in stop.value.diagnostics] == ["HAP223"]
    with pytest.raises(HapError) as stop:
        graph_of(inside("repeat t in 10 { param a, b : f32[d] }"))
    assert [d.code for d in stop.value.diagnostics] == ["HAP223"]


def test_what_is_too_large_is_told_before_it_is_built() -> None:
    """Operands in order and by name are told apart as in the call itself: here the number is `n`'s."""
    text = "def f(n, x) {\n    y = neg(x)\n    repeat t in n { y = neg(y) }\n    return y\n}\n" + inside(
        "y = f(x = x, 500000)"
    )
    with pytest.raises(HapError, match="expands to 500,001 operator calls"):
        graph_of(text)


def test_every_code_of_models_is_provoked() -> None:
    """The codes that elaboration and autodiff name in their sources, less those that the parser forestalls."""
    folder = Path(elaborate.__file__).parent
    raised = set(
        re.findall(r'error\(\s*"(HAP2\d\d)"', "".join(p.read_text(encoding="utf-8") for p in folder.glob("*.py")))
    )
    provoked = {row[0] for row in WRONG} | {"HAP206"}
    assert raised - provoked == {"HAP209"}  # no statement of the grammar is left over
