"""Pictures of the screens, as characters and colours, at three sizes. `pytest --snapshot-update` makes them again; look at them before committing."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rich.style import Style
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from textual.pilot import Pilot
from textual.widgets import Input

from hapdsl.explore.analyse import analyse
from hapdsl.explore.app import ExploreApp
from hapdsl.explore.log import Log
from hapdsl.explore.protocol import analysis_from
from hapdsl.explore.session import BASELINE, BASELINES, SYNTHESISED, Plan, Session
from hapdsl.explore.state import Document
from hapdsl.explore.widgets.timeline import Timeline
from hapdsl.explore.workers import Object

from .conftest import FILES, Local, run, settled

SIZES = {"small": (80, 24), "middle": (120, 40), "wide": (200, 60)}
TEXT = (FILES / "small.hap").read_text()
COSTS, MULTIPLY = 28, 31  # lines of it


ANSWERS = FILES / "answers.json"


class Recorded(Local):
    """Answers as they were recorded, so that another price model changes no picture. `--snapshot-update` records them anew."""

    answers: ClassVar[dict[str, list[Object]]] = {}
    texts: ClassVar[dict[tuple[object, object], str]] = {}  # of a file in a version
    update = False

    def ask(self, request: Object) -> None:
        request = {k: v for k, v in request.items() if k != "since"}  # so each answer tells all
        said = {k: v for k, v in request.items() if k not in ("id", "version", "document")}
        if "plans" in said:
            said["plans"] = [{k: v for k, v in plan.items() if k != "document"} for plan in said["plans"]]
        if "text" not in said and "plans" not in said:
            said["text"] = Recorded.texts.get((request.get("path"), request.get("version")), "")
        Recorded.texts[request.get("path"), request.get("version")] = said.get("text", "")
        key = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:20]
        if Recorded.update:
            found: list[Object] = []

            def record(answer: Object) -> None:
                found.append({k: v for k, v in answer.items() if k != "id"})
                if answer.get("done") and not answer.get("lost"):
                    Recorded.answers[key] = found
                self.answered(answer)

            helper = Local(record, self.died)
            helper.desk, helper.thread = self.desk, self.thread
            helper.ask(request)
            return
        assert key in Recorded.answers, f"{request['do']} was never recorded: pytest --snapshot-update"
        for answer in Recorded.answers[key]:
            asyncio.get_running_loop().call_soon(self.answered, {"id": request["id"], **answer})


@pytest.fixture(scope="module", autouse=True)
def recorded(request: pytest.FixtureRequest) -> Iterator[None]:
    Recorded.update = bool(request.config.getoption("--snapshot-update"))
    Recorded.answers = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    yield
    if Recorded.update:
        ANSWERS.write_text(json.dumps(Recorded.answers, sort_keys=True) + "\n")


class Screen(SingleFileSnapshotExtension):
    """One text file a picture."""

    _file_extension = "txt"
    _write_mode = WriteMode.TEXT

    def serialize(self, data: Any, **_: Any) -> str:
        return str(data)


def picture(app: ExploreApp) -> str:
    """What is on the screen: the characters; the styles by letters, with how many cells of each; what the letters mean."""
    letters: dict[str, str] = {}
    rows, styles = [], []
    for strip in app.screen._compositor.render_strips():
        runs: list[tuple[str, int]] = []
        for segment in strip:
            letter = letters.setdefault(
                str((segment.style or Style()).without_color + _colours(segment.style)), chr(ord("A") + len(letters))
            )
            count = segment.cell_length + (runs.pop()[1] if runs and runs[-1][0] == letter else 0)
            runs.append((letter, count))
        rows.append("".join(s.text for s in strip).rstrip())
        styles.append(" ".join(f"{n}{letter}" for letter, n in runs))
    return "\n".join([*rows, "", *styles, "", *(f"{letter} {style}" for style, letter in letters.items()), ""])


def _colours(style: Style | None) -> Style:
    return Style(color=style.color, bgcolor=style.bgcolor) if style is not None else Style()


@asynccontextmanager
async def standing(size: tuple[int, int], folder: Path) -> AsyncIterator[tuple[ExploreApp, Pilot[int]]]:
    """The small file with a plan, a baseline and a search that are always the same; nothing blinks or slides."""
    file = folder / "small.hap"
    file.write_text(TEXT)  # the application looks every few seconds, and says so where it has gone
    session = Session()
    session.open(Document("file", TEXT, path=Path(file.name), saved=TEXT))
    app = ExploreApp(session, connect=Recorded, search=False)
    app.animation_level, app.haste = "none", 0.05
    app.work.log = Log(clock=iter([0.0, 0.5, 1.0, 2.0, 2.0]).__next__)
    app.work.log.note("baselines", 1.5e-3, None)
    app.work.log.note("programs", 1.2e-3, 1.0e-3)
    app.work.log.proven({"bound_s": 1.09e-3, "gap": 0.0061, "nodes": 12, "scope": "these shares"})
    app.work.log.ended, app.work.outcome = 2.5, "done"
    async with app.run_test(size=size) as pilot:
        app.theme = "textual-dark"
        app.editor.cursor_blink = False
        await settled(app, pilot)
        for name, gap in (("mlp_plan", 0.0061), ("dp_even", None)):
            text = TEXT.replace("program mixed", f"program {name}").replace("grouped", "grouped" if gap else "padded")
            document = session.open(Document(name, text, suggested=Path(f"mlp.{name}.hap")))
            origin = SYNTHESISED if gap is not None else BASELINE
            session.put(
                Plan(name, name, origin, BASELINES.get(name, name), 1.09e-3 if gap else None, gap, "these shares")
            )
            session.accept(name, analysis_from(analysed(text, document.name), document.version))
            session.plans.pop((name, "open"))
        app.refresh_all()
        await settled(app, pilot)
        yield app, pilot


def analysed(text: str, path: str) -> Object:
    """What the checker says of a text, recorded likewise."""
    key = f"analysis {path}"
    if Recorded.update:
        Recorded.answers[key] = [analyse(text, path)]
    return Recorded.answers[key][0]


async def shots(size: tuple[int, int], folder: Path) -> dict[str, str]:
    """One session of a person who looks at everything; a picture of each screen."""
    found: dict[str, str] = {}
    async with standing(size, folder) as (app, pilot):

        async def shot(name: str) -> None:
            for box in app.screen.query(Input):
                box.cursor_blink = False
            await settled(app, pilot)
            app.clear_notifications()
            await pilot.pause()
            found[name] = picture(app)

        async def pressing(name: str, *keys: str) -> None:
            await pilot.press("escape", *keys)
            await shot(name)

        await settled(app, pilot, lambda: bool(app.facts))
        await shot("summary")
        await pilot.press("enter")
        app.editor.go_to(COSTS)
        await settled(app, pilot, lambda: app.line_facts is not None and app.line_facts[0][3] == COSTS)
        if size[0] >= 140:
            await settled(app, pilot, lambda: app.asked is not None and app.asked[1].done)
        await shot("program")
        await pressing("folded", "z")
        app.action_toggle_dark()
        await shot("folded light")
        app.action_toggle_dark()
        await pilot.press("z")
        app.editor.go_to(MULTIPLY)
        await pilot.press("4")
        await settled(app, pilot, lambda: app.asked is not None and app.asked[0][3] == "z" and app.asked[1].done)
        await shot("alternatives")
        await pilot.press("3")
        for name, key in (("shares", "h"), ("compare", "d"), ("what if", "w"), ("search", "v")):
            await pressing(name, key)
            await pilot.press("escape")
            assert app.view == "texts" and app.editor.text == TEXT  # nothing was typed into it
        for name, key in (("help", "f1"), ("palette", "ctrl+p")):
            await pressing(name, key)
            await pilot.press("escape")
        app.query_one(Timeline).display = False
        await pressing("timeline", "t")
        await pilot.press("t", "ctrl+g", *"relu_")
        await shot("find")
        await pilot.press("escape")
        assert app.focused is app.editor and app.editor.text == TEXT
        app.editor.go_to(MULTIPLY, 35)
        await settled(app, pilot)  # it is where it scrolls to before what is wrong takes a part of its height
        await pilot.press("left_parenthesis")
        await shot("broken")
        await pilot.press("ctrl+q")
        await shot("quit")
        await pilot.press("escape", "ctrl+z")
        app.editor.put(TEXT.replace("z@S(0)       = matmul(h@S(0), w2@R)", "z@S(0)       = matmul(h@S(0), w2@S(0))"))
        await shot("unprovable")
    return found


@pytest.mark.timeout(300)  # sixteen screens: some eight seconds, but of a machine that may have much else to do
@pytest.mark.parametrize("size", SIZES)
def test_screens(snapshot: SnapshotAssertion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str) -> None:
    monkeypatch.chdir(tmp_path)  # the file is called the same everywhere
    found: dict[str, str] = {}

    async def work() -> None:
        found.update(await shots(SIZES[size], tmp_path))

    run(work(), 280)
    for name, seen in found.items():
        assert seen == snapshot(name=name, extension_class=Screen)
