"""The line under the cursor: inspected, explained, replaced by an alternative; sketches completed."""

from __future__ import annotations

from pathlib import Path

import pytest

from hapdsl.explore.widgets.alternatives import Alternatives, Asked
from hapdsl.explore.widgets.dialogs import Note
from hapdsl.explore.widgets.words import Words
from hapdsl.explore.workers import Object
from hapdsl.workbench import Workbench

from .conftest import GATHER, MULTIPLY, Local, on_screen, opened, prices, run, settled


def test_the_inspector_tells_a_line_s_values(small: Path) -> None:
    async def work() -> None:
        async with opened(small, size=(160, 70)) as (app, pilot):
            app.editor.go_to(MULTIPLY)
            await settled(app, pilot, lambda: app.line_facts is not None and app.line_facts[0][3] == MULTIPLY)
            seen = app.query_one("#detail", Words).plain
            assert "{h@S(0), w2@R} matmul {z@S(0)}" in seen
            assert "h@S(0)  f32[256 batch, 1024 hidden], 1.00 MiB" in seen and "from line 30 relu" in seen
            assert "76×10 2.97 KiB host.a100.0 … host.a100.1, 26×10 1.02 KiB host.t4.0 … host.t4.3" in seen
            assert "read 32 cross_entropy, 36 cross_entropy_grad" in seen
            # 2 · 76 · 1024 · 10 and 2 · 26 · 1024 · 10.
            assert "1.56 MFLOP host.a100.0 … host.a100.1, 532 kFLOP" in seen
            assert "model  z = matmul(h, w2)\n       small.hap:11" in seen
            app.editor.go_to(1)
            await settled(app, pilot)
            assert "matmul {" not in app.query_one("#detail", Words).plain

    run(work())


def test_an_alternative_is_taken_with_the_price_that_was_shown_and_taken_back(small: Path) -> None:
    async def work() -> None:
        async with opened(small, size=(160, 70)) as (app, pilot):
            before = app.editor.text
            app.editor.go_to(MULTIPLY)
            await settled(app, pilot, lambda: app.asked is not None and app.asked[1].done)
            asked = app.asked[1]
            assert asked.tensor == "z" and {q["kind"] for q in asked.questions} == {"call", "offered"}
            options = {o["id"]: o for q in asked.questions for o in q["options"] if not o["chosen"]}
            assert len(options) >= 4 and set(options) == set(asked.told)
            for name, told in asked.told.items():
                assert told["cost_s"] >= told["bound_s"] * (1 - 1e-9) >= options[name]["bound_s"] * (1 - 2e-9)
            assert "= -" in app.query_one(Alternatives).plain and " now" in app.query_one(Alternatives).plain
            await pilot.press("ctrl+o", "down", "down")
            await settled(app, pilot)
            pane = app.query_one(Alternatives)
            name = pane.ids[pane.highlighted]
            assert all(c in pane.plain for c in asked.told[name]["changes"]) and asked.told[name]["changes"]
            await pilot.press("enter")
            await settled(app, pilot, lambda: app.editor.text != before)
            bench = Workbench(small, app.editor.text)
            assert bench.cost(bench.program("mixed"))[2].sync_s == pytest.approx(asked.told[name]["cost_s"])
            assert app.session.rows()[0].seconds == pytest.approx(asked.told[name]["cost_s"])
            assert options[name]["text"].replace(" ", "") in app.editor.text.replace(" ", "")
            assert "program open for mlp" in app.editor.text and app.editor.text.startswith(before.split("model")[0])
            await pilot.press("ctrl+z")
            await settled(app, pilot)
            assert app.editor.text == before and app.session.rows()[0].seconds == pytest.approx(asked.written_s)
            await pilot.press("ctrl+y")
            await settled(app, pilot)
            assert app.editor.text != before

    run(work())


def test_alternatives_on_a_small_screen_come_when_they_are_asked_for(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            app.editor.go_to(GATHER)
            await settled(app, pilot)
            assert app.asked is None
            await pilot.press("ctrl+o")
            await settled(app, pilot, lambda: app.asked is not None and app.asked[1].done)
            assert "w1 is held as" in app.query_one(Alternatives).plain and "w1 is held as" in on_screen(app)
            await pilot.press("3")
            assert app.focused is app.query_one("#detail") and app.focused.display

    run(work())


def test_bounds_come_before_costs() -> None:
    asked = Asked()
    options = [
        {"id": "t/0/0", "text": "t@R = f()", "shown": "R", "chosen": True, "bound_s": 1.0},
        {"id": "t/0/1", "text": "t@S(0) = f()", "shown": "S(0)", "chosen": False, "bound_s": 1.5},
        {"id": "t/0/2", "text": "t@S(1) = f()", "shown": "S(1)", "chosen": False, "bound_s": 1.2},
    ]
    asked.hear(
        {
            "tensor": "t",
            "questions": [{"kind": "call", "title": "is made by", "of": "t", "options": options}],
            "cost_s": 1.0,
        }
    )
    assert [r[2] for r in asked.rows()] == ["", "now", "≥ +200 ms", "≥ +500 ms"]
    asked.hear({"option": "t/0/2", "possible": True, "cost_s": 2.0, "bound_s": 1.2, "changes": []})
    assert [r[2] for r in asked.rows()] == ["", "now", "≥ +500 ms", "= +1.00 s"]
    asked.hear({"option": "t/0/1", "possible": True, "cost_s": None, "bound_s": 1.5, "changes": []})
    assert [r[2] for r in asked.rows()][-2:] == ["no room", "= +1.00 s"]
    asked.hear({"findings": [{"code": "HAP604", "message": "two axes"}], "done": True})
    assert asked.trouble == "HAP604 two axes" and asked.done


def test_a_sketch_is_completed_by_one_key(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            await pilot.press("ctrl+n")
            await settled(app, pilot, lambda: any("no sketch here" in n.message for n in app._notifications))
            app.editor.go_to(54)
            await settled(app, pilot)
            await pilot.press("ctrl+n")
            await settled(app, pilot, lambda: app.session.rows()[1].state == "proven")
            bench = Workbench(small, app.editor.text)
            program, _, cost = bench.cost(bench.program("open"))
            (line,) = [i for i in program.program.instructions if i.is_compute and i.outputs[0].tensor == "z"]
            assert [str(v) for v in (*line.outputs, line.inputs[0])] == ["z@S(1)", "h@R"]  # as the sketch says
            assert app.session.rows()[1].seconds == pytest.approx(cost.sync_s)
            assert app.session.searching == ""
            await pilot.press("ctrl+z")
            await settled(app, pilot, lambda: app.session.rows()[1].state == "sketch")

    run(work())


def test_a_line_in_plain_words(small: Path) -> None:
    _, costs = prices(small)

    async def work() -> None:
        async with opened(small) as (app, pilot):
            for line, says in (
                (GATHER, "Each device has a slice of 'w1'"),
                (38, "are added up over the network"),
                (MULTIPLY, "each device takes its share of batch"),
            ):
                app.editor.go_to(line)
                await pilot.press("ctrl+b")
                await settled(app, pilot, lambda: isinstance(app.screen, Note))
                assert says in app.screen.words and costs[line] in app.screen.words
                await pilot.press("escape")
            app.editor.go_to(1)
            await pilot.press("ctrl+b")
            await settled(app, pilot, lambda: any("can be explained" in n.message for n in app._notifications))

    run(work())


def test_what_is_stopped_is_over(small: Path) -> None:
    class Stuck(Local):
        def ask(self, request: Object) -> None:
            if request["do"] != "complete":
                super().ask(request)

    async def work() -> None:
        async with opened(small, connect=Stuck) as (app, pilot):
            app.editor.go_to(54)
            await settled(app, pilot)
            await pilot.press("ctrl+n")
            await pilot.pause(0.1)
            assert "completing open" in on_screen(app)
            await pilot.press("escape", "escape")
            await settled(app, pilot)
            assert app.session.searching == "" and "completing" not in on_screen(app).split("\n")[0]
            assert any("stopped" in n.message for n in app._notifications)

    run(work())
