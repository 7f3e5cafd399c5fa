"""The table of shares: what it shows, what moves in it, and that all of it is text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from textual.widgets import DataTable, Input

from hapdsl.explore.app import ExploreApp
from hapdsl.explore.widgets.dialogs import Ask
from hapdsl.explore.widgets.shares import Shares
from hapdsl.workbench import Workbench

from .conftest import on_screen, opened, run, settled


def shares(app: ExploreApp, path: Path) -> tuple[dict[str, list[int]], float]:
    """What the text says now, and what it costs."""
    bench = Workbench(path, app.editor.text)
    checked, _, cost = bench.cost(bench.program("mixed"))
    layout = checked.program.layout
    return {c: [int(n) for n in layout.shares[c][(0,)]] for c in ("batch", "hidden")}, cost.sync_s


def test_units_are_moved_numbers_set_and_the_best_found(small: Path) -> None:
    async def work() -> None:
        async with opened(small, size=(150, 40)) as (app, pilot):
            before, first = shares(app, small)
            await pilot.press("escape", "h")
            await settled(
                app,
                pilot,
                lambda: app.query_one(Shares).table is not None and "one more" in app.query_one(Shares).plain,
            )
            pane = app.query_one(Shares)
            assert isinstance(app.focused, DataTable) and "batch (256)" in on_screen(app)
            assert [c["shares"] for c in pane.table["classes"]] == [before["batch"], before["hidden"]]
            text = app.editor.text
            await pilot.press("right", "down", "down", "minus")  # hidden of the first t4
            await settled(app, pilot, lambda: app.editor.text != text)
            now, cost = shares(app, small)
            assert (
                now["batch"] == before["batch"]
                and now["hidden"][2] == before["hidden"][2] - 1
                and sum(now["hidden"]) == 1024
            )
            moves = []  # the unit went where that costs least: every other way, priced from the text
            for d in (0, 1, 3, 4, 5):
                other = list(before["hidden"])
                other[2], other[d] = other[2] - 1, other[d] + 1
                bench = Workbench(small, text.replace("[304, 304, 104, 104, 104, 104]", str(other)))
                moves.append(bench.cost(bench.program("mixed"))[2].sync_s)
            assert cost == pytest.approx(min(moves)) and app.session.rows()[0].seconds == pytest.approx(cost)
            await pilot.press("2")
            await settled(app, pilot, lambda: isinstance(app.screen, Ask))
            app.screen.query_one(Input).value = "204"
            await pilot.press("enter")
            await settled(app, pilot, lambda: "204" in app.editor.text)
            assert shares(app, small)[0]["hidden"][2] == 204 and sum(shares(app, small)[0]["hidden"]) == 1024
            text = app.editor.text
            await pilot.press("o")
            await settled(app, pilot, lambda: app.editor.text != text)
            assert shares(app, small)[1] < min(first, cost) and "# small" in app.editor.text
            await settled(app, pilot, lambda: pane.table["cost_s"] == pytest.approx(shares(app, small)[1]))
            for _ in range(3):
                await pilot.press("ctrl+z")
                await settled(app, pilot)
            assert shares(app, small) == (before, first) and app.editor.text == small.read_text()
            await pilot.press("escape")
            assert app.view == "texts"

    run(work())


def test_what_has_no_shares_says_so(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            await pilot.press("f3", "escape", "h")
            await settled(app, pilot)
            assert "only a proven program" in on_screen(app)
            await pilot.press("plus", "o", "5")
            await settled(app, pilot)
            assert app.editor.text == small.read_text() and np.isfinite(app.session.rows()[0].seconds)

    run(work())


def test_what_is_no_number_of_units_is_said(small: Path) -> None:
    async def work() -> None:
        async with opened(small, size=(150, 40)) as (app, pilot):
            await pilot.press("escape", "h")
            await settled(app, pilot, lambda: app.query_one(Shares).table is not None)
            for typed in ("2²", "²", "-3", "x", "9" * 5000):
                await pilot.press("2")
                await settled(app, pilot, lambda: isinstance(app.screen, Ask))
                app.screen.query_one(Input).value = typed
                await pilot.press("enter")
                await settled(app, pilot, lambda: bool(app._notifications))
                assert "is no number of units" in next(iter(app._notifications)).message
                app.clear_notifications()
            assert app.editor.text == small.read_text()

    run(work())


def test_no_key_is_lost_while_a_move_is_under_way(small: Path) -> None:
    async def work() -> None:
        async with opened(small, size=(150, 40)) as (app, pilot):
            before, _ = shares(app, small)
            await pilot.press("escape", "h")
            await settled(app, pilot, lambda: app.query_one(Shares).table is not None)
            await pilot.press(*["plus"] * 5, "minus")
            await settled(app, pilot, lambda: shares(app, small)[0]["batch"][0] == before["batch"][0] + 4)
            now = shares(app, small)[0]["batch"]
            assert sum(now) == sum(before["batch"]) and app.session.rows()[0].state == "proven"
            await pilot.press("left_square_bracket", *["minus"] * 99)  # more than there is: all of it
            await settled(app, pilot, lambda: shares(app, small)[0]["batch"][0] == 0)

    run(work())
