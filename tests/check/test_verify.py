"""The verifier's decisions one by one: what a sketch may leave open, where lines belong, what stays at hand, what the goal is."""

from __future__ import annotations

from pathlib import Path

import pytest

from hapdsl.check import lines
from hapdsl.check.findings import MOST_ERRORS
from hapdsl.check.verify import Checked, verify
from hapdsl.check.write import write
from hapdsl.graph.program import COLLECTIVES, LOADS, LOCAL
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.load import load_text
from hapdsl.theory.ops import RESERVED
from hapdsl.theory.placements import R, S
from hapdsl.workbench import Workbench

SUPPORT = Path(__file__).parents[1] / "diagnostics" / "support"
PAIR = SUPPORT / "pair.hap"
STACK = SUPPORT / "stack.hap"

FORWARD = """
        x@S(0), label@S(0) = input()
        w1@R, b1@R, w2@R, row@R = param()
        u@S(0) = matmul(x@S(0), w1@R)
        a@S(0) = add(u@S(0), b1@R)
        m@S(0) = mul(a@S(0), row@R)
        h@S(0) = relu(m@S(0))
        z@S(0) = matmul(h@S(0), w2@R)
        loss@P = cross_entropy(z@S(0), label@S(0))
"""
BACKWARD = """
        loss.grad@R = seed()
        z.grad@S(0) = cross_entropy_grad(z@S(0), label@S(0), loss.grad@R)
        h.grad@S(0) = matmul_nt(z.grad@S(0), w2@R)
        w2.grad@P   = matmul_tn(h@S(0), z.grad@S(0))
        m.grad@S(0) = relu_grad(h@S(0), h.grad@S(0))
        a.grad@S(0) = mul(m.grad@S(0), row@R)
        b1.grad@P   = sum(a.grad@S(0))
        w1.grad@P   = matmul_tn(x@S(0), a.grad@S(0))
        w1.grad@R, b1.grad@R, w2.grad@R = all_reduce(w1.grad@P, b1.grad@P, w2.grad@P)
"""
UPDATE = """
        w1.m@R, b1.m@R, w2.m@R = state()
        w1.new@R, w1.m.new@R = momentum(w1@R, w1.grad@R, w1.m@R)
        b1.new@R, b1.m.new@R = momentum(b1@R, b1.grad@R, b1.m@R)
        w2.new@R, w2.m.new@R = momentum(w2@R, w2.grad@R, w2.m@R)
"""
COMPLETE = f"shares batch = [6, 3, 3, 0]\nforward {{{FORWARD}}}\nbackward {{{BACKWARD}}}\nupdate {{{UPDATE}}}"


def pair(train: bool = True) -> TrainingGraph:
    return Workbench(PAIR).graph("pair", train=train)


def program(body: str, model: str = "pair") -> nodes.Program:
    (found,) = load_text(f"program p for {model} {{\n{body}\n}}").programs.values()
    return found


def check(body: str, graph: TrainingGraph | None = None, devices: int | None = 4) -> Checked:
    return verify(program(body), graph or pair(), devices)


def codes(checked: Checked) -> list[str]:
    return [d.code for d in checked.diagnostics]


def test_a_complete_program() -> None:
    checked = check(COMPLETE)
    assert checked.ok and not checked.sketch
    assert "batch" not in checked.free and "hidden" in checked.free
    assert [list(s[(0,)]) for c, s in checked.program.layout.shares.items() if c == "batch"] == [[6, 3, 3, 0]]


def test_words_of_programs_are_reserved() -> None:
    assert {*COLLECTIVES, *LOADS, *LOCAL, "free"} - {"slice"} == RESERVED, (
        "slice is an operator too: it keeps its tensor where it converts"
    )


# -- sections -----------------------------------------------------------------------


def test_sections_are_optional_and_lines_outside_belong_to_the_one_before() -> None:
    bare = check(f"shares batch = [6, 3, 3, 0]\n{FORWARD}{BACKWARD}{UPDATE}")
    assert bare.ok
    assert {i.section for i in bare.program.instructions} == {"forward"}
    mixed = check(
        f"shares batch = [6, 3, 3, 0]\nforward {{{FORWARD}}}\nbackward {{ loss.grad@R = seed() }}\n{BACKWARD}{UPDATE}"
    )
    assert mixed.ok
    sections = [i.section for i in mixed.program.instructions]
    assert sections == sorted(sections, key=["forward", "backward", "update"].index), (
        "written back, no line moves before another"
    )
    assert verify(write(mixed.program), pair()).ok


# -- sketches -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "sketch"),
    [
        ("...", True),
        ("forward {\n ...\n}", True),
        ("z@S(1) = matmul(h@R, w2@?)", True),
        ("z@? = matmul(h@R, w2@R)", True),
        ("z@R = matmul(h@R, ?)", True),
        ("z@R = matmul(?)", True),
        ("z@R = all_reduce(?)", True),
        ("z@R, h@R = all_gather(?, h@S(1))", True),
        ("h@S(1) = slice(?)", True),
        (COMPLETE, False),
    ],
)
def test_what_a_sketch_is(body: str, sketch: bool) -> None:
    checked = check(body)
    assert checked.sketch == sketch
    assert checked.ok, list(checked.diagnostics)


def test_a_sketch_may_say_little_but_nothing_false() -> None:
    assert codes(check("z@S(1) = matmul(h@S(1), w2@?)")) == ["HAP534"], "it gives z@P"
    assert codes(check("z@S(1) = matmul(hh@?, w2@?)")) == ["HAP510"]
    assert codes(check("z@? = gelu(h@?)")) == ["HAP530"]
    assert codes(check("w1@?, x@? = param()")) == ["HAP550"]
    assert codes(check("w1@P, b1@? = param()")) == ["HAP551"]
    assert codes(check("h@? = all_gather(h@P)")) == ["HAP542"]
    assert codes(check("h@? = all_gather(z@?)")) == ["HAP540"]
    assert codes(check("z@P = all_gather(?)")) == ["HAP542"]
    assert codes(check("z@R, h@R = all_gather(?, h@S(1), ?)")) == ["HAP540"]
    assert codes(check("z@R = all_gather(?, method = tree)")) == ["HAP543"]
    assert codes(check("z@R = gelu(?)")) == ["HAP530"]
    assert codes(check("z@R, h@R = matmul(?)")) == ["HAP531"]
    assert codes(check("w1@R = matmul(?)")) == codes(check("w1@R = param(?)")) == ["HAP530"]
    assert codes(check("h@? = all_gather(h@?)")) == []


def test_a_sketch_waits_for_what_the_search_makes() -> None:
    assert check("z@R = matmul(h@R, w2@R)\n...").ok, "h@R is made by the search"
    assert not check("z@R = matmul(h@R, w2@R)").ok


def test_lines_with_holes_are_handed_on() -> None:
    checked = check("z@S(1) = matmul(h@R, w2@?)\nu@S(0) = matmul(x@S(0), w1@R)\n...")
    (line,) = checked.open
    assert [str(v) for v in (*line.outputs, *line.inputs)] == ["z@S(1)", "h@R", "w2@?"]
    assert [i.op for i in checked.program.instructions] == ["matmul"]


def test_pins_of_sketches_are_handed_on() -> None:
    checked = check("pin w1.grad @ S(1)\npin h @ R\npin z @ ?\n...")
    assert checked.ok and checked.pins == [("w1.grad", (S(1),)), ("h", (R,))]


def test_pins_of_complete_programs_hold() -> None:
    assert check("pin h @ S(0)\n" + COMPLETE).ok
    assert codes(check("pin h @ R\n" + COMPLETE)) == ["HAP563"]


# -- values at hand --------------------------------------------------------------------


def test_a_value_may_be_made_again() -> None:
    again = COMPLETE.replace("backward {", "backward {\nh@S(0) = relu(m@S(0))\nfree h@S(0)\nh@S(0) = relu(m@S(0))")
    assert check(again).ok


def test_freed_values_are_gone_until_they_are_made_again() -> None:
    freed = COMPLETE.replace("backward {", "backward {\nfree h@S(0)")
    assert codes(check(freed))[0] == "HAP560"
    assert check(COMPLETE.replace("backward {", "backward {\nfree u@S(0), a@S(0)")).ok
    assert codes(check(COMPLETE.replace("backward {", "backward {\nfree u@R"))) == ["HAP562"]
    assert codes(check(COMPLETE.replace("backward {", "backward {\nfree u@S(0)\nfree u@S(0)"))) == ["HAP560"]


def test_what_depends_on_a_wrong_line_is_not_blamed() -> None:
    wrong = COMPLETE.replace("h@S(0) = relu(m@S(0))", "h@R = relu(m@S(0))")
    assert codes(check(wrong)) == ["HAP534"]


@pytest.mark.parametrize("what", ["loss@P", "w1.new@R", "b1.m.new@R"])
def test_the_goal_must_be_there_at_the_end(what: str) -> None:
    assert codes(check(COMPLETE + f"\nfree {what}")) == [{"loss@P": "HAP570"}.get(what, "HAP572")]


def test_an_evaluation_makes_the_outputs() -> None:
    graph = pair(train=False)
    assert check(f"shares batch = [6, 3, 3, 0]\nforward {{{FORWARD}}}", graph).ok
    assert codes(check(f"forward {{{FORWARD}}}\nfree z@S(0)", graph)) == ["HAP573"]


# -- bounds -------------------------------------------------------------------------


def test_a_program_of_too_many_lines_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINES", 5)
    graph = Workbench(STACK).graph("stack")
    checked = verify(
        program("repeat layer in 0..3 {\n.block.w@R = param()\n.block.w@R = param()\n}\n...", "stack"), graph, 2
    )
    assert codes(checked) == ["HAP519"]


def test_many_errors_are_cut_short() -> None:
    body = "\n".join(f"wrong.{k}@R = relu(h@R)" for k in range(5000))
    checked = check(body + "\n...")
    assert len(checked.diagnostics) == MOST_ERRORS + 1
    assert codes(checked)[-1] == "HAP519"


def test_a_repeat_says_it_once() -> None:
    graph = Workbench(STACK).graph("stack", {"layers": 60})
    checked = verify(program("repeat layer in 0..60 {\n.block.w@P = param()\n}\n...", "stack"), graph, 2)
    assert codes(checked) == ["HAP551"]


# -- repeats ------------------------------------------------------------------------


def test_turns_by_name_are_tensors_of_the_model() -> None:
    graph = Workbench(STACK).graph("stack")
    body = """
        shares batch = [8, 4]
        forward {
            given@S(0) = input()
            layer.0.x@S(0) = relu(given@S(0))
            repeat layer in 0..3 {
                .block.w@R = param()
                .block.matmul.1@S(0) = matmul(.x@S(0), .block.w@R)
                .next.x@S(0) = relu(.block.matmul.1@S(0))
            }
            loss@P = mse_loss(x@S(0), given@S(0))
        }
        ..."""
    checked = verify(program(body, "stack"), graph, 2)
    assert checked.ok, list(checked.diagnostics)
    made = [v.tensor for i in checked.program.instructions for v in i.outputs]
    assert "layer.2.block.w" in made and "layer.1.x" in made and "layer.3.x" not in made and "x" in made
    assert {i.repeat for i in checked.program.instructions if i.op == "param"} == {(("layer", k),) for k in range(3)}
    backwards = program(body.replace("in 0..3", "in reverse 0..3"), "stack")
    assert verify(backwards, graph, 2).ok, "a sketch: the search sees to the order"
