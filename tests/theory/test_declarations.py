"""The standard theory declares cleanly; what is wrong with a declaration or a call has its code and its place."""

from __future__ import annotations

from typing import Any

import pytest

from hapdsl.graph.build import operators
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, Report
from hapdsl.lang.parse import parse
from hapdsl.theory.expressions import evaluate
from hapdsl.theory.library import declare_all, standard
from hapdsl.theory.ops import declare
from tests.theory.helpers import call, declared

# What an MLP, a CNN, and a transformer's encoder and decoder are made of.
WANTED = """
    matmul matmul_nt matmul_tn bmm bmm_nt bmm_tn einsum add sub mul div neg sum mean max softmax layer_norm layer_norm_grad
    gelu relu tanh dropout embedding transpose reshape rearrange concat slice conv2d max_pool2d adaptive_avg_pool2d
    cross_entropy attention sgd momentum adam adamw cast
"""


def test_the_standard_theory_declares_without_a_word() -> None:
    found = standard()
    assert set(WANTED.split()) <= set(found)
    for decl in found.values():
        assert decl.results, decl.name
        assert decl.torch, f"{decl.name} says nowhere what computes it"


def test_updates_are_told_from_other_operators() -> None:
    assert {n for n, d in standard().items() if d.is_update} == {"sgd", "momentum", "adam", "adamw"}
    assert [o.name for o in standard()["adam"].states] == ["m", "v"]


def test_gradients_name_operators_that_exist() -> None:
    def functions(expr: nodes.Expr) -> set[str]:
        if isinstance(expr, nodes.Call):
            return {expr.function} | set().union(*(functions(a.value) for a in expr.args), set())
        return set()

    arithmetic = {"shape", "inverse", "start", "stop"}
    for decl in standard().values():
        for rule in decl.grads:
            assert functions(rule.value) <= set(standard()) | arithmetic, decl.name


# (code, line and column of the finding, the declaration)
WRONG: list[tuple[str, tuple[int, int], str]] = [
    ("HAP310", (1, 1), "op f(x[i], x[i]) -> y[i] { flops i }"),
    ("HAP310", (1, 1), "op f(x[i]) -> x[i] { flops i }"),
    ("HAP310", (1, 1), "op f(x[i], attr x = 1) -> y[i] { flops i }"),
    ("HAP310", (1, 1), "op f(x[*i], w[i]) -> y[*i] { flops i }"),
    ("HAP310", (1, 1), "op f(x[*i], w[(h i)]) -> y[*i, h] { flops i }"),
    ("HAP311", (1, 1), "op f(x[i], i[j]) -> y[i, j] { flops j }"),
    ("HAP308", (1, 1), "op f(attr spec) -> y[] { notation spec }"),
    ("HAP308", (1, 1), "op f(a[], b[], attr spec) -> y[] { notation spec }"),
    ("HAP308", (1, 1), "op f(a[]?, attr spec) -> y[] { notation spec }"),
    ("HAP308", (1, 1), "op f(a[], attr spec) -> y[], z[] { notation spec }"),
    ("HAP312", (1, 6), "op f(x[*i, *j]) -> y[*i] { sum j }"),
    ("HAP312", (1, 6), "op f(x[*a, k, *b, s], attr d) -> y[*a, k, *b] { at s = d }"),
    ("HAP312", (1, 6), "op f(x[*a, s, *b, *c], attr d) -> y[*a, *b, *c] { at s = d }"),
    ("HAP312", (1, 6), "op f(x[*a, *k, *b], attr d) -> y[*a, *b] { at k = d; sum k }"),
    ("HAP313", (1, 15), "op f(x[i]) -> y[i, k] { flops i }"),
    ("HAP314", (2, 5), "op f(x[i]) -> y[i] {\n    sum k\n}"),
    ("HAP314", (2, 5), "op f(x[i]) -> y[i] {\n    whole k\n}"),
    ("HAP314", (2, 5), "op f(x[i]) -> y[i] {\n    linear z\n}"),
    ("HAP314", (2, 5), "op f(x[i]) -> y[i] {\n    flops 2 * k\n}"),
    ("HAP314", (2, 5), "op f(x[i]) -> y[i] {\n    grad z = y.grad\n}"),
    ("HAP314", (2, 5), "op f(x[i]) -> y[i] {\n    grad x = z.grad\n}"),
    ("HAP314", (2, 5), "op f(x[i]) -> y[j] {\n    size j = 2 * k\n}"),
    ("HAP314", (2, 5), "op f(x[i]) -> y[i] {\n    at k = 1\n}"),
    ("HAP314", (2, 5), "op f(x[(h e)], attr d) -> y[e] {\n    at h = d\n}"),
    ("HAP314", (2, 5), "op f(x[i]) -> y[i] {\n    order z = 1\n}"),
    ("HAP314", (2, 5), "op f(x[i]) -> y[i] {\n    reads z = i\n}"),
    ("HAP314", (2, 5), "op f(x[i]) -> y[i] {\n    tiled k\n}"),
    ("HAP314", (2, 5), "op f(x[i]) -> y[i] {\n    training z = x\n}"),
    ("HAP314", (2, 5), "op f(x[i]) -> y[i] {\n    evaluation y = z\n}"),
    ("HAP314", (2, 5), "op f(x[i]) -> y[i] {\n    without p : y = x\n}"),
    ("HAP314", (2, 5), "op f(x[i]) -> y[i] {\n    notation spec\n}"),
    ("HAP314", (2, 5), "op f(x[i]) -> y[i] {\n    dtype z = f32\n}"),
    ("HAP314", (2, 5), "op f(x[i]) -> y[i] {\n    dtype y = f31\n}"),
    ("HAP315", (2, 5), "op f(x[i]) -> y[i] {\n    sum i\n}"),
    ("HAP318", (1, 1), "op all_reduce(x[i]) -> y[i] { flops i }"),
]


@pytest.mark.parametrize(("code", "place", "text"), WRONG, ids=[f"{k}-{r[0]}" for k, r in enumerate(WRONG)])
def test_wrong_declarations(code: str, place: tuple[int, int], text: str) -> None:
    (op,) = parse(text).items
    assert isinstance(op, nodes.Op)
    report = Report()
    declare(op, report)
    assert [(d.code, d.span.line, d.span.column) for d in report] == [(code, *place)]
    assert all(d.message and d.help for d in report)


def test_several_findings_at_once() -> None:
    (op,) = parse("op f(x[i]) -> y[i] {\n    sum k\n    linear z\n    flops q\n}").items
    assert isinstance(op, nodes.Op)
    report = Report()
    declare(op, report)
    assert [d.span.line for d in report] == [2, 3, 4]


def test_two_operators_of_one_name() -> None:
    ops = [
        i
        for i in parse("op f(x[i]) -> y[i] { flops i }\nop f(x[i]) -> y[i] { flops i }").items
        if isinstance(i, nodes.Op)
    ]
    with pytest.raises(HapError) as stop:
        declare_all(ops)
    assert [(d.code, d.span.line) for d in stop.value.diagnostics] == [("HAP316", 2)]


def test_a_standard_operator_declared_again() -> None:
    (op,) = parse("op relu(x[i]) -> y[i] { flops i }").items
    assert isinstance(op, nodes.Op)
    with pytest.raises(HapError) as stop:
        operators({"relu": op})
    assert stop.value.diagnostics[0].code == "HAP316"


# (code, operator, shapes, attributes): calls that don't fit
MISFITS: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = [
    ("HAP301", "matmul", ((4,), (4, 5)), {}),
    ("HAP301", "matmul", ((4, 5), (2, 5, 6)), {}),
    ("HAP301", "conv2d", ((8, 8), (6, 3, 3, 3)), {}),
    ("HAP301", "einsum", ((4, 5),), {"spec": "abc->cba"}),
    ("HAP301", "concat", ((4, 3), (2, 4, 3)), {"dim": -1}),
    ("HAP301", "concat", ((), ()), {}),
    ("HAP301", "cross_entropy", ((4, 6, 10), ((4,), "i64")), {}),
    ("HAP302", "matmul", ((4, 5), (6, 7)), {}),
    ("HAP302", "add", ((4, 6), (4, 5)), {}),
    ("HAP302", "layer_norm", ((4, 6), (6,), (5,)), {}),
    ("HAP302", "conv2d", ((4, 3, 8, 8), (6, 4, 3, 3)), {}),
    ("HAP304", "conv2d", ((4, 6, 8, 8), (9, 3, 3, 3)), {"groups": 3}),
    ("HAP304", "conv2d", ((4, 6, 8, 8), (8, 2, 3, 3)), {"groups": 3}),
    ("HAP306", "conv2d", ((4, 6, 8, 8), (9, 2, 3, 3)), {"groups": 0}),
    ("HAP306", "conv2d", ((4, 6, 8, 8), (9, 2, 3, 3)), {"groups": -3}),
    ("HAP306", "conv2d", ((4, 6, 8, 8), (9, 2, 3, 3)), {"groups": 1.5}),
    ("HAP304", "group_norm", ((4, 6), (6,), (6,)), {"groups": 4}),
    ("HAP306", "conv_transpose2d", ((4, 3, 8, 8), (3, 6, 2, 2)), {"stride": 2, "output_pad": 2}),
    ("HAP306", "max_pool2d", ((4, 3, 8, 8),), {"pad": 2}),
    ("HAP306", "lower_triangle", ((4, 5, 6),), {}),
    ("HAP306", "lower_triangle", ((4, 1, 1),), {}),
    ("HAP306", "upsample_nearest2d", ((4, 3, 8, 8),), {"factor": 0}),
    ("HAP302", "einsum", ((4, 5), (6, 7)), {"spec": "ij,jk->ik"}),
    ("HAP302", "rearrange", ((4, 5),), {"spec": "a b -> b a", "a": 5}),
    ("HAP302", "rearrange", ((4, 5),), {"spec": "a 1 -> a"}),
    # what would stretch silently: a loss, joined operands
    ("HAP302", "cross_entropy", ((4, 10), ((1,), "i64")), {}),
    ("HAP302", "mse_loss", ((4, 6), (4, 1)), {}),
    ("HAP301", "mse_loss", ((4, 6), (6,)), {}),
    ("HAP302", "concat", ((1, 3), (4, 3)), {"dim": 1}),
    ("HAP303", "rearrange", ((2, 12),), {"spec": "b (h e) -> b h e"}),
    ("HAP304", "rearrange", ((2, 12),), {"spec": "b (h e) -> b h e", "h": 5}),
    ("HAP304", "rearrange", ((2, 12),), {"spec": "b (h e) -> b h e", "h": 3, "e": 5}),
    ("HAP304", "reshape", ((4, 6),), {"shape": [5, 5]}),
    ("HAP304", "reshape", ((4, 6),), {"shape": [5, -1]}),
    ("HAP304", "reshape", ((4, 6),), {"shape": [-1, -1]}),
    ("HAP304", "reshape", ((4, 6),), {"shape": [0, 24]}),
    ("HAP304", "reshape", ((4, 6),), {"shape": [2.5, -1]}),
    ("HAP304", "reshape", ((4, 6),), {"shape": [True, 24]}),
    ("HAP304", "attention", ((2, 5, 6, 8), (2, 2, 6, 8), (2, 2, 6, 8)), {}),
    ("HAP304", "rotary", ((2, 6, 7),), {}),
    ("HAP305", "add", ((4,), ((4,), "f64")), {}),
    ("HAP305", "add", (((4,), "i64"), ((4,), "i32")), {}),
    ("HAP305", "cast", ((4,),), {"to": "f31"}),
    ("HAP305", "count_labels", (((4,), "i64"),), {"to": "float"}),
    ("HAP306", "conv2d", ((4, 3, 2, 2), (6, 3, 3, 3)), {}),
    ("HAP306", "max_pool2d", ((4, 3, 2, 2),), {"kernel": 3}),
    ("HAP306", "slice", ((10,),), {"start": 5, "stop": 5}),
    ("HAP306", "slice", ((10,),), {"start": 5, "stop": 11}),
    ("HAP306", "slice", ((10,),), {"start": -3, "stop": 2}),
    ("HAP306", "slice", ((10,),), {"start": 0.5, "stop": 2}),
    ("HAP306", "slice", ((10,),), {"start": True, "stop": 2}),
    ("HAP306", "unslice", ((3,),), {"start": 8, "size": 10}),
    ("HAP306", "adaptive_avg_pool2d", ((4, 3, 8, 8),), {"size": 0}),
    ("HAP306", "embedding_grad", (((4,), "i64"), (4, 8)), {"rows": 0}),
    ("HAP306", "spread", ((4,),), {"dims": [0], "sizes": 3}),
    ("HAP306", "rearrange", ((2, 12),), {"spec": "b (h e) -> b h e", "h": -3}),
    ("HAP306", "top_k_gate", ((2, 6, 4),), {"k": 5, "capacity": 2}),
    ("HAP306", "top_k_gate", ((2, 6, 4),), {"capacity": 0}),
    ("HAP307", "sum", ((4, 6),), {"dims": 2}),
    ("HAP307", "sum", ((4, 6),), {"dims": [0, -2]}),
    ("HAP307", "sum", ((4, 6),), {"dims": "all"}),
    ("HAP307", "sum", ((4, 6),), {"dims": True}),
    ("HAP307", "mean", ((4, 6),), {"dims": [0.5]}),
    ("HAP307", "concat", ((4, 3), (4, 3)), {"dim": [0, 1]}),
    ("HAP307", "concat", ((4, 3), (4, 3)), {"dim": 2}),
    ("HAP307", "spread", ((4,),), {"dims": [0, 1], "sizes": [3]}),
    ("HAP307", "transpose", ((4, 6),), {"perm": [0, 0]}),
    ("HAP307", "transpose", ((4, 6),), {"perm": [0, 2]}),
    ("HAP307", "transpose", ((4, 6),), {"perm": 1}),
    ("HAP307", "transpose", ((),), {"perm": [0]}),
    ("HAP308", "einsum", ((4, 5),), {"spec": "ab"}),
    ("HAP308", "einsum", ((4, 5),), {"spec": [5, 4]}),
    ("HAP308", "einsum", ((4, 5), (5, 6)), {"spec": "ab->ba"}),
    ("HAP308", "einsum", ((4, 4),), {"spec": "aa->a"}),
    ("HAP308", "einsum", ((4, 5),), {"spec": "ab->abc"}),
    ("HAP308", "einsum", ((4, 5),), {"spec": "ab->aa"}),
    ("HAP308", "einsum", ((4, 5), (5,)), {"spec": "ab,b->b"}),
    ("HAP308", "einsum", ((4, 5),), {"spec": "a?->?a"}),
    ("HAP308", "einsum", ((4, 2),), {"spec": "a²->a²"}),
    ("HAP308", "rearrange", ((4, 5),), {"spec": "a (b -> a b"}),
    ("HAP308", "rearrange", ((4, 5),), {"spec": "a b -> a"}),
    ("HAP308", "rearrange", ((4, 5),), {"spec": "a b -> b a", "c": 2}),
    ("HAP308", "reshape", ((4, 5),), {"shape": 20}),
    ("HAP308", "reshape", ((4, 5),), {"shape": [20], "h": 2}),
]


@pytest.mark.parametrize(
    ("code", "op", "shapes", "attributes"), MISFITS, ids=[f"{k}-{r[0]}-{r[1]}" for k, r in enumerate(MISFITS)]
)
def test_calls_that_do_not_fit(code: str, op: str, shapes: tuple[Any, ...], attributes: dict[str, Any]) -> None:
    with pytest.raises(HapError) as stop:
        call(op, *shapes, **attributes)
    assert [d.code for d in stop.value.diagnostics] == [code]
    assert op in stop.value.diagnostics[0].message


def test_a_word_alone_is_read_letter_by_letter_and_the_help_says_so() -> None:
    with pytest.raises(HapError) as stop:
        call("rearrange", (6,), spec="seq -> 1 seq")
    assert stop.value.diagnostics[0].code == "HAP301" and "(seq)" in stop.value.diagnostics[0].help
    assert call("rearrange", (6,), spec="(seq) -> 1 (seq)").result_shapes == ((1, 6),)


@pytest.mark.parametrize(
    ("code", "text", "shapes", "attributes"),
    [
        ("HAP302", "op f(*x[c, 3]) -> y[t] { size t = c }", ((4, 3), (4, 5)), {}),
        ("HAP307", "op f(x[n, *a, s, *b], attr d) -> y[n, *a, *b] { at s = d; sum s }", ((4, 5, 6),), {"d": 0}),
        ("HAP307", "op f(x[*i, s, t], attr d, attr e) -> y[*i] { at s = d; at t = e; sum s, t }", ((4, 5, 6),), {"d": 1, "e": -2}),
        ("HAP307", "op f(x[*i], attr d) -> y[*i, s, t] { at s = d; at t = d; size s = 2; size t = 3 }", ((4,),), {"d": 0}),
    ],
)  # fmt: skip
def test_calls_that_do_not_fit_a_declaration(
    code: str, text: str, shapes: tuple[Any, ...], attributes: dict[str, Any]
) -> None:
    with pytest.raises(HapError) as stop:
        call(declared(text), *shapes, **attributes)
    assert [d.code for d in stop.value.diagnostics] == [code]


def arithmetic(text: str, **names: Any) -> Any:
    (tree,) = parse(f"op f(x[i]) -> y[k] {{\n    size k = {text}\n}}").items
    assert isinstance(tree, nodes.Op)
    (size,) = tree.body
    assert isinstance(size, nodes.Size)
    return evaluate(size.value, names)


def test_arithmetic() -> None:
    assert arithmetic("(h + 2 * pad - kh) // stride + 1", h=9, pad=1, kh=3, stride=2) == 5
    assert arithmetic("d / heads", d=768, heads=12) == 64 and isinstance(arithmetic("d / heads", d=768, heads=12), int)
    assert arithmetic("1 / k", k=8) == 0.125
    assert arithmetic("-a % 5 - 2 - 1", a=3) == -1


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("HAP201", "unknown + 1"),
        ("HAP202", 'a + "text"'),
        ("HAP202", "[1, 2] * a"),
        ("HAP202", "-[1, 2]"),
        ("HAP202", "nothing(a)"),
        ("HAP203", "a // (a - a)"),
        ("HAP203", "a % 0"),
    ],
)
def test_arithmetic_that_fails(code: str, text: str) -> None:
    with pytest.raises(HapError) as stop:
        arithmetic(text, a=3)
    (found,) = stop.value.diagnostics
    assert (found.code, found.span.line) == (code, 2)
