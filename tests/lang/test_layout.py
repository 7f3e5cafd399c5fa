"""What the formatter changes and what it leaves: pairs of texts, before and after."""

from __future__ import annotations

import textwrap

import pytest

from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text

CASES = {
    "blanks": (
        "model m(d=4,e = 5){\ninput   x:f32[d,e]\ny=f( x,k=-3 )as z\n}",
        "model m(d = 4, e = 5) {\n    input x : f32[d, e]\n    y = f(x, k = -3) as z\n}\n",
    ),
    "parentheses": (
        "model m { x = ((a)) - (b - c) * (d * e) + (f / g) }",
        "model m { x = a - (b - c) * (d * e) + f / g }\n",
    ),
    "numbers": (
        "model m { x = [0.10, 1e-05, 100000000000000000000.0, 007, 1E3] }",
        "model m { x = [0.1, 1e-05, 1e+20, 7, 1000.0] }\n",
    ),
    "one blank line": (
        "\n\nmodel m {\n\n    x = f()\n\n\n    y = g()\n\n}\n\n\nmodel n { }\n\n",
        "model m {\n    x = f()\n\n    y = g()\n}\n\nmodel n { }\n",
    ),
    "lines of a program align": (
        "program p for m {\nh@S(0) = f(x@R)\nz@R = g()\n\nlabel@S(0) = input()\nw.grad.of.all@S(0) = k()\n}",
        "program p for m {\n    h@S(0) = f(x@R)\n    z@R    = g()\n\n    label@S(0) = input()\n    w.grad.of.all@S(0) = k()\n}\n",
    ),
    "an alignment that the author chose stays": (
        "program p for m {\n    h@S(0)   = f(x@R)\n    z@R      = g()\n}\n",
        "program p for m {\n    h@S(0)   = f(x@R)\n    z@R      = g()\n}\n",
    ),
    "a broken alignment is mended": (
        "program p for m {\n    h@S(0)   = f(x@R)\n    z@R   = g()\n}\n",
        "program p for m {\n    h@S(0) = f(x@R)\n    z@R    = g()\n}\n",
    ),
    "models align only on request": (
        "model m {\n    long = f()\n    x = g()\n\n    long = f()\n    x    = g()\n}\n",
        "model m {\n    long = f()\n    x = g()\n\n    long = f()\n    x    = g()\n}\n",
    ),
    "declarations": (
        "def f() {\nparam w : f32[d, e] init zeros\nparam bias : f32[e] init ones\nbuffer a.long.name : f32[]\n}\n",
        "def f() {\n    param w    : f32[d, e] init zeros\n    param bias : f32[e]    init ones\n    buffer a.long.name : f32[]\n}\n",
    ),
    "operators": (
        "op f(attr a=1,x[*b,( h e )]) -> [*b] {\nsum h\nlinear (x)\nflops 2*b\n}",
        "op f(x[*b, (h e)], attr a = 1) -> [*b] {\n    sum    h\n    linear x\n    flops  2 * b\n}\n",
    ),
    "settings": (
        "cluster c {\ndevice a {\n  compute = { f32 = 1 TFLOP/s,\n    f16 = 2TFLOP/s }, memory=16GiB\n}\nnode n = 2*a over{ bandwidth=1 GB/s }\n}",
        "cluster c {\n    device a { compute = { f32 = 1 TFLOP/s, f16 = 2 TFLOP/s }, memory = 16 GiB }\n    node n = 2 * a over { bandwidth = 1 GB/s }\n}\n",
    ),
    "semicolons": (
        "model m {\n    x = f(); y = g();;\n}\nop g() -> [] { sum a; whole b }\n",
        "model m {\n    x = f()\n    y = g()\n}\nop g() -> [] { sum a; whole b }\n",
    ),
    "comments": (
        "#one\n\n\n# two\nmodel m { # behind the brace\n  # above\n\n  x = f(# inside\n    y)# behind\n  # last\n} # behind the end\n# end",
        "# one\n\n# two\nmodel m {  # behind the brace\n    # above\n\n    # inside\n    x = f(y)  # behind\n    # last\n    # behind the end\n}\n# end\n",
    ),
    "comments behind neighbours align": (
        "program p for m {\nz@S(1) = f(x@R, w@?) # a\npin w @ S(1) # b\n... # c\n}",
        "program p for m {\n    z@S(1) = f(x@R, w@?)  # a\n    pin w @ S(1)          # b\n    ...                   # c\n}\n",
    ),
    "a comment opens a block that was on one line": (
        "model m { x = f() # why\n}\n",
        "model m {\n    x = f()  # why\n}\n",
    ),
    "long lines break inside brackets": (
        "model m { x = f(" + ", ".join(f"operand_number_{i}" for i in range(12)) + ", g([" + ", ".join(map(str, range(40))) + "])) }",
        "model m {\n    x = f(\n        "
        + ", ".join(f"operand_number_{i}" for i in range(7)) + ",\n        "
        + ", ".join(f"operand_number_{i}" for i in range(7, 12)) + ",\n        g(\n            [\n                "
        + ", ".join(map(str, range(33))) + ",\n                "
        + ", ".join(map(str, range(33, 40))) + "\n            ]\n        )\n    )\n}\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_before_and_after(name):
    before, after = CASES[name]
    assert to_text(parse(before)) == after
    assert to_text(parse(after)) == after


def test_statements_and_expressions_print_alone():
    (model,) = parse(
        "model m {\n    # why\n    x = f(1 + 2 * -y)\n    repeat i in 3 {\n        y = x\n    }\n}\n"
    ).items
    assign, repeat = model.body
    assert to_text(assign) == "# why\nx = f(1 + 2 * -y)"
    assert to_text(assign.value) == "f(1 + 2 * -y)"
    assert to_text(repeat) == "repeat i in 3 {\n    y = x\n}"
    assert to_text(model) == textwrap.dedent(to_text(model))


def test_what_is_no_part_of_the_tree_is_refused():
    with pytest.raises(TypeError):
        to_text("model m { }")
