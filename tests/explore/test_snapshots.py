"""Pictures of the screens. `pytest --snapshot-update` makes them again; look at them before committing."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from hapdsl.explore.analyse import analyse
from hapdsl.explore.app import ExploreApp
from hapdsl.explore.protocol import analysis_from
from hapdsl.explore.state import BASELINES, SYNTHESISED, Document, Plan, Session
from hapdsl.explore.workers import Object

from .conftest import FILES, Local, settled

SIZES = {"small": (80, 24), "wide": (150, 42)}
TEXT = (FILES / "small.hap").read_text()


ANSWERS = FILES / "answers.json"


class Recorded(Local):
    """Answers as they were recorded, so that another price model changes no picture. `--snapshot-update` records them anew."""

    answers: dict[str, list[Object]] = {}  # noqa: RUF012
    update = False

    def ask(self, request: Object) -> None:
        said = {k: v for k, v in request.items() if k not in ("id", "version")}
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

    texts: dict[tuple[object, object], str] = {}  # noqa: RUF012


@pytest.fixture(scope="module", autouse=True)
def recorded(request: pytest.FixtureRequest) -> Iterator[None]:
    Recorded.update = bool(request.config.getoption("--snapshot-update"))
    Recorded.answers = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    yield
    if Recorded.update:
        ANSWERS.write_text(json.dumps(Recorded.answers, sort_keys=True) + "\n")


@pytest.fixture(autouse=True)
def on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that is open exists: the application looks every few seconds, and says so where it has gone."""
    (tmp_path / "small.hap").write_text(TEXT)
    monkeypatch.chdir(tmp_path)


def analysed(text: str, path: str) -> Object:
    """What the checker says of a text, recorded likewise."""
    key = f"analysis {path}"
    if Recorded.update:
        Recorded.answers[key] = [analyse(text, path)]
    return Recorded.answers[key][0]


def app(**options: Any) -> ExploreApp:
    """The small file, named as on every machine, with a plan and a baseline that are always the same."""
    session = Session()
    session.open(Document("file", TEXT, path=Path("small.hap"), saved=TEXT))
    found = ExploreApp(session, connect=Recorded, search=False, **{"summary": False, **options})
    found.animation_level = "none"
    return found


def frozen(then: Callable[[ExploreApp, Pilot[int]], Any] | None = None, dark: bool = True) -> Callable[[Pilot[int]], Any]:
    async def before(pilot: Pilot[int]) -> None:
        it = pilot.app
        assert isinstance(it, ExploreApp)
        it.haste = 0.05
        it.theme = "textual-dark" if dark else "textual-light"
        it.editor.cursor_blink = False
        await settled(it, pilot)
        for name, gap in (("mlp_plan", 0.0061), ("dp_even", None)):
            key, text = name, TEXT.replace("program mixed", f"program {name}")
            document = it.session.open(Document(key, text, suggested=Path(f"mlp.{name}.hap")))
            origin = SYNTHESISED if gap is not None else "baseline"
            it.session.put(Plan(key, name, origin, BASELINES.get(name, name), 1.09e-3 if gap else None, gap, "these shares"))
            it.session.accept(key, analysis_from(analysed(text, document.name), document.version))
            it.session.plans.pop((key, "open"))
        it.refresh_all()
        if then is not None:
            await then(it, pilot)
            await settled(it, pilot)
        await pilot.pause(0.1)

    return before


async def broken(it: ExploreApp, pilot: Pilot[int]) -> None:
    it.editor.go_to(31, 35)
    await settled(it, pilot)  # it is where it scrolls to before what is wrong takes a part of its height
    await pilot.press("left_parenthesis")
    await settled(it, pilot)


async def unprovable(it: ExploreApp, pilot: Pilot[int]) -> None:
    it.editor.put(TEXT.replace("z@S(0)       = matmul(h@S(0), w2@R)", "z@S(0)       = matmul(h@S(0), w2@S(0))"))
    it.editor.go_to(31)


async def at_a_cost(it: ExploreApp, pilot: Pilot[int]) -> None:
    it.editor.go_to(28)
    await settled(it, pilot, lambda: it.line_facts is not None and it.line_facts[0][3] == 28)
    if it.size.width > 140:
        await settled(it, pilot, lambda: it.asked is not None and it.asked[1].done)


async def help_(it: ExploreApp, pilot: Pilot[int]) -> None:
    await pilot.press("f1")


async def quitting(it: ExploreApp, pilot: Pilot[int]) -> None:
    it.editor.go_to(1)
    await pilot.press("#")
    await settled(it, pilot)
    await pilot.press("ctrl+q")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("name", "then", "dark"),
    [
        ("cost", at_a_cost, True), ("broken", broken, True),
        ("unprovable", unprovable, True), ("help", help_, True), ("quit", quitting, True),
    ],
)  # fmt: skip
def test_screens(snap_compare: Any, size: str, name: str, then: Any, dark: bool) -> None:
    assert snap_compare(app(), terminal_size=SIZES[size], run_before=frozen(then, dark))


def pressing(*keys: str) -> Callable[[ExploreApp, Pilot[int]], Any]:
    async def then(it: ExploreApp, pilot: Pilot[int]) -> None:
        await pilot.press("escape", *keys)

    return then


async def other_choices(it: ExploreApp, pilot: Pilot[int]) -> None:
    it.editor.go_to(31)
    await settled(it, pilot, lambda: it.asked is not None and it.asked[1].done)


@pytest.mark.parametrize(
    ("name", "then", "size", "summary"),
    [
        ("summary", None, "small", True), ("summary", None, "wide", True), ("alternatives", other_choices, "wide", False),
        ("compare", pressing("d"), "wide", False), ("compare", pressing("d"), "small", False),
        ("shares", pressing("h"), "wide", False), ("timeline", pressing("t"), "small", False),
    ],
)  # fmt: skip
def test_views(snap_compare: Any, size: str, name: str, then: Any, summary: bool) -> None:
    assert snap_compare(app(summary=summary), terminal_size=SIZES[size], run_before=frozen(then))
