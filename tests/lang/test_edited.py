"""A text parsed again after each of many random changes, against the same text parsed from scratch: nodes, comments, positions, diagnostics."""

from __future__ import annotations

import random
from dataclasses import fields
from typing import Any

import pytest

from hapdsl.lang import edited as edited_module
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.edited import EditedText
from hapdsl.lang.parse import parse
from tests.lang.helpers import changed
from tests.texts import PROGRAMS

ROLLED = """\
program plan for gpt(layers = 24,
                     batch = 8) on box {  # a header over two lines
    shares batch = [4, 4]
    # what goes forward

    forward {
        tokens@R = input()
        repeat layer in 0..24 {  # every layer
            .a@S(0) = relu(.x@S(0))  # one
            # two

            .b@(S(0), R) = matmul(.a@S(0),
                                  .w@R)   # over two lines

            .next.x@S(0) = add(.a@S(0), .b@S(0)); free .a@S(0)
        }
        # the end of forward
    }
    backward { loss.grad@R = seed() }
    update {
        repeat layer in reverse 0..24 {
        }
        w.new@R = sgd(w@R, w.grad@R, lr = 0.1)

        # last
    }
}

program other for gpt { pin h @ ?; ... }
"""


def texts() -> dict[str, str]:
    plans = {name: (PROGRAMS / "plans" / f"{name}.hap").read_text(encoding="utf-8") for name in ("mesh", "mlp_zero")}
    return {"rolled": ROLLED, **plans}


def exact(value: Any) -> Any:
    """A tree as plain tuples with every position and every comment: what `==` of nodes leaves out."""
    if isinstance(value, nodes.Node):
        return (type(value).__name__, *[(f.name, exact(getattr(value, f.name))) for f in fields(value)])
    return tuple(map(exact, value)) if isinstance(value, tuple) else value


@pytest.mark.parametrize("name", texts())
def test_every_change_reads_as_from_scratch(name: str) -> None:
    text, draw = texts()[name], random.Random(name)
    edited = EditedText("edited.hap")
    pieces = 0
    for _ in range(70):
        try:
            whole, problems = parse(text, "edited.hap"), None
        except HapError as stop:
            whole, problems = None, stop.diagnostics
        before = edited.tree
        try:
            found = edited.parse(text)
        except HapError as stop:
            assert stop.diagnostics == problems, text
            text = texts()[name] if draw.random() < 0.6 else changed(text, draw)
            continue
        assert whole is not None, (problems, text)
        assert exact(found) == exact(whole), text
        pieces += (
            before is not None
            and found is not before
            and any(a is b for a, b in zip(found.items, before.items, strict=False))
        )
        _moved_right(before, found, edited.moved)
        text = changed(text, draw)
    assert pieces >= 8


def _moved_right(before: nodes.File | None, now: nodes.File, moved: dict[int, nodes.Statement]) -> None:
    """What is said to have moved is in the new tree, says the same, and was in the old one."""
    old = {id(s): s for s in _statements(before.items)} if before is not None else {}
    new = {id(s) for s in _statements(now.items)}
    for key, statement in moved.items():
        assert old[key] == statement and id(statement) in new


def _statements(body: tuple[Any, ...]) -> list[nodes.Statement]:
    found: list[nodes.Statement] = []
    for statement in body:
        found.append(statement)
        if isinstance(statement, nodes.Program | nodes.Section | nodes.Turns | nodes.Microbatch):
            found += _statements(statement.body)
    return found


def test_only_the_piece_around_a_change_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = edited_module.parse_with_braces
    monkeypatch.setattr(
        edited_module, "parse_with_braces", lambda text, file: (seen.append(text.count("\n") + 1), real(text, file))[1]
    )
    edited = EditedText("edited.hap")
    lines = ROLLED.split("\n")
    edited.parse(ROLLED)
    one = next(k for k, line in enumerate(lines) if "# one" in line)
    for text in (
        ROLLED.replace("relu(.x@S(0))", "gelu(.x@S(0))"),
        ROLLED,
        "\n".join([*lines[:one], "            # above", *lines[one:]]),
        ROLLED,
    ):
        edited.parse(text)
    assert seen[0] == len(lines)
    assert max(seen[1:]) <= 10, seen
    with pytest.raises(HapError):
        edited.parse(ROLLED.replace("relu(.x@S(0))", "relu(.x@)"))
    assert max(seen[1:]) <= 10, "a fault within a line needs no whole parse"
