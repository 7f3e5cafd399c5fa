"""Pictures of the screens. `pytest --snapshot-update` makes them again; look at them before committing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from hapdsl.explore.analyse import analyse
from hapdsl.explore.app import ExploreApp
from hapdsl.explore.protocol import analysis_from
from hapdsl.explore.state import BASELINES, SYNTHESISED, Document, Plan, Session

from .conftest import FILES, Local, settled

SIZES = {"small": (80, 24), "wide": (150, 42)}
TEXT = (FILES / "small.hap").read_text()


def app() -> ExploreApp:
    """The small file, named as on every machine, with a plan and a baseline that are always the same."""
    session = Session()
    session.open(Document("file", TEXT, path=Path("small.hap"), saved=TEXT))
    found = ExploreApp(session, connect=Local, search=False, summary=False)
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
            it.session.accept(key, analysis_from(analyse(text, document.name), document.version))
            it.session.plans.pop((key, "open"))
        it.refresh_all()
        if then is not None:
            await then(it, pilot)
            await settled(it, pilot)
        await pilot.pause(0.1)

    return before


async def broken(it: ExploreApp, pilot: Pilot[int]) -> None:
    it.editor.go_to(31, 35)
    await pilot.press("left_parenthesis")
    await settled(it, pilot)


async def unprovable(it: ExploreApp, pilot: Pilot[int]) -> None:
    it.editor.put(TEXT.replace("z@S(0)       = matmul(h@S(0), w2@R)", "z@S(0)       = matmul(h@S(0), w2@S(0))"))
    it.editor.go_to(31)


async def at_a_cost(it: ExploreApp, pilot: Pilot[int]) -> None:
    it.editor.go_to(28)


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
        ("light", at_a_cost, False), ("cost", at_a_cost, True), ("broken", broken, True),
        ("unprovable", unprovable, True), ("help", help_, True), ("quit", quitting, True),
    ],
)  # fmt: skip
def test_screens(snap_compare: Any, size: str, name: str, then: Any, dark: bool) -> None:
    assert snap_compare(app(), terminal_size=SIZES[size], run_before=frozen(then, dark))
