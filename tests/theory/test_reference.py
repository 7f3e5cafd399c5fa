"""The reference of the theory: the page is what the declarations give, and its rules are those that calls have."""

from __future__ import annotations

import pytest

from hapdsl.cli import main
from hapdsl.run.samples import samples
from hapdsl.theory.instance import Given, Instance
from hapdsl.theory.instantiate import instantiate
from hapdsl.theory.library import standard
from hapdsl.theory.ops import OpDecl
from hapdsl.theory.placements import Placement
from hapdsl.theory.reference import Row, entries, page, rows
from hapdsl.theory.rules import Rule, rules
from tests.texts import REPOSITORY

PAGE = REPOSITORY / "docs" / "theory.md"


def test_the_page_is_what_the_declarations_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make theory`"


def test_every_operator_says_what_it_means_and_what_computes_it() -> None:
    for name, entry in entries().items():
        assert entry.meaning, name
        assert {"flops", "bytes", "gradient", "kernel"} <= {fact for fact, _ in entry.facts}, name


def test_an_entry_by_hand() -> None:
    found = entries()["conv2d"]
    assert [(r.says, r.operands, r.outputs) for r in found.rules] == [
        ("whole", ("R", "R"), ("R",)),
        ("cut n", ("S(n)", "R"), ("S(n)",)),
        ("cut groups", ("S(groups)", "S(groups)"), ("S(groups)",)),
        ("cut c, where groups = 1", ("S(c)", "S(c)"), ("P",)),
        ("cut o, where groups = 1", ("R", "S(o)"), ("S(o)",)),
        ("partial sums", ("P", "R"), ("P",)),
        ("partial sums", ("R", "P"), ("P",)),
    ]
    assert "groups = 1" in dict(found.facts)["attributes"]


def _calls(decl: OpDecl) -> list[Instance]:
    """Calls of floats, integers where the declaration wants some."""
    wanted = {n: "i64" if v == "int" else "f32" for n, v in decl.dtypes.items()}
    return [
        instantiate(decl, [Given(n, s, wanted.get(n, "f32")) for n, s in sample.operands], sample.attributes)
        for sample in samples(decl)
        if not sample.tentative
    ]


def _of_call(instance: Instance, rule: Rule) -> Row:
    """A rule of a call, written by indices as the reference does."""
    decl = instance.decl
    index = rule.index or ""
    name, _, number = index.rpartition(".")
    star = f"*{name}" if number.isdigit() and name in instance.stars else index

    def placed(placement: Placement) -> str:
        return f"S({star})" if placement.kind == "S" else placement.kind

    given = {g.operand: placed(p) for g, p in zip(instance.given, rule.inputs, strict=True)}
    return Row(star, tuple(given.get(o.name, "?") for o in decl.operands), tuple(map(placed, rule.outputs)))


@pytest.mark.parametrize("name", [n for n, d in standard().items() if not d.notation])
def test_its_rules_are_those_of_calls(name: str) -> None:
    """Each rule of a call stands in the table, and each of the table's rules without a condition is one of some call."""
    decl = standard()[name]
    table = {(r.cut, r.operands, r.outputs): r for r in rows(decl)}
    seen = set()
    for instance in _calls(decl):
        for rule in rules(instance):
            row = _of_call(instance, rule)
            fits = [
                key
                for key in table
                if key[0] == row.cut
                and key[2] == row.outputs
                and all(a in (b, "?") for a, b in zip(row.operands, key[1], strict=True))
            ]
            assert fits, f"{row} is no row of {name}"
            seen.update(fits)
    assert {key for key, r in table.items() if not r.where} <= seen


def test_an_entry_at_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "matmul"]) == 0
    shown = capsys.readouterr().out
    lines = [line.split() for line in shown.split("\n")]
    assert "cut k S(k) S(k) -> P".split() in lines and "flops 2 * b * m * k * n".split() in lines
    assert main(["explain", "matmull"]) == 2
    assert "close to it: matmul" in capsys.readouterr().err
