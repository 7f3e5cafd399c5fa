"""Files around the explorer: exports, runs, other editors, changes on disk, and what survives a crash."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from textual.widgets import Input

from hapdsl.explore.app import ExploreApp
from hapdsl.explore.journal import Journal
from hapdsl.explore.settings import Settings, read
from hapdsl.explore.state import Document
from hapdsl.explore.widgets.dialogs import Ask, Question
from hapdsl.explore.widgets.timeline import Timeline
from hapdsl.explore.workers import environment
from hapdsl.workbench import Workbench

from .conftest import opened, run, settled


def told(app: ExploreApp) -> str:
    return "\n".join(n.message for n in app._notifications)


@pytest.mark.parametrize("name", ["m.hap", "m.svg", "m.chart.svg", "m.json", "train.py", "m.odd", "none/m.hap"])
def test_exports(small: Path, name: str) -> None:
    target = small.parent / name

    async def work() -> None:
        async with opened(small) as (app, pilot):
            await pilot.press("escape", "x")
            await settled(app, pilot, lambda: isinstance(app.screen, Ask))
            app.screen.query_one(Input).value = str(target)
            await pilot.press("enter")
            await settled(app, pilot, lambda: bool(told(app)))
            if name == "m.odd":
                assert "HAP811" in told(app) and not target.exists()
            elif name == "none/m.hap":
                assert "HAP852" in told(app)
            else:
                assert f"written to {target}" in told(app)

    run(work())
    if name == "m.hap":
        bench = Workbench(target)
        assert bench.cost(bench.program())[2].sync_s == pytest.approx(
            Workbench(small).cost(Workbench(small).program("mixed"))[2].sync_s
        )
    elif name == "m.json":
        assert json.loads(target.read_text())["otherData"]["program"] == "mixed"
    elif name.endswith(".svg"):
        assert ("a100" in target.read_text()) == (name == "m.chart.svg") and "<svg" in target.read_text()


def test_a_training_script_trains(small: Path) -> None:
    target = small.parent / "train_mixed.py"

    async def work() -> None:
        async with opened(small) as (app, pilot):
            await pilot.press("escape", "e")
            await settled(app, pilot, lambda: isinstance(app.screen, Ask))
            assert app.screen.query_one(Input).value == str(target)
            await pilot.press("enter")
            await settled(app, pilot, target.is_file)

    run(work())
    script = target.read_text().replace("STEPS = 100", "STEPS = 3")
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment(), timeout=100, cwd=small.parent
    )
    assert done.returncode == 0, done.stderr
    first, last = (float(line.split(": ")[1]) for line in done.stdout.splitlines())
    assert done.stdout.startswith("step 1: ") and last < first


def test_a_run_s_times_are_laid_over_the_prediction(small: Path) -> None:
    text = small.read_text().replace("2 * a100, 4 * t4", "1 * a100, 1 * t4")
    text = text.replace("[76, 76, 26, 26, 26, 26]", "[200, 56]")
    small.write_text(text.replace("[304, 304, 104, 104, 104, 104]", "[800, 224]"))

    async def work() -> None:
        async with opened(small, size=(150, 46)) as (app, pilot):
            assert app.session.rows()[0].state == "proven"
            await pilot.press("escape", "r")
            await settled(app, pilot, lambda: bool(app.pane.margin.ran) or "ended with" in told(app), seconds=100)
            assert "ended with" not in told(app)
            measured = app.query_one(Timeline).answer["measured"]
            assert len(measured["rows"]) == 2 and measured["total"] > 0 and measured["was_measured"]
            assert app.pane.margin.ran[28] > 0  # a multiplication took some time

    run(work())


def test_another_editor_s_text_is_one_edit(small: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\ncase "$1" in +*) sed -i "s/program mixed/program edited/" "$2";; esac\n')
    editor.chmod(0o755)

    @contextmanager
    def suspended(self: ExploreApp) -> Iterator[None]:
        yield

    monkeypatch.setattr(ExploreApp, "suspend", suspended)

    async def work() -> None:
        monkeypatch.setenv("VISUAL", "/nowhere/at-all")
        async with opened(small) as (app, pilot):
            before = app.editor.text
            await pilot.press("f4")
            assert "can't be started" in told(app) and app.editor.text == before
            monkeypatch.setenv("VISUAL", str(editor))
            await pilot.press("f4")
            await settled(app, pilot, lambda: app.session.rows()[0].plan.program == "edited")
            await pilot.press("ctrl+z")
            await settled(app, pilot)
            assert app.editor.text == before

    run(work())


def test_changes_on_disk_are_noticed(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            small.write_text(small.read_text().replace("program mixed", "program other"))
            app.look_at_files()
            await settled(app, pilot, lambda: app.session.rows()[0].plan.program == "other")
            assert "read again" in told(app) and not app.session.unsaved
            app.editor.go_to(1, 1)
            await pilot.press("#")
            small.write_text(small.read_text().replace("program other", "program third"))
            app.look_at_files()
            app.look_at_files()
            await settled(app, pilot)
            assert told(app).count("has unsaved edits here") == 1 and app.editor.text.startswith("##")
            small.unlink()
            app.look_at_files()
            app.look_at_files()
            await settled(app, pilot)
            assert told(app).count("is gone") == 1
            await pilot.press("ctrl+s")
            await settled(app, pilot, small.exists)

    run(work())


def test_unsaved_edits_survive_a_crash(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "journal"

    async def work() -> None:
        async with opened(small, journals=folder) as (app, pilot):
            app.editor.go_to(1, 1)
            await pilot.press("#", "kept"[0])
            await settled(app, pilot, lambda: app.journal.file.is_file())
            text = app.editor.text
        # that session ended without a word: as another process would have
        held = json.loads(app.journal.file.read_text())
        app.journal.file.write_text(json.dumps({**held, "pid": 2**22 + 1}))
        async with opened(small, journals=folder) as (app, pilot):
            await settled(app, pilot, lambda: isinstance(app.screen, Question))
            assert "small.hap" in app.screen.words
            await pilot.press("r")
            await settled(app, pilot, lambda: app.editor.text == text)
            assert app.session.unsaved
            await pilot.press("ctrl+s")
            await settled(app, pilot, lambda: not app.session.unsaved)
            assert not app.journal.file.exists()
        async with opened(small, journals=folder) as (app, pilot):
            assert not isinstance(app.screen, Question)

    run(work())
    journal = Journal(tmp_path / "j", small)
    plan = Document("p", "text [x]", suggested=Path("plan.hap"), touched=True)
    journal.keep([plan])
    assert [(k.text, k.path, k.suggested) for k in journal.left()] == [("text [x]", None, "plan.hap")]
    journal.file.write_text(json.dumps({"pid": 1, "documents": []}))  # another process that runs
    assert journal.left() == []
    journal.file.write_text("{")
    assert journal.left() == []
    Journal(Path("/proc/nowhere"), small).keep([plan])  # what can't be written stops nobody


def test_settings(tmp_path: Path, small: Path) -> None:
    file = tmp_path / "explore.json"
    assert read(file) == Settings(file=file)
    file.write_text('{"theme": "nord", "open_with": "program", "timeline": true, "mine": 1}')
    found = read(file)
    assert (found.theme, found.open_with, found.timeline) == ("nord", "program", True)
    assert found.save(theme="textual-light") == "" and json.loads(file.read_text())["mine"] == 1
    file.write_text("{")
    assert (
        "can't be read" in read(file).trouble
        and "can't be read" in Settings(file=file).save(theme="x")
        and file.read_text() == "{"
    )

    async def work() -> None:
        file.write_text('{"theme": "nord", "open_with": "program"}')
        async with opened(small, options=read(file), summary=True) as (app, pilot):
            assert app.theme == "nord" and app.view == "texts"
            await pilot.press("ctrl+t")
            await pilot.pause()
            assert json.loads(file.read_text())["theme"] == app.theme == "textual-light"
        async with opened(small, options=Settings(theme="[b]none")) as (app, _):
            assert "there is no theme '[b]none'" in told(app)

    run(work())
