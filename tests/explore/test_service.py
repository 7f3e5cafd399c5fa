"""The helper processes: what they answer, and that none is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hapdsl.explore.desk import Desk
from hapdsl.explore.moving import moved
from hapdsl.explore.protocol import analysis_from
from hapdsl.explore.service import answer
from hapdsl.explore.state import Document
from hapdsl.explore.workers import Checks, Object, Subprocess, environment
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text
from tests.processes import alive
from tests.texts import TINY_CLUSTER

from .conftest import FILES, opened, run, settled

TEXT = (FILES / "small.hap").read_text()


def ask(**request: object) -> list[Object]:
    found: list[Object] = []
    answer({"id": 7, "path": "x.hap", **request}, found.append)
    assert all(a["id"] == 7 for a in found) and [a for a in found if a.get("done")] == [found[-1]]
    json.dumps(found, allow_nan=False)
    return found


def test_format() -> None:
    (found,) = ask(do="format", text=TEXT)
    assert found["text"] == to_text(parse(TEXT))
    (found,) = ask(do="format", text="model {")
    assert "text" not in found and found["findings"][0]["code"].startswith("HAP1")


def test_whatever_goes_wrong_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown request" in ask(do="dance")[0]["failed"]
    assert "KeyError" in ask(do="check")[0]["failed"]
    assert "Traceback" in capsys.readouterr().err


def test_a_model_that_calls_nothing_has_no_plan() -> None:
    """Nor has it baselines, which are looked for first."""
    text = f"model none(n = 8) {{\n    input x : f32[n]\n    output x\n}}\n{TINY_CLUSTER}"
    *_, last = ask(do="plan", text=text, model="none", cluster="pair")
    assert [f["code"] for f in last["findings"]] == ["HAP602"]


def test_differences_tell_what_a_whole_answer_would() -> None:
    """A document that is told only what has changed since knows what one knows that is told all; also of versions that nobody saw."""
    path, desk, last = "x.hap", Desk(), Document("x", TEXT)

    def told(since: int | None) -> Object:
        found: list[Object] = []
        request = {"do": "check", "path": path, "text": last.text, "version": last.version, "since": since}
        answer(request, found.append, desk)
        return json.loads(json.dumps(found[0]["analysis"]))

    last.accept(analysis_from(told(None), 1))
    edits = [
        ("relu(a@S(0))", "relu(a@S(0))  # as it was"),
        ("    forward {", "    # a line more\n\n    forward {"),
        ("[76, 76, 26, 26, 26, 26]", "[128, 128, 0, 0, 0, 0]"),  # all prices
        ("h@S(0)       = relu", "h@S(0)       = gelu"),  # wrong: nothing has a price
        ("h@S(0)       = gelu", "h@S(0)       = relu"),
        ("method = grouped", "method = padded"),  # one line's price
        ("program mixed", "program other"),
        ("    # a line more\n", ""),
    ]
    sizes = []
    for k, (old, new) in enumerate(edits):
        assert old in last.text
        before, text, since = last.analysis, last.analysed, last.analysis.version if last.analysis else None
        last.edit(last.text.replace(old, new, 1))
        if k == 5:
            desk.told.clear()  # it was forgotten: then all is told
        found = told(since)
        got = analysis_from(found, last.version, before, moved(text, last.text))
        (whole,) = ask(do="check", text=last.text, path=path)
        assert got == analysis_from(whole["analysis"], last.version), new
        last.accept(got)
        sizes.append(sum(len(p.get("lines", ())) for p in found["programs"]))
    assert sizes[:2] == [1, 0] and sizes[3] == sizes[-1] == 0 and min(sizes[2], sizes[4], sizes[5]) > 10
    last.edit(last.text.replace("method = padded", "method = grouped"))
    programs = told(last.analysis.version if last.analysis else None)["programs"]
    assert sum(len(p.get("lines", ())) for p in programs) == 1


def test_texts_at_the_same_path_are_told_apart() -> None:
    desk = Desk()
    texts = {"one": TEXT, "two": TEXT.replace("method = grouped", "method = padded")}
    alone = {k: ask(do="check", text=text)[0]["analysis"]["programs"][0]["sync_s"] for k, text in texts.items()}
    assert alone["one"] != alone["two"]
    found: list[Object] = []
    for key, text in texts.items():
        request = {"do": "check", "path": "x.hap", "document": key, "version": 3, "text": text, "since": 2}
        answer(request, found.append, desk)
    for key, seconds in alone.items():
        answer(
            {"do": "overview", "path": "x.hap", "document": key, "version": 3, "program": "mixed"}, found.append, desk
        )
        assert found[-1]["sync_s"] == pytest.approx(seconds)
    edited = f"{texts['one']}# more\n"
    answer(
        {"do": "check", "path": "x.hap", "document": "one", "version": 4, "text": edited, "since": 3},
        found.append,
        desk,
    )
    assert found[-1]["analysis"]["programs"][0]["lines"] == {}  # nothing costs something else than in the same document


def test_what_no_json_can_say_is_an_answer_too() -> None:
    code = (
        "from hapdsl.explore import overview, service\n"
        "overview.overview = lambda desk, request: {'sync_s': float('inf')}\n"
        "service.main()\n"
    )
    request = {"id": 1, "do": "overview", "path": "x.hap", "text": "# x\n"}
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(), text=True
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(f"{json.dumps(request)}\n")
    child.stdin.flush()
    found = json.loads(child.stdout.readline())
    child.stdin.close()
    assert child.wait(timeout=10) == 0
    child.stdout.close()
    assert found["id"] == 1 and "not JSON compliant" in found["failed"]


def test_findings_elsewhere_are_not_here(tmp_path: Path) -> None:
    (tmp_path / "part.hap").write_text("model {\n")
    (found,) = ask(do="check", text='import "part.hap"\n', path=str(tmp_path / "main.hap"))
    findings = found["analysis"]["findings"]
    assert findings and not any(f["here"] for f in findings)


def test_a_process_answers_and_ends_with_its_input() -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "hapdsl.explore.service"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    )
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write("this is no JSON\n" + json.dumps({"id": 1, "do": "check", "path": "s.hap", "text": TEXT}) + "\n")
    child.stdin.flush()
    found = json.loads(child.stdout.readline())
    assert found["id"] == 1 and [p["state"] for p in found["analysis"]["programs"]] == ["proven", "sketch"]
    child.send_signal(signal.SIGINT)  # ctrl+c is for whoever has the terminal
    child.stdin.write(json.dumps({"id": 2, "do": "plan", "path": "s.hap", "text": TEXT}) + "\n")
    child.stdin.flush()
    assert json.loads(child.stdout.readline())["started"]
    child.stdin.close()  # in the middle of a search
    assert child.wait(timeout=10) == 0
    child.stdout.close()


def test_killing_a_search_ends_it_at_once() -> None:
    async def work() -> None:
        heard: list[Object] = []
        missed: list[str] = []
        helper = Subprocess(heard.append, missed.append, True)
        helper.ask({"id": 1, "do": "plan", "path": "s.hap", "text": TEXT})
        while not heard:
            await asyncio.sleep(0.02)
        assert helper.process is not None
        started = time.monotonic()
        helper.kill()
        await helper.process.wait()
        assert time.monotonic() - started < 1
        count = len(heard)
        await helper.gone()
        assert len(heard) == count and missed == [] and not alive(helper.process.pid)

    run(work())


def test_a_checker_that_dies_is_said_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / "small.hap"
    file.write_text(TEXT)

    async def work() -> None:
        async with opened(file, connect=Subprocess, search=True) as (app, pilot):
            checker, planner = app.work.checker, app.work.planner
            assert isinstance(checker, Subprocess) and checker.process is not None
            os.kill(checker.process.pid, signal.SIGKILL)
            await settled(app, pilot, lambda: bool(app._notifications))
            assert "the checker stopped (signal 9)" in next(iter(app._notifications)).message
            app.editor.go_to(1, 1)
            await pilot.press("#")
            await settled(app, pilot)
            assert app.session.rows()[0].seconds is not None and not app.session.rows()[0].old
            second = app.work.checker
            assert isinstance(second, Subprocess) and second is not checker and second.process is not None
            if isinstance(planner, Subprocess) and planner.process is not None and app.work.planner is planner:
                os.kill(planner.process.pid, signal.SIGKILL)
                await settled(app, pilot, lambda: not app.work.searching)
                assert "stopped by itself" in app.work.outcome or app.work.outcome == "done"
            pids = [h.process.pid for h in (second, planner) if isinstance(h, Subprocess) and h.process is not None]
        assert not any(map(alive, pids))  # quitting leaves no process

    run(work())


def test_a_text_that_kills_the_checker_is_tried_twice_only() -> None:
    sent: list[tuple[int, str, int]] = []
    checks = Checks(lambda *request: sent.append(request))
    checks.want("d", 1)
    checks.want("d", 2)
    assert sent == [(1, "d", 1)] and checks.landed(1) == ("d", 1)
    assert sent[1:] == [(2, "d", 2)] and checks.crashed()
    assert sent[2:] == [(3, "d", 2)] and not checks.crashed()
    assert checks.idle and checks.landed(3) is None
    checks.want("d", 3)
    assert checks.landed(4) == ("d", 3) and checks.idle


def test_the_screen_needs_neither_torch_nor_numpy_and_nothing_else_needs_textual() -> None:
    code = (
        "import sys, hapdsl.explore.app\n"
        "print([m for m in ('torch', 'numpy', 'scipy', 'lark', 'networkx') if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
    code = (
        "import sys, hapdsl.cli, hapdsl.workbench, hapdsl.search.planner, hapdsl.draw.program, hapdsl.explore, hapdsl.explore.service\n"
        "import hapdsl.explore.analyse, hapdsl.explore.planning, hapdsl.explore.work, hapdsl.explore.state, hapdsl.explore.workers\n"
        "print([m for m in ('torch', 'textual') if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_without_a_terminal_it_says_so(tmp_path: Path) -> None:
    file = tmp_path / "small.hap"
    file.write_text(TEXT)
    code = (
        "import sys\nfrom hapdsl.explore import explore\nfrom hapdsl.lang.diagnostics import HapError\n"
        "for file in sys.argv[1:]:\n    try:\n        explore(file)\n    except HapError as stop:\n        print([d.code for d in stop.diagnostics])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(file), str(tmp_path / "none.hap"), str(tmp_path)],
        capture_output=True, text=True, env=environment(), stdin=subprocess.DEVNULL, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["['HAP820']", "['HAP120']", "['HAP121']"]
