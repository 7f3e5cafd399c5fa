"""Saving, reading again, quitting: nothing that a person wrote is lost unasked."""

from __future__ import annotations

from pathlib import Path

from hapdsl.explore.widgets.dialogs import Question
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text

from .conftest import MULTIPLY, opened, run, settled


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
