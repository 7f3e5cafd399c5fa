"""The summary: what a person reads first."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from hapdsl.explore.analyse import analyse
from hapdsl.explore.session import Plan, Session
from hapdsl.explore.state import Analysis, Document, Priced
from hapdsl.explore.summary import summarise
from hapdsl.explore.widgets.plans import PlanList
from hapdsl.explore.widgets.words import Words
from hapdsl.explore.workers import Object
from hapdsl.lang.amounts import in_bytes, in_seconds
from hapdsl.workbench import Workbench

from .conftest import FILES, Local, on_screen, opened, run, settled


def test_the_summary_opens_first_and_says_what_the_plan_does(small: Path) -> None:
    async def work() -> None:
        async with opened(small, size=(150, 50), summary=True) as (app, pilot):
            await settled(app, pilot, lambda: bool(app.facts))
            _, _, cost = Workbench(small).cost(Workbench(small).program("mixed"))
            seen = app.query_one("#summary", Words).plain
            assert seen.split()[0] in on_screen(app)
            assert f"mlp on box: {in_seconds(cost.sync_s)} a step" in seen
            assert "1 cut by hidden (w1)" in seen and "2 whole on every device (b1, w2)" in seen
            assert "2 a100 take 76 each (59.4 %)" in seen and "4 t4 take 26 each (40.6 %)" in seen
            share = sum(s.comm_s for s in cost.stages) / cost.sync_s
            assert f"{share * 100:.3g} % of the step" in seen
            assert in_bytes(float(cost.memory_bytes[4])) in seen and "nobody is near the limit" in seen
            assert "nothing was measured" in seen and "isn't priced yet" in seen
            await pilot.press("down")  # the list has the keys: the sketch's summary
            await settled(app, pilot, lambda: "A sketch" in on_screen(app))
            await pilot.press("enter")
            await settled(app, pilot, lambda: app.view == "texts" and app.focused is app.editor)
            await pilot.press("f6")
            assert app.view == "summary"

    run(work())


class Finds(Local):
    """A search that finds a baseline, and then a plan once it is let."""

    waiting: ClassVar[list[Object]] = []

    def ask(self, request: Object) -> None:
        if request["do"] != "plan":
            super().ask(request)
            return
        text = (FILES / "small.hap").read_text()
        for name, program in (("dp_even", "dp_even"), ("plan", "found")):
            path = str(Path(request["path"]).with_name(f"mlp.{name}.hap"))
            own = text.replace("program mixed", f"program {program}").partition("program open")[0]
            answer = {
                "id": request["id"],
                "plan": name,
                "program": program,
                "path": path,
                "text": own,
                "analysis": analyse(own, path),
            }
            Finds.waiting.append(
                answer | ({"bound_s": 1e-3, "gap": 0.05, "scope": "these shares"} if name == "plan" else {})
            )
        Finds.waiting.append({"id": request["id"], "done": True})
        self.answered(Finds.waiting.pop(0))


def test_of_a_model_alone_the_best_plan_so_far_is_told_until_one_is_chosen(small: Path) -> None:
    small.write_text(small.read_text().partition("program mixed")[0])

    async def work(choose: bool) -> None:
        Finds.waiting = []
        async with opened(small, summary=True, search=True, connect=Finds) as (app, pilot):
            await settled(app, pilot, lambda: bool(app.facts))
            assert "a baseline" in app.query_one("#summary", Words).plain
            plans = app.query_one(PlanList)
            assert plans.rows[0].plan.title == "small.hap" and plans.highlighted == 1
            if choose:  # the file itself can be gone back to
                await pilot.press("up")
                await settled(app, pilot, lambda: app.session.current == ("file", ""))
                assert "what the plans are for" in on_screen(app)
            for answer in Finds.waiting:
                app.work.planner.answered(answer)
            await settled(app, pilot, lambda: not app.work.searching)
            if choose:
                await pilot.press("2")
                assert app.session.current == ("file", "") and app.editor.text == small.read_text()
            else:
                await settled(app, pilot, lambda: "found by the search" in app.query_one("#summary", Words).plain)

    run(work(False))
    run(work(True))


def test_gains_over_data_parallelism_and_full_memory_are_said() -> None:
    facts = {
        "model": "m", "cluster": "c", "guessed": True, "measured": [], "devices": ["a", "b"], "kinds": ["x", "y"], "sync_s": 1e-3,
        "overlap_s": 9e-4, "communication_s": 0.0, "compute_s": 1e-3, "waiting": [0.0, 4e-4], "slowest": [(0, 1e-3)], "volumes": [],
        "memory": [90, 10], "capacity": [100.0, 100.0], "holders": [["w@R", 60]], "shares": [], "sharded": [],
    }  # fmt: skip
    session = Session()
    for key, seconds in (("plan", 1e-3), ("dp_even", 1.5e-3), ("dp_proportional", 1e-3)):
        session.open(Document(key, key))
        session.put(Plan(key, key, "baseline" if key != "plan" else "plan", key))
        session.accept(
            key, Analysis(1, (), (Priced(key, "m", "c", 1, 3, "proven", sync_s=seconds, overlap_s=seconds),))
        )
    plan = session.plans["plan", "plan"]
    words = "".join(w for w, _ in summarise(session, plan, facts))
    assert (
        "1.5 times as fast as data parallelism with equal shares (1.50 ms); as fast as data parallelism with shares by speed."
        in words
    )
    assert "near the limit: a" in words and "b waits longest for others: 400 us, 40 % of the step" in words
    assert "Prices are guessed" in words and "next to no communication" in words
    session.searching = "programs"
    assert "programs" in "".join(w for w, _ in summarise(session, None, None))


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "p looks for a plan"), ("model m {", "HAP1"), ("# nothing\n", "p looks for a plan")],
)
def test_what_has_no_plan_has_a_summary_too(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "odd[b].hap"
    file.write_text(text)

    async def work() -> None:
        async with opened(file, summary=True) as (app, _):
            assert "odd[b].hap" in on_screen(app) and said in on_screen(app)

    run(work())
