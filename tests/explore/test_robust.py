"""Whatever happens, the screen stays and says what happened."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from hapdsl.explore.workers import Subprocess

from .conftest import Local, on_screen, opened, run, settled


def test_a_terminal_of_any_size_shows_every_view(small: Path) -> None:
    async def work() -> None:
        async with opened(small, size=(160, 50)) as (app, pilot):
            app.editor.go_to(31)
            await settled(app, pilot, lambda: app.asked is not None and app.asked[1].done)
            for size, keys in (((20, 5), "shdwvt"), ((1, 1), "s"), ((100, 30), "")):
                await pilot.resize_terminal(*size)
                await pilot.press("escape", *keys)
                await settled(app, pilot)
                await pilot.press("escape", "2")
                assert app.is_running
            assert "small.hap" in on_screen(app) and "matmul" in on_screen(app)

    run(work())


def test_an_adviser_that_dies_is_said_and_replaced(small: Path) -> None:
    async def work() -> None:
        async with opened(small, size=(160, 50), connect=Subprocess) as (app, pilot):
            await pilot.press("escape", "h")
            await settled(
                app,
                pilot,
                lambda: (
                    isinstance(app.work.adviser, Subprocess)
                    and app.work.adviser.process is not None
                    and app.worth is not None
                ),
            )
            os.kill(app.work.adviser.process.pid, signal.SIGKILL)
            await settled(
                app, pilot, lambda: any("the adviser stopped (signal 9)" in n.message for n in app._notifications)
            )
            text = app.editor.text
            await pilot.press("plus")
            await settled(app, pilot, lambda: app.editor.text != text)

    run(work())


class Silent(Local):
    """A helper that never answers."""

    def ask(self, request: object) -> None:
        pass


def test_twenty_thousand_lines(tmp_path: Path) -> None:
    file = tmp_path / "long.hap"
    file.write_text(
        "model m {\n" + "".join(f"    x{k} = relu(x{k - 1})  # [/x] of {k}\n" for k in range(20_000)) + "}\n"
    )

    async def work() -> None:
        from hapdsl.explore.app import ExploreApp, session_of

        app = ExploreApp(session_of(file), connect=Silent, search=False, summary=False)
        async with app.run_test(size=(100, 30)) as pilot:
            started = time.process_time()
            await pilot.press("ctrl+end", *["pageup"] * 5, "x", "enter", "ctrl+z", "ctrl+home", "pagedown")
            assert time.process_time() - started < 5
            await pilot.press("ctrl+end")
            assert app.editor.cursor_location == app.editor.document.end
            await pilot.press("ctrl+home")
            assert app.editor.cursor_location == (0, 0)
            await pilot.press("ctrl+g", *"x19999")
            await pilot.pause(0.2)
            assert (
                app.editor.cursor_location[0] + 1 == 20_001
                and "x19999 = relu" in on_screen(app)
                and "checking" in on_screen(app)
            )

    run(work())
