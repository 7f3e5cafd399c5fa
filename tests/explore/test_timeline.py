"""The timeline: what it draws, that it and the cursor follow each other, and a measured trace beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hapdsl.cost.comparison import busy
from hapdsl.draw.trace import trace_events
from hapdsl.explore.desk import Desk
from hapdsl.explore.timing import timeline
from hapdsl.explore.widgets.timeline import Timeline
from hapdsl.lang.amounts import in_bytes, in_seconds
from hapdsl.lang.diagnostics import HapError
from hapdsl.workbench import Workbench

from .conftest import on_screen, opened, run, settled


def request(small: Path) -> dict[str, object]:
    return {"path": str(small), "version": 1, "text": small.read_text(), "program": "mixed"}


def test_bars_are_the_simulation_s(small: Path) -> None:
    bench = Workbench(small)
    checked, cluster, cost = bench.cost(bench.program("mixed"))
    found = timeline(Desk(), request(small))
    assert [len(r["devices"]) for r in found["rows"]] == [2, 4] and found["total"] == pytest.approx(cost.overlap_s)
    compute, messages = busy(checked.program, cost)
    for row, d in zip(found["rows"], (0, 2), strict=True):
        assert sum(b - a for a, b, _ in row["compute"]) == pytest.approx(compute[d])
        assert sum(b - a for a, b, _ in row["communication"]) == pytest.approx(messages[d])
        assert max(size for _, size in row["memory"]) == cost.memory_bytes[d] == row["peak"]
    staged = timeline(Desk(), {**request(small), "kind": "sync"})
    assert staged["total"] == pytest.approx(cost.sync_s)
    assert len(cluster) == 6


def test_the_cursor_and_the_timeline_follow_each_other(small: Path) -> None:
    bench = Workbench(small)
    most = in_bytes(float(max(bench.cost(bench.program("mixed"))[2].memory_bytes)))

    async def work() -> None:
        async with opened(small, size=(150, 46)) as (app, pilot):
            pane = app.query_one(Timeline)
            app.editor.go_to(28)
            await settled(app, pilot, lambda: pane.answer is not None)
            assert pane.display and "host.t4.0 +3" in on_screen(app) and most in on_screen(app)
            assert pane.answer["instructions"][pane.at][0] == 28
            await pilot.press("escape", "5", "right", "right")
            assert app.editor.cursor_location[0] + 1 == 30
            await pilot.press("left")
            assert app.editor.cursor_location[0] + 1 == 29
            await pilot.press("plus", "plus")
            assert pane.length == 0.25 and pane.start <= pane._when() <= pane.start + 0.25
            await pilot.press("shift+right", "0")
            assert (pane.start, pane.length) == (0.0, 1.0)
            await pilot.click(Timeline, offset=(30, 3))  # the first row's messages: the all_gather at the beginning
            assert app.editor.cursor_location[0] + 1 == 27
            await pilot.press("k")
            await settled(app, pilot, lambda: pane.answer["kind"] == "sync")
            await pilot.press("f7")
            assert not pane.display and app.focused is app.editor
        async with opened(small) as (app, pilot):
            assert not app.query_one(Timeline).display
            await pilot.press("f7")
            await settled(app, pilot, lambda: "messages" in on_screen(app))
            # What is wrong keeps the last one, and says so.
            await pilot.press("escape", "2", "x")
            await settled(app, pilot, lambda: "(as it was)" in on_screen(app))

    run(work())


def slower(small: Path, to: Path) -> Path:
    """A trace like those that a run writes, in two steps of which the last took three times as long as predicted."""
    bench = Workbench(small)
    checked, cluster, cost = bench.cost(bench.program("mixed"))
    found = trace_events(checked.program, cost, [d.name for d in cluster.devices])
    events = [e for e in found["traceEvents"] if e["ph"] == "M"]
    for step, factor in ((3, 2.0), (4, 3.0)):
        for e in found["traceEvents"]:
            if e["ph"] == "X":
                args = {**e["args"], "step": step}
                events.append({**e, "ts": 1e5 * step + e["ts"] * factor, "dur": e["dur"] * factor, "args": args})
    to.write_text(json.dumps({"traceEvents": events, "otherData": {"program": "mixed", "measured": True}}))
    return to


def test_a_trace_is_laid_over_the_prediction(small: Path, tmp_path: Path) -> None:
    file = slower(small, tmp_path / "run.trace.json")

    async def work() -> None:
        async with opened(small, size=(150, 60), trace=str(file)) as (app, pilot):
            await settled(app, pilot, lambda: bool(app.pane.margin.ran))
            costs, _ = app.session.document.costs()
            assert app.pane.margin.ran == pytest.approx(
                {line: 3 * c.seconds for line, c in costs.items() if c.seconds > 0}
            )
            seen = on_screen(app)
            assert f"ran {in_seconds(3 * max(c.seconds for c in costs.values()))}" in seen
            assert app.query_one(Timeline).answer["measured"]["total"] == pytest.approx(
                3 * app.session.rows()[0].seconds, rel=0.05
            )
            app.editor.put(app.editor.text.replace("h@S(0)       = relu(a@S(0))", "h@S(0) = relu(a@S(0))"))
            await settled(app, pilot)

    run(work())


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("{", "HAP821"),
        ("[1]", "HAP821"),
        ('{"traceEvents": []}', "HAP821"),
        ('[{"ph": "X", "pid": 0, "args": {"instruction": 0}}]', "HAP821"),
        ('[{"ph": "X", "pid": 0, "ts": NaN, "args": {"instruction": 0}}]', "HAP821"),
        ('[{"ph": "X", "pid": "x", "ts": 0, "args": {"instruction": 0}}]', "HAP821"),
        ('[{"ph": "X", "pid": 0, "ts": 0, "args": [0]}]', "HAP821"),
        (None, "HAP120"),
        ("other", "HAP821"),
    ],
)
def test_what_is_no_trace_of_this_program_is_said(small: Path, tmp_path: Path, content: str | None, code: str) -> None:
    file, program = tmp_path / "odd.json", "mixed"
    if content == "other":
        slower(small, file)
        small.write_text(small.read_text().replace("program mixed", "program renamed"))
        program = "renamed"
    elif content is not None:
        file.write_text(content)
    with pytest.raises(HapError) as stop:
        timeline(Desk(), {**request(small), "program": program, "trace": str(file)})
    assert stop.value.diagnostics[0].code == code
