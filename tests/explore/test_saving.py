"""Saving, reading again, quitting: nothing that a person wrote is lost unasked."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input

from hapdsl.explore.widgets.dialogs import AskPath, Question
from hapdsl.explore.workers import Object
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text

from .conftest import MULTIPLY, Local, opened, run, settled


def test_saves_what_the_formatter_gives(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            text = app.editor.text.replace("u@S(0)       = matmul(x@S(0), w1@R)", "u@S(0) = matmul( x@S(0),w1@R )")
            app.editor.put(text)
            await settled(app, pilot)
            assert app.session.unsaved
            small.chmod(0o640)
            await pilot.press("ctrl+s")
            await settled(app, pilot, lambda: not app.session.unsaved)
            assert small.read_text() == to_text(parse(text)) == app.editor.text
            assert small.stat().st_mode & 0o777 == 0o640
            assert list(small.parent.iterdir()) == [small]
            app.editor.undo()
            await settled(app, pilot)
            assert app.editor.text == text  # formatting is an edit like others

    run(work())


def test_saving_what_does_not_parse_asks(small: Path) -> None:
    async def work() -> None:
        original = small.read_text()
        async with opened(small) as (app, pilot):
            app.editor.go_to(MULTIPLY, 9)
            await pilot.press("(")
            await settled(app, pilot)
            await pilot.press("ctrl+s")
            await settled(app, pilot, lambda: isinstance(app.screen, Question))
            await pilot.press("escape")
            await settled(app, pilot)
            assert small.read_text() == original and app.session.unsaved
            await pilot.press("ctrl+s")
            await settled(app, pilot, lambda: isinstance(app.screen, Question))
            await pilot.press("s")
            await settled(app, pilot, lambda: not app.session.unsaved)
            assert small.read_text() == app.editor.text != original

    run(work())


def test_a_file_changed_by_others_is_not_overwritten_unasked(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            small.write_text("# somebody else\n")
            await pilot.press("ctrl+s")
            await settled(app, pilot, lambda: isinstance(app.screen, Question))
            await pilot.press("n")
            await settled(app, pilot)
            assert small.read_text() == "# somebody else\n"
            small.unlink()  # a file that is gone is written again
            await pilot.press("ctrl+s")
            await settled(app, pilot, small.exists)

    run(work())


def test_what_cannot_be_written_is_said(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            small.unlink()
            small.mkdir()
            await pilot.press("ctrl+s")
            await settled(app, pilot, lambda: bool(app._notifications))
            assert "can't be written" in next(iter(app._notifications)).message

    run(work())


def test_reload(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            changed = small.read_text().replace("mixed", "mingled")
            small.write_text(changed)
            await pilot.press("ctrl+r")
            await settled(app, pilot, lambda: app.editor.text == changed)
            assert app.session.rows()[0].plan.program == "mingled" and not app.session.unsaved
            await pilot.press("x", "ctrl+r")
            await settled(app, pilot, lambda: isinstance(app.screen, Question))
            await pilot.press("r")
            await settled(app, pilot, lambda: app.editor.text == changed)

    run(work())


def test_quitting_asks_where_something_is_unsaved(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            app.editor.go_to(1)
            await pilot.press("#")
            await settled(app, pilot)
            await pilot.press("ctrl+q")
            await settled(app, pilot, lambda: isinstance(app.screen, Question))
            assert "small.hap" in app.screen.words
            await pilot.press("ctrl+q", "n")
            await settled(app, pilot)
            assert app.is_running and not isinstance(app.screen, Question)
            await pilot.press("ctrl+q", "y")
            await pilot.pause()
            assert app.return_value == 0

    run(work())


def test_quitting_with_nothing_unsaved_does_not_ask(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            await pilot.press("x", "backspace")
            await settled(app, pilot)
            await pilot.press("escape", "q")
            await pilot.pause()
            assert app.return_value == 0

    run(work())


def test_saving_twice_in_a_row_saves(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            app.editor.go_to(1, 1)
            await pilot.press("#")
            await settled(app, pilot)
            app.action_save()
            app.action_save()  # before the formatter has answered
            await settled(app, pilot)
            assert small.read_text() == app.editor.text and app.editor.text.startswith("#") and not app.session.unsaved

    run(work())


def test_names_that_can_be_no_file_s_are_said(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            for name in ("~nobody.here/x", "x" * 300, f"{small}/x", ".", "/", ".."):
                app.action_save_as()
                await settled(app, pilot, lambda: isinstance(app.screen, AskPath))
                app.screen.query_one(Input).value = name
                await pilot.press("enter")
                await settled(app, pilot, lambda: isinstance(app.screen, Question) or bool(app._notifications))
                if isinstance(app.screen, Question):  # there is a folder of this name
                    await pilot.press("o")
                await settled(app, pilot, lambda: bool(app._notifications))
                (said,) = app._notifications
                assert "can't be written" in said.message, name
                app.clear_notifications()
            assert app.session.main.path == small and list(small.parent.iterdir()) == [small]

    run(work())


@pytest.mark.parametrize("dies", [False, True])
def test_what_the_formatter_fails_at_can_be_saved_as_it_is(small: Path, dies: bool) -> None:
    class Fails(Local):
        def ask(self, request: Object) -> None:
            if request["do"] != "format":
                super().ask(request)
            elif dies:
                self.died("signal 9")
            else:
                self.answered({"id": request["id"], "failed": "AssertionError: it means another thing", "done": True})

    async def work() -> None:
        async with opened(small, connect=Fails) as (app, pilot):
            app.editor.go_to(1, 1)
            await pilot.press("#", "ctrl+s")
            await settled(app, pilot, lambda: isinstance(app.screen, Question))
            assert ("signal 9" if dies else "it means another thing") in app.screen.words
            await pilot.press("s")
            await settled(app, pilot, lambda: not app.session.unsaved)
            assert small.read_text() == app.editor.text and app.editor.text.startswith("#")

    run(work())


def test_what_unicode_calls_line_ends_stays_where_it_is(small: Path) -> None:
    """The language's lines end with `\\n` alone."""
    text = small.read_text().replace("program open", "# one\u2028two\x0cthree\x85four\nprogram open")
    small.write_text(text, encoding="utf-8")

    async def work() -> None:
        async with opened(small) as (app, pilot):
            assert app.editor.text == text and not app.session.main.findings and not app.session.unsaved
            line = text[: text.index("program open")].count("\n") + 1
            assert app.session.main.program("open").line == line
            assert app.editor.document.get_line(line - 1).startswith("program open")
            app.editor.go_to(line - 1, 4)
            app.editor.insert("\x0cx\r\n# ")
            await settled(app, pilot)
            edited = text.replace("# one\u2028", "# o\x0cx\n# ne\u2028")
            assert app.editor.text == edited == app.session.main.text
            await pilot.press("ctrl+s")
            await settled(app, pilot, lambda: not app.session.unsaved)
            assert small.read_bytes().decode("utf-8") == edited
            await pilot.press("ctrl+z")
            await settled(app, pilot)
            assert app.editor.text == text

    run(work())
