"""Going about in a text: searching, definitions, uses, fixes, layers rolled and unrolled."""

from __future__ import annotations

from pathlib import Path

import pytest

from hapdsl.explore.names import definition, fix_of, name_at, uses
from hapdsl.explore.state import Finding, Priced
from hapdsl.lang.resources import programs_folder
from hapdsl.workbench import Workbench

from .conftest import on_screen, opened, run, settled

PLANS = programs_folder() / "plans"


def test_searching(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            app.editor.go_to(1)
            await pilot.press("escape", "slash", *"relu")
            await settled(app, pilot)
            assert app.editor.selected_text == "relu" and app.editor.selection.start[0] + 1 == 10
            assert "3 places" in on_screen(app)
            await pilot.press("enter")
            await settled(app, pilot, lambda: app.focused is app.editor)
            await pilot.press("escape", "n")
            assert app.editor.selection.start[0] + 1 == 30
            await pilot.press("n", "n")
            assert app.editor.selection.start[0] + 1 == 10
            await pilot.press("N")
            assert app.editor.selection.start[0] + 1 == 40
            await pilot.press("slash", *"zzz")
            await settled(app, pilot)
            assert "0 places" in on_screen(app)
            await pilot.press("escape")
            await settled(app, pilot, lambda: app.focused is app.editor)
            assert app.editor.cursor_location[0] + 1 == 40 and app.sought == ""

    run(work())


def test_definitions_uses_and_back(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            row = app.editor.document.get_line(30)
            app.editor.go_to(31, row.index("h@S(0)") + 1)
            await pilot.press("f12")
            assert app.editor.cursor_location[0] + 1 == 30  # where h is made
            await settled(app, pilot, lambda: app.line_facts is not None and app.line_facts[0][3] == 30)
            await pilot.press("f12")
            assert app.editor.cursor_location[0] + 1 == 10  # h = relu(a) of the model
            await pilot.press("f11", "f11")
            assert app.editor.cursor_location[0] + 1 == 31
            await pilot.press("shift+f12")
            assert app.editor.cursor_location[0] + 1 == 37
            app.editor.go_to(1)
            await pilot.press("f12")
            assert any("no name under the cursor" in n.message for n in app._notifications)

    run(work())


def test_names_without_a_parser() -> None:
    text = "model m(d = 4) {\n    param w : f32[d]\n    u = matmul(x, w)  # w in words\n}\nprogram p for m {\n    w@R = param()\n    u@R = matmul(x@R, w@R)\n}\n"
    program = Priced("p", "m", None, 5, 8)
    assert name_at("    u@R = matmul(x@R, .w.grad@R)", 23) == ".w.grad" and name_at("# w", 2) == ""
    assert definition(text, "w", 7, program) == (6, 5) and definition(text, "w", 3, None) == (2, 11)
    assert definition(text, "m", 5, program) == (1, 7) and definition(text, "none", 7, program) is None
    assert uses(text, "w", 7, program) == [(6, 5), (7, 23)] and uses(text, "w", 3, None)[:2] == [(2, 11), (3, 19)]
    fix = fix_of(
        Finding("HAP511", "error", "there is no 'wq' here", "did you mean 'w'?", line=1, column=1), "u = f(wq)"
    )
    assert fix is not None and (fix.start, fix.end, fix.text) == (6, 8, "w")
    word = Finding("HAP114", "error", "a file has no statement `modle`", "did you mean 'model'?", line=1, column=1)
    fix = fix_of(word, "modle m {")
    assert fix is not None and (fix.start, fix.end, fix.text) == (0, 5, "model")
    assert fix_of(Finding("HAP511", "error", "no", "write it"), "u") is None


def test_a_fix_by_one_key(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            before = app.editor.text
            app.editor.put(before.replace("= relu(a@S(0))", "= rleu(a@S(0))").replace("mlp on box", "mlpp on box", 1))
            await settled(app, pilot)
            wrong = [f for f in app.session.document.findings if f.is_error]
            assert wrong and "did you mean 'mlp'?" in wrong[0].help
            app.editor.go_to(wrong[0].line)
            await pilot.press("f10")
            await settled(app, pilot)
            assert "mixed for mlp on box" in app.editor.text
            app.editor.go_to(1)
            await pilot.press("f10")
            assert any("there is no fix" in n.message for n in app._notifications)

    run(work())


def test_layers_are_unrolled_and_rolled() -> None:
    file = PLANS / "rezero.hap"

    async def work() -> None:
        async with opened(file) as (app, pilot):
            seconds = app.session.rows()[0].seconds
            assert seconds is not None
            await pilot.press("ctrl+l")
            await settled(app, pilot, lambda: "repeat layer" not in app.editor.text)
            assert app.session.rows()[0].state == "proven" and app.session.rows()[0].seconds == pytest.approx(seconds)
            await pilot.press("ctrl+l")
            await settled(app, pilot, lambda: "repeat layer" in app.editor.text)
            assert app.session.rows()[0].seconds == pytest.approx(seconds)
            bench = Workbench(file, app.editor.text)
            assert bench.cost(bench.programs()[0])[2].sync_s == pytest.approx(seconds)

    run(work())


def test_letters_that_grow_when_they_are_small_move_no_places(small: Path) -> None:
    small.write_text(small.read_text().replace("# small", "# İİ small", 1))

    async def work() -> None:
        async with opened(small) as (app, pilot):
            app.editor.go_to(1)
            await pilot.press("escape", "slash", *"small")
            await settled(app, pilot, lambda: app.editor.selected_text.lower() == "small")

    run(work())
