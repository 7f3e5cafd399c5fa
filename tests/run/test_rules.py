"""Every rule and every gradient of every operator, in numbers. The list comes from the theory: no operator can escape it."""

from __future__ import annotations

import pytest

from hapdsl.run.samples import of_instance, samples
from hapdsl.run.validate import Trial, validate_op
from hapdsl.theory.instance import Given
from hapdsl.theory.instantiate import instantiate
from hapdsl.theory.library import standard
from hapdsl.theory.placements import P, R, S
from tests.theory.helpers import declared


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", list(standard()))
def test_rules_and_gradients_hold(name, seed):
    assert validate_op(standard()[name], seed=seed, two_axes=seed == 0) == []


def trials(name):
    decl = standard()[name]
    return [Trial.of(decl, standard(), s, str(k), frozenset()) for k, s in enumerate(samples(decl)) if not s.tentative]


@pytest.mark.parametrize("name", list(standard()))
def test_each_operator_has_a_sample_that_shards_it(name):
    assert any(rule.index is not None for trial in trials(name) for rule in trial.node.rules)


def test_each_index_of_a_product_is_cut():
    found = {(r.inputs, r.outputs) for trial in trials("matmul") for r in trial.node.rules}
    assert {
        ((S(0), R), (S(0),)),  # rows
        ((S(1), S(0)), (P,)),  # the summed dim
        ((R, S(1)), (S(1),)),  # columns
        ((P, R), (P,)),
        ((R, P), (P,)),
        ((S(2), S(0)), (P,)),  # the summed dim, with a batch dim before it
    } <= found


def test_stretched_operands_are_tried():
    found = [s for s in samples(standard()["div"]) if s.tentative]
    assert {shape for s in found for _, shape in s.operands} >= {(1, 6), (4, 1), (6,), ()}


# Declarations with one mistake each: what is wrong, and the code that must say so.
WRONG = {
    "a number added to partial sums once per device": (
        'op shifted(x[*i], attr by = 0.5) -> y[*i] { linear x; torch "hapdsl.shift" }',
        "HAP730",
    ),
    "a product of partial sums with partial sums": (
        'op times(a[*i], b[*i]) -> y[*i] { linear (a, b); torch "torch.mul" }',
        "HAP730",
    ),
    "a sum of a partial and a replicated operand": (
        'op plus(a[*i], b[*i]) -> y[*i] { linear a; linear b; torch "torch.add" }',
        "HAP730",
    ),
    "softmax cut along its own dim": (
        'op soft(x[*i, j]) -> y[*i, j] { torch "hapdsl.softmax" }',
        "HAP730",
    ),
    "a root of partial sums": (
        'op root(x[*i]) -> y[*i] { linear x; torch "torch.sqrt" }',
        "HAP730",
    ),
    "a bias added on every device of a cut sum": (
        'op affine(x[m, k], w[n, k], b[n]) -> y[m, n] { sum k; torch "torch.nn.functional.linear" }',
        "HAP730",
    ),
    "a gradient with the wrong sign": (
        'op minus(a[*i], b[*i]) -> y[*i] { linear (a, b); grad a = y.grad, b = y.grad; torch "torch.sub" }',
        "HAP732",
    ),
    "a gradient that forgets a factor": (
        'op square(x[*i]) -> y[*i] { grad x = mul(y.grad, x); torch "torch.square" }',
        "HAP732",
    ),
    "an output of another shape": (
        'op joined(x[m, n]) -> y[m] { sum n; torch "torch.relu" }',
        "HAP705",
    ),
    "an operand too many": (
        'op twice(x[*i], y[*i]) -> z[*i] { torch "torch.relu" }',
        "HAP705",
    ),
    "a function that isn't there": ('op none(x[*i]) -> y[*i] { torch "torch.no_such_thing" }', "HAP700"),
    "a function that reads files": ('op file(x[*i], attr f = "/etc/passwd") -> y[*i] { torch "torch.load" }', "HAP700"),
    "a function that works in place": ('op zero(x[*i]) -> y[*i] { torch "torch.relu_" }', "HAP700"),
    "a module nobody named": ('op own(x[*i]) -> y[*i] { torch "os.system" }', "HAP700"),
    "an attribute without a value": ('op power(x[*i], attr exponent) -> y[*i] { torch "torch.pow" }', "HAP731"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_declarations_are_found(what):
    text, code = WRONG[what]
    found = validate_op(declared(text), two_axes=True)
    assert code in {d.code for d in found}, [d.message for d in found]


def test_a_users_own_operators_pass_when_they_are_right():
    swish = declared(
        'op swish(x[*i]) -> y[*i] { flops 6 * i; grad x = silu_grad(x, y.grad); torch "torch.nn.functional.silu" }'
    )
    linear = declared(
        """op dense(x[*b, k], w[n, k]) -> y[*b, n] {
            sum k; linear x; linear w; flops 2 * b * k * n
            torch "torch.nn.functional.linear"
        }"""
    )
    assert validate_op(swish, two_axes=True) == []
    assert validate_op(linear, two_axes=True) == []


def test_a_call_of_a_model_stands_in_where_none_can_be_made_up():
    wrong = declared('op power(x[*i], attr exponent) -> y[*i] { linear x; torch "torch.pow" }')
    right = declared('op power(x[*i], attr exponent) -> y[*i] { torch "torch.pow" }')
    call = of_instance(instantiate(right, [Given("x", (4, 3), "f32")], {"exponent": 2}))
    assert [d.code for d in validate_op(right)] == ["HAP731"]
    assert validate_op(right, calls=[call]) == []
    assert {d.code for d in validate_op(wrong, calls=[call])} == {"HAP730"}


def test_an_operator_of_a_named_module_runs(tmp_path, monkeypatch):
    (tmp_path / "own_kernels.py").write_text("def cube(ctx, x):\n    return x * x * x\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    decl = declared('op cube(x[*i]) -> y[*i] { torch "own_kernels.cube" }')
    assert validate_op(decl, allow={"own_kernels"}) == []
    refused = validate_op(decl)
    assert [d.code for d in refused][:1] == ["HAP700"] and "own_kernels" in refused[0].help
