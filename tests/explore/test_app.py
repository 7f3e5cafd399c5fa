"""What a person does in the explorer, key by key."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from textual.command import CommandPalette
from textual.widgets import Input, OptionList

from hapdsl.explore.actions import ACTIONS
from hapdsl.explore.app import ExploreApp
from hapdsl.explore.describe import describe
from hapdsl.explore.palette import ActionProvider
from hapdsl.explore.widgets.dialogs import Help, Question, help_rows
from hapdsl.explore.widgets.plans import PlanList
from hapdsl.explore.workers import Object
from hapdsl.workbench import Workbench

from .conftest import GATHER, MULTIPLY, Local, on_screen, opened, prices, run, settled


def detail(app: ExploreApp) -> str:
    return "".join(
        words for words, _ in describe(app.session.document, app.session.plan, app.editor.cursor_location[0] + 1)
    )


def test_opens_on_the_first_program_with_its_cost(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, _):
            bench = Workbench(small)
            _, _, cost = bench.cost(bench.program("mixed"))
            assert app.session.current == ("file", "mixed")
            assert app.editor.cursor_location[0] + 1 == bench.program("mixed").span.line
            costs, old = app.session.document.costs()
            assert not old
            assert sum(c.seconds for c in costs.values()) == pytest.approx(
                sum(float(s.max()) for s in cost.per_instruction_s)
            )
            rows = app.session.rows()
            assert [(r.plan.program, r.state) for r in rows] == [("mixed", "proven"), ("open", "sketch")]
            assert rows[0].seconds == pytest.approx(cost.sync_s) and rows[1].seconds is None
            seen = on_screen(app)
            step, lines = prices(small)
            assert all(words in seen for words in (step, lines[GATHER], "✓ mixed", "~ open"))

    run(work())


def test_moving_in_the_list_shows_plans(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            await pilot.press("escape", "down")
            await settled(app, pilot, lambda: app.session.current == ("file", "open"))
            assert app.editor.document.get_line(app.editor.cursor_location[0]).startswith("program open")
            await pilot.press("f2")
            await settled(app, pilot, lambda: app.session.current == ("file", "mixed"))
            await pilot.press("f2")
            await settled(app, pilot, lambda: app.session.current == ("file", "open"))
            assert app.query_one(PlanList).highlighted == 1
            await pilot.press("2")
            assert app.focused is app.editor
            await pilot.press("escape", "3")
            assert app.focused is app.query_one("#detail")

    run(work())


def test_a_broken_line_says_so_and_keeps_the_last_cost(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            before = app.session.document.costs()[0]
            app.editor.go_to(MULTIPLY, 12)
            await pilot.press("enter", "x")  # two broken lines where one was
            await settled(app, pilot)
            document = app.session.document
            assert any(f.is_error and f.line in (MULTIPLY, MULTIPLY + 1) for f in document.findings)
            costs, old = document.costs()
            assert set(costs) == old and costs  # remembered, and shown as such
            assert costs[27] == before[27] and costs[33] == before[32] and MULTIPLY not in costs
            await pilot.press("escape", "n")
            await settled(app, pilot)
            shown = detail(app)
            found = next(f for f in document.findings if f.is_error)
            assert found.code in shown and found.message in shown
            assert found.code in on_screen(app) and prices(small)[1][GATHER] in on_screen(app)
            assert app.session.rows()[0].old
            app.editor.undo()
            app.editor.undo()
            await settled(app, pilot)
            assert app.session.document.costs() == (before, set())
            assert not [f for f in app.session.document.findings if f.is_error]
            assert not app.session.rows()[0].old

    run(work())


def test_a_line_that_parses_but_does_not_hold(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            line = app.editor.document.get_line(MULTIPLY - 1)
            app.editor.replace(line.replace("w2@R", "w2@S(0)"), (MULTIPLY - 1, 0), (MULTIPLY - 1, len(line)))
            app.editor.go_to(MULTIPLY)
            await settled(app, pilot)
            (found,) = [f for f in app.session.document.findings if f.is_error]
            assert found.line == MULTIPLY and app.session.rows()[0].state == "wrong"
            assert found.code in detail(app) and found.message in detail(app)
            assert any(
                f"✗ {found.message}"[:14] in row and row.startswith(f"{MULTIPLY} ")
                for row in on_screen(app).split("\n")
            )

    run(work())


def test_a_better_price_follows_the_edit(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            text = app.editor.text.replace("method = grouped", "method = padded")
            app.editor.put(text)
            await settled(app, pilot)
            bench = Workbench(small, text)
            assert app.session.rows()[0].seconds == pytest.approx(bench.cost(bench.program("mixed"))[2].sync_s)

    run(work())


def test_answers_to_older_versions_are_dropped(small: Path) -> None:
    class Slow(Local):
        held: ClassVar[list[Object]] = []

        def ask(self, request: Object) -> None:
            Slow.held.append(request)

    async def work() -> None:
        Slow.held.clear()
        async with opened(small) as (app, pilot):
            quick = app.work.checker
            app.work.checker = slow = Slow(app.work.checker.answered, app.work.checker.died)
            app.editor.go_to(1, 1)
            await pilot.press("#")
            await pilot.pause(0.1)
            await pilot.press("#")
            await pilot.pause(0.1)
            (first,) = Slow.held  # one at a time: the second waits
            version = app.session.document.version
            slow.answered({"id": first["id"], "analysis": {"findings": [], "programs": []}, "done": True})
            await pilot.pause(0.1)
            assert app.session.rows()[0].seconds is not None  # that there are no programs was about an older text
            assert app.session.document.version == version and app.session.document.checking
            assert [r["text"] for r in Slow.held[1:]] == [app.editor.text]
            app.work.checker = quick
            quick.ask(Slow.held[-1])
            await settled(app, pilot)

    run(work())


def test_every_action_has_a_method_and_no_key_twice() -> None:
    keys = [k for a in ACTIONS for k in (*a.keys, *a.plain)]
    assert len(keys) == len(set(keys)) and len({a.name for a in ACTIONS}) == len(ACTIONS)
    for action in ACTIONS:
        assert hasattr(ExploreApp, f"action_{action.name}"), action.name


def test_palette_lists_all_actions_and_runs_them(small: Path) -> None:
    async def work() -> None:
        async with opened(small, size=(100, 60)) as (app, pilot):
            hits = [hit async for hit in ActionProvider(app.screen).discover()]
            assert {str(h.text) for h in hits} == {a.title for a in ACTIONS if a.name != "palette"}
            await pilot.press("ctrl+p")
            await settled(app, pilot, lambda: isinstance(app.screen, CommandPalette))
            listed = app.screen.query_one(OptionList)
            await settled(app, pilot, lambda: listed.option_count == len(ACTIONS) - 1)
            app.screen.query_one(Input).value = "light or dark"
            await pilot.pause(0.4)
            dark = app.current_theme.dark
            await pilot.press("enter", "enter")
            await settled(app, pilot, lambda: app.current_theme.dark != dark)

    run(work())


def test_help_lists_all_keys(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            await pilot.press("f1")
            await settled(app, pilot, lambda: isinstance(app.screen, Help))
            await pilot.press("escape")
            await settled(app, pilot, lambda: not isinstance(app.screen, Help))
            await pilot.press("escape", "?")
            await settled(app, pilot, lambda: isinstance(app.screen, Help))

    run(work())
    rows = list(help_rows())
    for action in ACTIONS:
        (keys,) = [k for k, words in rows if words.startswith(f"{action.title}: ")]
        assert keys == (action.shown_keys or "(palette)")


def test_plain_keys_are_typed_in_the_editor(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            app.editor.go_to(1, 1)
            await pilot.press("q", "p", "1", "question_mark", "colon")
            assert app.editor.document.get_line(0).startswith("qp1?:")
            assert not isinstance(app.screen, Help) and not app.work.searching
            await settled(app, pilot)

    run(work())


def test_brackets_are_shown_as_they_are(small: Path) -> None:
    bad = "[/x] [bold]z[/bold] f32[b, s] [@click=app.quit]"

    async def work() -> None:
        async with opened(small) as (app, pilot):
            app.editor.put(app.editor.text.replace("program open", f"program open{bad}"))
            app.editor.go_to(54)
            for size in ((80, 24), (160, 50), (20, 5)):
                await pilot.resize_terminal(*size)
                app.action_toggle_dark()
                app.tell(bad)
                await settled(app, pilot)
                if size == (160, 50):
                    assert f"program open{bad}"[:50] in on_screen(app)
            assert "[/x] [bold] f32[b, s]" in app.editor.text
            await pilot.press("ctrl+q")
            await settled(app, pilot, lambda: isinstance(app.screen, Question))

    run(work())


@pytest.mark.parametrize(
    "text", ["", "\n", "model", "#" * 5000, "\t\x00\x01[/]\n", "program p for m { " * 60], ids=range(6)
)
def test_any_text_can_be_open(tmp_path: Path, text: str) -> None:
    file = tmp_path / "odd[b].hap"
    file.write_text(text)

    async def work() -> None:
        async with opened(file, search=True) as (app, pilot):
            await settled(app, pilot, lambda: not app.work.searching)
            assert any(f.is_error for f in app.session.document.findings) or not text.strip("#\n")
            await pilot.press("ctrl+end", "a", "enter")
            await settled(app, pilot)
            assert "odd[b].hap" in on_screen(app)

    run(work())


def test_a_text_does_not_speak_to_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "odd.hap"
    file.write_text("# \x1b[2J\x9b2J\x07\nmodel \x1b]0;m {\n}\n", encoding="utf-8")

    async def work() -> None:
        async with opened(file) as (app, pilot):
            app.editor.go_to(2)
            app.tell("\x1b[2J")
            await settled(app, pilot)
            seen = on_screen(app)
            assert "# ␛[2J�2J␇" in seen and not set("\x1b\x9b\x07") & set(seen)
            assert app.session.main.findings and app.editor.text == file.read_text(encoding="utf-8")

    run(work())
