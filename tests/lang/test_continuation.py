"""A line that ends in a comma goes on in the next; the printer uses that where the left side alone is too long."""

from __future__ import annotations

import pytest

from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.layout import WIDTH
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text
from tests.texts import program_in


def line(text: str) -> nodes.Statement:
    program = program_in(f"program p for m {{\n{text}\n}}\n")
    (statement,) = program.body
    return statement


@pytest.mark.parametrize(
    "broken",
    [
        "a@R,\n b@R = all_reduce(a@P, b@P)",
        "a@R,   # a comment between\n b@R = all_reduce(a@P, b@P)",
        "a@R,\n\n\n b@R = all_reduce(a@P,\n b@P)",
        "a@R, b@R = all_reduce(a@P, b@P,\n)",
    ],
)
def test_behind_a_comma_a_line_goes_on(broken: str) -> None:
    found, straight = line(broken), line("a@R, b@R = all_reduce(a@P, b@P)")
    assert isinstance(found, nodes.Line) and isinstance(straight, nodes.Line)
    assert (found.outputs, found.args) == (straight.outputs, straight.args)


def test_a_semicolon_ends_it_all_the_same() -> None:
    with pytest.raises(HapError):
        line("a@R,; b@R = all_reduce(a@P, b@P)")


@pytest.mark.parametrize(
    "text", ["model m { output z,\n}", "model m {\n    output z,", "program p for m { free a@R,\n}"]
)
def test_a_comma_at_the_end_of_a_list_has_a_place(text: str) -> None:
    with pytest.raises(HapError) as stop:
        parse(text)
    (found,) = stop.value.diagnostics
    assert found.span.line >= 1 and found.span.column >= 1


def test_long_left_sides_are_folded() -> None:
    names = [f"layer.{k}.block.weight.grad" for k in range(30)]
    outputs, inputs = ", ".join(f"{n}@R" for n in names), ", ".join(f"{n}@P" for n in names)
    for text in (f"{outputs} = all_reduce({inputs})", f"{outputs} = state()", f"free {outputs}"):
        tree = parse(f"program p for m {{\n{text}  # why\n}}\n")
        shown = to_text(tree)
        assert max(map(len, shown.splitlines())) <= WIDTH
        assert parse(shown) == tree
        assert to_text(parse(shown)) == shown
