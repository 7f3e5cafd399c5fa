"""Files around the explorer: exports, runs, other editors, changes on disk, and what survives a crash."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from textual.widgets import Input

from hapdsl.explore import children, disk, filing
from hapdsl.explore.app import ExploreApp
from hapdsl.explore.journal import Journal
from hapdsl.explore.settings import Settings, read
from hapdsl.explore.state import Document
from hapdsl.explore.widgets.dialogs import Ask, Question
from hapdsl.explore.widgets.timeline import Timeline
from hapdsl.explore.workers import environment
from hapdsl.workbench import Workbench
from tests.processes import alive

from .conftest import below, opened, run, settled


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


def on_two_devices(small: Path) -> None:
    """A run of it takes two processes."""
    text = small.read_text().replace("2 * a100, 4 * t4", "1 * a100, 1 * t4")
    text = text.replace("[76, 76, 26, 26, 26, 26]", "[200, 56]")
    small.write_text(text.replace("[304, 304, 104, 104, 104, 104]", "[800, 224]"))


def test_a_run_s_times_are_laid_over_the_prediction(small: Path) -> None:
    on_two_devices(small)

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
            editor.write_text("#!/bin/sh\nkill -INT $PPID\nprintf '# caf\\351\n' >> \"$2\"\n")
            await pilot.press("f4")  # ctrl+c in there is the editor's, and so is how it writes
            await settled(app, pilot, lambda: app.editor.text != before)
            assert app.editor.text == f"{before}# caf�\n"

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


def test_what_a_text_imports_is_looked_at_too(small: Path) -> None:
    text = small.read_text()
    start, end = text.index("cluster box"), text.index("program mixed")
    part = small.with_name("part.hap")
    part.write_text(text[start:end])
    small.write_text(f'import "part.hap"\n{text[:start]}{text[end:]}')

    async def work() -> None:
        async with opened(small) as (app, pilot):
            before = app.session.rows()[0].seconds
            app.look_at_files()
            assert not app.session.main.checking
            part.write_text(text[start:end].replace("12 GB/s", "1.2 GB/s"))
            app.look_at_files()
            await settled(app, pilot)
            now = app.session.rows()[0]
            assert now.seconds == pytest.approx(Workbench(small).cost(Workbench(small).program("mixed"))[2].sync_s)
            assert now.seconds > before and not now.old and not app.session.unsaved
            part.unlink()
            app.look_at_files()
            await settled(app, pilot, lambda: bool(app.session.main.findings))
            assert app.session.main.findings[0].code == "HAP130"

    run(work())


def test_unsaved_edits_survive_a_crash(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "journal"

    async def work() -> None:
        async with opened(small, journals=folder) as (app, pilot):
            app.editor.go_to(1, 1)
            await pilot.press("#", "k")
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
    assert journal.keep([plan])
    later = Journal(tmp_path / "j", small)
    assert [(k.text, k.path, k.suggested) for k in later.left()] == [("text [x]", None, "plan.hap")]
    held = json.loads(journal.file.read_text())
    journal.file.write_text(json.dumps({**held, "pid": 1}))  # another process that runs
    assert later.left() == []
    journal.file.write_text("{")
    assert later.left() == []
    assert not Journal(Path("/proc/nowhere"), small).keep([plan])  # what can't be written stops nobody


def test_edits_that_nobody_typed_are_kept_too(small: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(small, journals=tmp_path / "journal") as (app, pilot):
            app.put_text(app.session.main, f"{app.editor.text}# taken\n")  # as an alternative, another editor's text
            await settled(app, pilot, lambda: app.journal.file.is_file())
            assert json.loads(app.journal.file.read_text())["documents"][0]["text"] == app.editor.text
            await pilot.press("ctrl+z")
            await settled(app, pilot, lambda: not app.journal.file.exists())

    run(work())


def test_what_was_typed_last_is_kept_however_it_ends(small: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(small, journals=tmp_path / "journal") as (app, pilot):
            app.haste = 1000.0
            await pilot.press("#")
            await pilot.pause(0.1)
            assert not app.journal.file.exists()
        assert json.loads(app.journal.file.read_text())["documents"][0]["text"] == app.session.main.text

    run(work())


def test_what_other_sessions_keep_is_left_alone(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "journal"
    texts = ("first", "second")
    for text in texts:  # two sessions that ended without a word
        lost = Journal(folder, small)
        lost.keep([Document("file", f"# {text}\n", path=small, touched=True)])
        held = json.loads(lost.file.read_text())
        lost.file.write_text(json.dumps({**held, "pid": 2**22 + 1}))
    running = Journal(folder, small)
    running.keep([Document("file", "# here\n", path=small, touched=True)])
    held = json.loads(running.file.read_text())
    running.file.write_text(json.dumps({**held, "pid": 1}))

    async def work(answer: str) -> None:
        async with opened(small, journals=folder) as (app, pilot):
            await settled(app, pilot, lambda: isinstance(app.screen, Question))
            await pilot.press(answer)
            await settled(app, pilot)
            app.editor.go_to(1, 1)
            await pilot.press("#")
            await settled(app, pilot, lambda: app.journal.file.is_file())
            assert "here" in running.file.read_text()
            await pilot.press("ctrl+q", "y")
            await pilot.pause()

    run(work("l"))
    left = Journal(folder, small)
    assert sorted(k.text for k in left.left()) == ["# first\n", "# second\n"]
    monkeypatch.chdir(small.parent)  # a path may be told in another way
    told = Journal(folder, Path(small.name)).left()
    assert [k.is_of(Document("file", "", path=Path(small.name))) for k in told] == [True, True]
    run(work("d"))
    assert left.left() == [] and [f.name for f in folder.iterdir()] == [running.file.name]
    running.forget()


def test_a_file_s_name_may_be_no_text(tmp_path: Path) -> None:
    file = tmp_path / "caf\udce9.hap"  # as Python has a name that isn't UTF-8
    file.write_text("# nothing\n")

    async def work() -> None:
        async with opened(file, journals=tmp_path / "journal") as (app, pilot):
            app.editor.go_to(1, 1)
            await pilot.press("#")
            await settled(app, pilot, lambda: app.journal.file.is_file())
            await pilot.press("ctrl+s")
            await settled(app, pilot, lambda: not app.session.unsaved)
        assert file.read_text() == "## nothing\n"

    run(work())


def test_pipes_and_devices_are_not_read_again(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.hap"
    os.mkfifo(pipe)
    assert disk.on_disk(pipe) is None and disk.on_disk(Path("/dev/null")) is None


def test_a_run_is_stopped_or_says_why_it_failed(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told_of = b'chatter\n{\n  "ok": false, "diagnostics": [{"code": "HAP720", "message": "m", "file": "a.hap", "line": 3, "help": "h"}]}'
    assert children.why_not(told_of, b"") == "HAP720 m\na.hap, line 3\nh"
    assert (
        children.why_not(b"{", b"first\nlast\n\n") == "last" and children.why_not(b"", b"") == "it ended without a word"
    )
    commands = iter((["sleep", "60"], ["sh", "-c", "echo tired >&2; exit 3"], ["/nowhere/at-all"]))

    async def start(*words: str) -> children.Child:
        assert words[0] == "run" and Path(words[1]).read_text().startswith("# small")
        return await asyncio.create_subprocess_exec(*next(commands), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    monkeypatch.setattr(children, "start", start)

    async def work() -> None:
        async with opened(small) as (app, pilot):
            await pilot.press("escape", "r")
            await settled(app, pilot, lambda: app.runner is not None)
            await pilot.press("r")
            assert "it is running" in told(app)
            await pilot.press("escape")
            await settled(app, pilot, lambda: not app.running)
            assert "the run is stopped" in told(app) and "ended with" not in told(app) and app.runner is None
            await pilot.press("r")
            await settled(app, pilot, lambda: "the run ended with exit status 3: tired" in told(app))
            await pilot.press("r")
            await settled(app, pilot, lambda: "it can't be run: " in told(app))
            assert not app.running

    run(work())


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks at processes in /proc")
def test_a_run_ends_with_the_application(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filing, "STEPS", 10**6)
    on_two_devices(small)

    async def work() -> None:
        async with opened(small) as (app, pilot):
            started: list[int] = []
            await pilot.press("escape", "r", "r")

            def with_ranks() -> bool:
                with suppress(FileNotFoundError):  # one of them has just ended
                    started[:] = list(below(app.runner.pid)) if app.runner is not None else []
                return len(started) >= 3

            await settled(app, pilot, lambda: app.running)
            await settled(app, pilot, with_ranks, seconds=90)
            folder = Path(app.runs.name)
            assert folder.is_dir()
        assert not any(map(alive, started)) and not folder.exists()

    run(work())


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
