"""What a person does in the explorer, key by key."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.command import CommandPalette
from textual.widgets import Input, OptionList

from hapdsl.explore.actions import ACTIONS
from hapdsl.explore.analyse import analyse
from hapdsl.explore.app import ExploreApp
from hapdsl.explore.describe import describe
from hapdsl.explore.palette import ActionProvider
from hapdsl.explore.widgets.dialogs import AskPath, Help, Question, help_rows
from hapdsl.explore.widgets.plans import PlanList
from hapdsl.explore.workers import Object
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text
from hapdsl.workbench import Workbench

from .conftest import Local, on_screen, opened, prices, run, settled

MULTIPLY, GATHER = 31, 27  # the lines `z@S(0) = matmul(h@S(0), w2@R)` and `w1@R = all_gather(…)` of small.hap


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
        held: list[Object] = []  # noqa: RUF012

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


def test_baselines_and_the_plan_arrive(small: Path) -> None:
    async def work() -> None:
        async with opened(small, size=(150, 40), search=True) as (app, pilot):
            await settled(app, pilot, lambda: not app.work.searching, seconds=40)
            rows = app.session.rows()
            assert [r.plan.origin for r in rows] == [
                "file",
                "file",
                "plan",
                "baseline",
                "baseline",
                "baseline",
                "baseline",
            ]
            plan = rows[2]
            assert plan.state == "proven" and plan.plan.gap is not None and 0 <= plan.plan.gap < 0.02
            assert plan.seconds is not None and all(r.seconds is None or plan.seconds <= r.seconds for r in rows)
            assert "gap" in on_screen(app) and "fully sharded" in on_screen(app)
            await pilot.press("escape", "down", "down")
            await settled(app, pilot, lambda: app.session.plan is not None and app.session.plan.origin == "plan")
            text = app.editor.text
            bench = Workbench(small.parent / "p.hap", text)
            assert bench.cost(bench.program())[2].sync_s == pytest.approx(plan.seconds)
            await pilot.press("ctrl+s")
            await settled(app, pilot, lambda: isinstance(app.screen, AskPath))
            app.screen.query_one(Input).value = str(small.parent / "kept")
            await pilot.press("enter")
            await settled(app, pilot, (small.parent / "kept.hap").exists)
            assert (small.parent / "kept.hap").read_text() == text
            assert app.session.document.title == "kept.hap"

    run(work())


def test_cancelling_keeps_what_was_found(small: Path) -> None:
    async def work() -> None:
        async with opened(small, size=(150, 40), search=True) as (app, pilot):
            await settled(app, pilot, lambda: any(r.plan.origin == "baseline" for r in app.session.rows()))
            if app.work.searching:
                await pilot.press("escape")
                assert app.focused is app.query_one(PlanList)
                await pilot.press("escape")
                await settled(app, pilot)
            assert not app.work.searching
            count = len(app.session.rows())
            await pilot.pause(0.5)
            assert len(app.session.rows()) == count >= 3

    run(work())


class Scripted(Local):
    """Checks like any other; a search finds the same plan every time: first the best so far, then with its gap."""

    def ask(self, request: Object) -> None:
        if request["do"] != "plan":
            super().ask(request)
            return
        text = request["text"].replace("program mixed", "program found").replace("program open", "program rest")
        path = str(Path(request["path"]).with_name("mlp.plan.hap"))
        plan = {"plan": "plan", "program": "found", "path": path, "text": text, "analysis": analyse(text, path)}
        for answer in (
            {"started": True, "guessed": True},
            {"doing": "programs", "best_s": 1.5e-3, "bound_s": None},
            plan,
            {**plan, "bound_s": 1e-3, "gap": 0.05, "scope": "these shares"},
            {"done": True},
        ):
            asyncio.get_running_loop().call_soon(self.answered, {"id": request["id"], **answer})


def test_an_edited_plan_is_not_overwritten_by_the_search(small: Path) -> None:
    async def work() -> None:
        async with opened(small, size=(150, 40), connect=Scripted, search=True) as (app, pilot):
            await settled(app, pilot, lambda: not app.work.searching)
            assert any("guessed" in n.message for n in app._notifications)
            plan = next(r.plan for r in app.session.rows() if r.plan.origin == "plan")
            assert plan.gap == 0.05 and "gap 5 %" in on_screen(app)
            await app.show_plan(plan.key)
            app.editor.focus()
            app.editor.go_to(1, 1)
            await pilot.press(*"#mine")
            await settled(app, pilot)
            await pilot.press("f5")
            await settled(app, pilot, lambda: not app.work.searching)
            plans = [r.plan for r in app.session.rows() if r.plan.origin == "plan"]
            assert len(plans) == 2
            assert app.session.documents[plans[0].document].text.startswith("#mine")
            assert not app.session.documents[plans[1].document].text.startswith("#mine")

    run(work())


def test_nothing_to_plan_is_no_trouble(tmp_path: Path) -> None:
    file = tmp_path / "cluster.hap"
    file.write_text(
        "cluster c {\n    device d { compute = 1 TFLOP/s, memory = 1 GiB, bandwidth = 10 GB/s }\n    node n = 2 * d over { bandwidth = 1 GB/s, latency = 1 us }\n}\n"
    )

    async def work() -> None:
        async with opened(file, search=True) as (app, pilot):
            await settled(app, pilot, lambda: not app.work.searching)
            assert "HAP240" in app.work.outcome and "HAP240" in on_screen(app)
            assert app.session.rows() == [] and app.session.current is None
            await pilot.press("f3", "f8", "escape", "down", "enter")
            await settled(app, pilot)

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
