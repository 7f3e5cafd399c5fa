"""Plans beside each other: marked, compared line by line, and tried on other hardware."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from hapdsl.cost.comparison import aligned
from hapdsl.explore.app import ExploreApp
from hapdsl.explore.widgets.compare import Compare
from hapdsl.explore.widgets.whatif import WhatIf
from hapdsl.explore.workers import Object
from hapdsl.workbench import Workbench

from .conftest import Local, on_screen, opened, run, settled


@pytest.fixture
def pair(small: Path) -> Path:
    """The small file with a second program that differs in how w1 is gathered and in the shares of the batch."""
    text = small.read_text()
    program = text[text.index("program mixed") : text.index("program open")]
    second = (
        program.replace("mixed", "padded")
        .replace("method = grouped", "method = padded")
        .replace("[76, 76, 26, 26, 26, 26]", "[43, 43, 43, 43, 42, 42]")
    )
    small.write_text(text.replace("program open", f"{second}program open"))
    return small


def compare(app: ExploreApp) -> Compare:
    return app.query_one(Compare)


def test_two_plans_are_compared(pair: Path) -> None:
    async def work() -> None:
        async with opened(pair, size=(150, 60)) as (app, pilot):
            bench = Workbench(pair)
            (a, _, ca), (b, _, cb) = (bench.cost(bench.program(n)) for n in ("mixed", "padded"))
            await pilot.press("escape", "space", "down", "space")
            await settled(app, pilot, lambda: len(app.session.marked) == 2)
            assert "[1] mixed" in on_screen(app) and "[2] padded" in on_screen(app)
            await pilot.press("d")
            await settled(app, pilot, lambda: compare(app).answer is not None)
            seen = compare(app).plain
            assert "A mixed on box" in seen and f"({(cb.sync_s / ca.sync_s - 1) * 100:+.1f} %)" in seen
            (gather,) = [r for r in seen.splitlines() if r.startswith("w1 |")]
            assert "method = grouped" in gather and "method = padded" in gather
            assert "b1.new" not in seen
            rows = aligned(a.program, ca, b.program, cb)
            told = compare(app).answer["pairs"][0]["lines"]
            assert [r["tensor"] for r in told] == [r.tensor for r in rows]
            assert sum(r.a_s for r in rows) == pytest.approx(sum(float(s.max()) for s in ca.per_instruction_s))
            assert sum(r.b_s for r in rows) == pytest.approx(sum(float(s.max()) for s in cb.per_instruction_s))
            await pilot.press("equals_sign")
            assert "b1.new" in compare(app).plain
            await pilot.press("tab")
            stages = compare(app).answer["pairs"][0]["stages"]
            assert sum(sum(s["a"] or [0]) for s in stages) == pytest.approx(ca.sync_s)
            assert sum(sum(s["b"] or [0]) for s in stages) == pytest.approx(cb.sync_s)
            assert "all_gather w1" in compare(app).plain
            await pilot.press("tab")
            assert "shares of batch" in compare(app).plain and "host.t4.3" in compare(app).plain
            await pilot.press("escape")
            assert app.view == "texts"

    run(work())


def test_sliders_price_all_plans_again_and_say_who_wins(pair: Path) -> None:
    def price(name: str, **swaps: tuple[str, str]) -> float:
        text = pair.read_text()
        for old, new in swaps.values():
            assert old in text
            text = text.replace(old, new)
        bench = Workbench(pair, text)
        return bench.cost(bench.program(name))[2].sync_s

    async def work() -> None:
        async with opened(pair, size=(150, 60)) as (app, pilot):
            await pilot.press("escape", "w")
            pane = app.query_one(WhatIf)
            await settled(app, pilot, lambda: "strip" in pane.answer)
            assert [s["name"] for s in pane.sliders] == ["a100", "t4", "latency", "link"] and pane.slider == "a100"
            assert "12 GB/s" in pane.plain and "fast" in pane.plain
            await pilot.press("up")  # the last one: the link
            await pilot.press(*["left"] * 4)
            await settled(
                app, pilot, lambda: pane.answer["now"]["0"] == pytest.approx(price("mixed", a=("12 GB/s", "6 GB/s")))
            )
            assert pane.answer["now"]["1"] == pytest.approx(price("padded", a=("12 GB/s", "6 GB/s")))
            assert "6 GB/s" in pane.plain and "×0.5" in pane.plain
            await settled(app, pilot, lambda: pane.answer["strip"]["slider"] == "link")
            points = pane.answer["strip"]["points"]
            at = min(range(len(points)), key=lambda k: abs(points[k] - 0.5))
            assert pane.answer["strip"]["seconds"][at] == pytest.approx(
                [pane.answer["now"]["0"], pane.answer["now"]["1"]]
            )
            await pilot.press("0")
            await settled(app, pilot, lambda: pane.answer["now"] == pytest.approx(pane.answer["base"]))
            row = pane.plain.splitlines()[3]
            await pilot.click("#whatif Static", offset=(row.index("●") + 4, 3))  # the second slider, a factor of two
            assert pane.slider == "t4" and pane.factors == {"t4": 2.0}
            await settled(
                app,
                pilot,
                lambda: (
                    pane.answer["now"]["0"]
                    == pytest.approx(price("mixed", a=("8.1 TFLOP/s", "16.2 TFLOP/s"), b=("65 TFLOP/s", "130 TFLOP/s")))
                ),
            )

    run(work())


def test_one_plan_has_nothing_beside_it(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            await pilot.press("escape", "d")
            await settled(app, pilot)
            assert "There is one plan with a price" in on_screen(app)
            await pilot.press("n", "tab", "equals_sign")
            assert "There is one plan with a price" in on_screen(app)
            await pilot.press("w")
            await settled(app, pilot, lambda: app.query_one(WhatIf).sliders != [])
            await settled(app, pilot, lambda: "strip" in app.query_one(WhatIf).answer)
            assert "mixed is the fastest all the way" in app.query_one(WhatIf).plain

    run(work())


def test_what_goes_wrong_is_said_where_its_answer_would_stand(pair: Path) -> None:
    class Fails(Local):
        times: ClassVar[dict[str, int]] = {"whatif": 1, "compare": 1}

        def ask(self, request: Object) -> None:
            self.times[request["do"]] = self.times.get(request["do"], 0) - 1
            if self.times[request["do"]] == 0:
                self.answered({"id": request["id"], "failed": "KeyError: 'f32'", "done": True})
            else:
                super().ask(request)

    async def work() -> None:
        async with opened(pair, connect=Fails) as (app, pilot):
            await pilot.press("escape", "w")
            await settled(app, pilot, lambda: "KeyError: 'f32'" in app.query_one(WhatIf).plain)
            await pilot.press("escape", "w")  # whoever comes back asks again
            await settled(app, pilot, lambda: bool(app.query_one(WhatIf).sliders))
            await pilot.press("escape", "d")
            await settled(app, pilot, lambda: "KeyError: 'f32'" in on_screen(app))
            await pilot.press("escape", "d")
            await settled(app, pilot, lambda: compare(app).answer is not None)

    run(work())
