"""The grammar as such: no conflicts, a method for each rule, and speed."""

from __future__ import annotations

import gc
import threading
import time

import pytest

from hapdsl.lang import nodes
from hapdsl.lang.build import Builder
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.expected import BLOCKS, STATEMENTS
from hapdsl.lang.nodes import Span
from hapdsl.lang.parse import parse, parser


def test_lalr_without_any_conflict():
    """`strict` refuses shift/reduce conflicts, and terminals that overlap (interegular looks for them)."""
    import interegular  # noqa: F401 (without it lark would not look)

    lark, _ = parser(strict=True)
    assert lark.options.strict


def test_every_rule_has_a_method():
    lark, _ = parser()
    rules = {str(r.alias or r.options.template_source or r.origin.name) for r in lark.rules}
    made = {r for r in rules if not r.startswith("_")}
    assert {r for r in made if not callable(getattr(Builder, r, None))} == set()


def test_the_lists_of_statements_are_those_of_the_grammar():
    """The words that hints offer, against what the parser takes at the start of a statement."""
    for place, words in {**STATEMENTS, "": BLOCKS}.items():
        header = {"def": "def f() {\n", "op": "op f() -> [] {\n", "program": "program p for m {\n", "": ""}
        with pytest.raises(HapError) as caught:
            parse(header.get(place, f"{place} c {{\n") + "zzzz {\n}\n")
        if place in ("cluster", ""):
            assert f"a {place or 'file'} holds: {', '.join(words)}" == caught.value.diagnostics[0].help
        for word in words:
            with pytest.raises(HapError) as caught:
                parse(header.get(place, f"{place} c {{\n") + f"{word}zz {{\n}}\n")
            assert f"did you mean '{word}'?" == caught.value.diagnostics[0].help


def test_three_thousand_lines_in_a_second():
    line = "    w1.new@S(1), w1.m.new@S(1), w1.v.new@S(1) = adam(w1@S(1), w1.grad@S(1), w1.m@S(1), w1.v@S(1))\n"
    short = "    h@S(0) = relu(a@S(0))  # a comment\n"
    text = "program p for m {\n" + (line + short * 4) * 600 + "}\n"
    assert text.count("\n") == 3002
    parser()
    gc.collect()
    gc.freeze()  # what other tests left isn't the parser's to look through
    start = time.process_time()
    parse(text)
    taken = time.process_time() - start
    gc.unfreeze()
    assert taken < 1.0


def test_threads_do_not_mix_their_texts():
    found = {}

    def work(name):
        for _ in range(20):
            tree = parse(f"model {name} {{\n" + "    x = f(y)\n" * 50 + "}\n", name)
            found.setdefault(name, set()).add((tree.items[0].name, tree.items[0].span.file))

    threads = [threading.Thread(target=work, args=(f"m{i}",)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {f"m{i}": {(f"m{i}", f"m{i}")} for i in range(4)}


def test_spans_cut_the_text_of_each_node():
    text = (
        "program p for m(a = 1) on c {\n"
        "    h@S(0), b@(R, P) = f(x@R, k = [1, 2])  # c\n"
        "    repeat layer in reverse 0..3 { .x@R = g() }\n"
        "}\n"
        "op f(*x[*b, (h e)], attr s = -1) -> y[b] {\n"
        "    grad x = f(y.grad, 2 * (3 - b)), (y, z) = g()\n"
        "}\n"
        "cluster c { node n = 2 * a virtual, 3 * b over { bandwidth = 1 GB/s }; device d { x = { y = -1 us } } }\n"
    )
    shown = {type(node).__name__: _cut(text, node.span) for node in _all(parse(text))}
    assert shown["Line"] == ".x@R = g()"
    assert shown["Turns"] == "repeat layer in reverse 0..3 { .x@R = g() }"
    assert shown["Operand"] == "*x[*b, (h e)]"
    assert shown["Attribute"] == "attr s = -1"
    assert shown["Result"] == "y[b]"
    (unnamed,) = parse("op f(x[i]) -> [i] { flops i }").items[0].results
    assert _cut("op f(x[i]) -> [i] { flops i }", unnamed.span) == "[i]"
    assert shown["Rule"] == "(y, z) = g()"
    assert shown["Grad"] == "grad x = f(y.grad, 2 * (3 - b)), (y, z) = g()"
    assert shown["Part"] == "3 * b"
    assert shown["HostNode"] == "node n = 2 * a virtual, 3 * b over { bandwidth = 1 GB/s }"
    assert shown["Device"] == "device d { x = { y = -1 us } }"
    assert shown["Quantity"] == "-1 us"
    assert shown["Program"].startswith("program p for m(a = 1) on c {") and shown["Program"].endswith("}")


def _all(node):
    yield node
    for name in node.__dataclass_fields__:
        value = getattr(node, name)
        for child in value if isinstance(value, tuple) else (value,):
            if isinstance(child, nodes.Node):
                yield from _all(child)


def _cut(text: str, span: Span) -> str:
    lines = text.split("\n")[span.line - 1 : span.end_line]
    lines[-1] = lines[-1][: span.end_column - 1]
    lines[0] = lines[0][span.column - 1 :]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 0 .. 3", None),
        ("x = a.3.b", nodes.Name("a.3.b")),
        ("x = 0.5", nodes.Number(0.5)),
        ("x = 1e3", nodes.Number(1000.0)),
        ("x = 12", nodes.Number(12)),
        ("x = -12", nodes.Number(-12)),
        (f"x = {'0' * 5000}12", nodes.Number(12)),
        ("x = 1 - -2 * 3", nodes.Binary("-", nodes.Number(1), nodes.Binary("*", nodes.Number(-2), nodes.Number(3)))),
        ("x = a // b / c", nodes.Binary("/", nodes.Binary("//", nodes.Name("a"), nodes.Name("b")), nodes.Name("c"))),
        ("x = a - (b - c)", nodes.Binary("-", nodes.Name("a"), nodes.Binary("-", nodes.Name("b"), nodes.Name("c")))),
        ("x = input(param, free = repeat)", nodes.Call("input", (nodes.Arg(None, nodes.Name("param")), nodes.Arg("free", nodes.Name("repeat"))))),
        ('x = "a # b"', nodes.Text("a # b")),
        ('x = "a\\"\\\\\\n"', nodes.Text('a"\\\n')),
        ("x = true", nodes.Bool(True)),
        ("x = truth", nodes.Name("truth")),
        ("x = [a, [b], ]", nodes.Items((nodes.Name("a"), nodes.Items((nodes.Name("b"),))))),
    ],
)  # fmt: skip
def test_expressions(text, expected):
    source = f"model m {{\n    {text}\n}}\n"
    if expected is None:
        with pytest.raises(HapError):
            parse(source)
    else:
        assert parse(source).items[0].body[0].value == expected


@pytest.mark.parametrize(
    "text",
    [
        "op f() -> [] { sumk }", "op f() -> [] { atk = 3 }", "modelx { x = f() }", "model m { param w : f32[] initzeros }",
        "cluster c { network 2 * a virtualx }", "program p forgpt { ... }", "model m { x = 3 asy }", "cluster c { devicex { } }",
        "program p for m { pinw @ R }", "program p for m { a@S1(0) = f() }", "model m { repeat l inx { } }",
    ],
)  # fmt: skip
def test_a_keyword_is_a_whole_word(text):
    with pytest.raises(HapError):
        parse(text)
