"""The view of the search: what it said over time; held, stopped, continued."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from benchmarks.process import state
from hapdsl.explore.analyse import analyse
from hapdsl.explore.app import ExploreApp
from hapdsl.explore.log import Log
from hapdsl.explore.messages import Heard
from hapdsl.explore.service import answer
from hapdsl.explore.session import GAP, Plan
from hapdsl.explore.widgets.dialogs import AskPath
from hapdsl.explore.widgets.plans import PlanList
from hapdsl.explore.widgets.words import Words
from hapdsl.explore.workers import Object, Subprocess
from hapdsl.search.baselines import baselines
from hapdsl.search.planner import plan
from hapdsl.virtual import plan_over
from hapdsl.workbench import Workbench

from .conftest import Local, on_screen, opened, run, settled


def test_best_and_bound_over_time() -> None:
    now = [0.0]
    log = Log(lambda: now[0])
    for at, best, bound in ((1.0, 2e-3, None), (2.0, 1.5e-3, 1e-3), (3.0, None, 1.2e-3)):
        now[0] = at
        log.note("programs", best, bound)
    assert [(s.at, s.best_s, s.bound_s) for s in log.said] == [
        (1.0, 2e-3, None),
        (2.0, 1.5e-3, 1e-3),
        (3.0, 1.5e-3, 1.2e-3),
    ]
    log.hold(True)
    now[0] = 10.0
    assert log.held and log.seconds == 3.0
    log.hold(False)
    now[0] = 11.0
    assert log.seconds == 4.0
    words = "".join(w for w, _ in log.told(80, 10, "", True))
    assert "best 1.50 ms, bound 1.20 ms, gap 20 %" in words
    rows = [line for line in words.splitlines() if "│" in line]
    assert rows[0].strip().startswith("2.00 ms") and rows[-1].strip().startswith("1.00 ms")
    assert rows[0].count("●") < rows[len(rows) // 2].count("●") and "─" in rows[-1]  # the best falls, the bound rises
    log.proven({"nodes": 1234, "gap": 0.2, "bound_s": 1.2e-3, "scope": "these shares: all"})
    log.end()
    now[0] = 99.0
    assert log.seconds == 4.0
    assert "1,234 nodes expanded" in "".join(w for w, _ in log.told(80, 10, "done", False))


async def searched(app: ExploreApp, pilot: Pilot[int]) -> Plan:
    """The plan that the search which goes on comes to."""
    await settled(app, pilot, lambda: not app.work.searching)
    return next(r.plan for r in app.session.rows() if r.plan.origin == "plan")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")
def test_a_search_is_watched_held_continued_and_stopped(small: Path) -> None:
    async def work() -> None:
        async with opened(small, size=(150, 46), connect=Subprocess) as (app, pilot):
            await pilot.press("escape", "v")
            await settled(app, pilot)
            assert "p starts one" in app.query_one("#search", Words).plain
            await pilot.press("p")
            await settled(app, pilot, lambda: bool(app.work.log.said) or not app.work.searching)
            planner = app.work.planner
            if isinstance(planner, Subprocess) and planner.process is not None:  # else it was too quick for us
                await pilot.press("space")
                await settled(app, pilot, lambda: app.work.log.held or not app.work.searching)
                if app.work.log.held:
                    assert state(planner.process.pid) == "T" and "held" in app.query_one("#search", Words).plain
                    await pilot.press("space")
                    await settled(app, pilot, lambda: not app.work.log.held)
            await settled(app, pilot, lambda: not app.work.searching)
            seen = app.query_one("#search", Words).plain
            assert "nodes expanded" in seen and "●" in seen and "gap" in seen
            reached = app.work.log.gap
            await pilot.press("full_stop")
            await settled(app, pilot, lambda: not app.work.searching)
            assert reached is not None and app.work.log.gap is not None
            assert app.work.log.gap <= min(GAP, reached) / 4
            await pilot.press("p")
            planner = app.work.planner
            await pilot.press("escape")
            assert not app.work.searching and app.work.log.ended is not None
            assert "stopped" in app.work.outcome
            if isinstance(planner, Subprocess) and planner.process is not None:
                with pytest.raises(ProcessLookupError):
                    await planner.gone()
                    os.kill(planner.process.pid, signal.SIGCONT)

    run(work())


NODES = """
model mlp(batch = 64, d = 32, hidden = 48, classes = 10) {
    input x     : f32[batch, d]
    input label : i64[batch]
    param w1    : f32[d, hidden]       init normal(std = 0.05)
    param w2    : f32[hidden, classes] init normal(std = 0.05)
    loss = cross_entropy(matmul(relu(matmul(x, w1)), w2), label)
    train loss with sgd(lr = 0.1)
}
cluster nodes {
    device fast { compute = 2 TFLOP/s, memory = 8 GiB, bandwidth = 300 GB/s }
    device slow { compute = 1 TFLOP/s, memory = 8 GiB, bandwidth = 200 GB/s }
    node big   = 2 * fast over { bandwidth = 12 GB/s, latency = 5 us }
    node small = 2 * slow over { bandwidth = 12 GB/s, latency = 5 us }
    network 1 * big virtual, 2 * small virtual over { bandwidth = 1 GB/s, latency = 20 us }
}
"""


def test_over_virtual_nodes_it_finds_what_plan_finds() -> None:
    said: list[Object] = []
    answer({"id": 1, "do": "plan", "path": "nodes.hap", "text": NODES}, said.append)
    bench = Workbench("nodes.hap", NODES)
    found = plan_over(bench.graph(), bench.cluster(), name="mlp_plan")
    told = [a for a in said if a.get("plan") == "plan"]
    second = [
        a for a in said if "nodes from outside" in a.get("doing", "")
    ]  # the search over nodes alone tells of itself, too
    firsts = [a["best_s"] for a in said if "doing" in a and a not in second and a.get("best_s") is not None]
    assert len(second) > 2 and all(a["best_s"] >= found.cost_s * (1 - 1e-9) for a in second) and firsts
    assert said[-1] == {"id": 1, "done": True} and "gap" in told[-1]
    (priced,) = told[-1]["analysis"]["programs"]
    assert len(priced["memory_bytes"]) == 6 and priced["state"] == "proven"
    assert priced["sync_s"] == pytest.approx(found.cost_s, rel=1e-9) and told[-1]["bound_s"] == pytest.approx(
        found.bound_s, rel=1e-9
    )
    baselines = [a["analysis"]["programs"][0]["sync_s"] for a in said if a.get("plan") not in (None, "plan")]
    assert baselines and priced["sync_s"] <= min(baselines) * (1 + 1e-9)


def test_no_plan_is_above_a_baseline_that_is_listed_beside_it() -> None:
    """A search that is stopped before it has tried anything answers with the fastest of the baselines that it was given."""
    bench = Workbench("nodes.hap", NODES)
    graph, cluster = bench.graph(), bench.cluster().outer()
    beside = baselines(graph, cluster)
    seen: list[str] = []

    def late() -> bool:
        return any(what != "programs" for what in seen)  # after the first program

    slowest = max(beside, key=lambda name: -1.0 if beside[name] is None else beside[name].cost.sync_s)
    poor = {slowest: beside[slowest]}
    found = plan(graph, cluster, baselines=beside, cancelled=late, progress=lambda news: seen.append(news.doing))
    assert found.baselines is beside
    assert found.cost_s <= min(c.cost.sync_s for c in beside.values() if c is not None) * (1 + 1e-9)
    assert plan(graph, cluster, baselines=poor).cost_s <= found.cost_s * (1 + 1e-9)


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
        for said in (
            {"started": True, "guessed": True},
            {"doing": "programs", "best_s": 1.5e-3, "bound_s": None},
            plan,
            {**plan, "bound_s": 1e-3, "gap": 0.05, "scope": "these shares"},
            {"done": True},
        ):
            asyncio.get_running_loop().call_soon(self.answered, {"id": request["id"], **said})


def test_an_edited_plan_is_not_overwritten_by_the_search(small: Path) -> None:
    async def work() -> None:
        async with opened(small, size=(150, 40), connect=Scripted, search=True) as (app, pilot):
            plan = await searched(app, pilot)
            assert any("guessed" in n.message for n in app._notifications)
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


def test_a_saved_plan_is_not_overwritten_by_the_next_search(small: Path) -> None:
    async def work() -> None:
        async with opened(small, size=(150, 40), connect=Scripted, search=True) as (app, pilot):
            plan = await searched(app, pilot)
            await app.show_plan(plan.key)
            await pilot.press("ctrl+s")
            await settled(app, pilot, lambda: isinstance(app.screen, AskPath))
            await pilot.press("enter")
            saved = small.parent / "mlp.plan.hap"
            await settled(app, pilot, saved.exists)
            await pilot.press("f5")
            await settled(app, pilot, lambda: not app.work.searching)
            app.look_at_files()
            await settled(app, pilot)
            documents = [app.session.documents[r.plan.document] for r in app.session.rows() if r.plan.origin == "plan"]
            assert [d.path for d in documents] == [saved, None] and documents[0].text == saved.read_text()
            assert not any("changed on disk" in n.message for n in app._notifications)
            for document in documents:
                await app.show_plan((document.key, "found"))
                await settled(app, pilot)
                assert app.editor.text == document.text

    run(work())


def test_a_key_that_comes_with_a_plan_is_not_lost(small: Path) -> None:
    async def work() -> None:
        async with opened(small, size=(150, 40), connect=Scripted, search=True) as (app, pilot):
            plan = await searched(app, pilot)
            await app.show_plan(plan.key)
            text = app.editor.text
            app.work.plan()
            app.editor.insert("#", (0, 0))  # its message comes behind the next plan's
            run_of_it = app.work.runs
            path = str(app.session.document.suggested)
            app.post_message(
                Heard(
                    f"planner {run_of_it}",
                    {
                        "plan": "plan",
                        "program": "found",
                        "path": path,
                        "text": f"{text}# another\n",
                        "analysis": analyse(f"{text}# another\n", path),
                    },
                )
            )
            await settled(app, pilot, lambda: not app.work.searching)
            assert app.session.documents[plan.document].text == f"#{text}"
            assert app.session.documents[plan.document].dirty

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
