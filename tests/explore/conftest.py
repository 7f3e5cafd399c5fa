"""The explorer under test: a helper in this process, and a wait for everything to settle."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from hapdsl.explore.app import ExploreApp, session_of
from hapdsl.explore.desk import Desk
from hapdsl.explore.service import answer
from hapdsl.explore.workers import Answered, Died, Object
from hapdsl.lang.amounts import in_seconds
from hapdsl.workbench import Workbench

FILES = Path(__file__).parent / "files"


class Local:
    """A helper that does the same work on a thread of this process."""

    def __init__(self, answered: Answered, died: Died, later: bool = False) -> None:
        self.answered, self.died, self.later = answered, died, later
        self.asked: list[Object] = []
        self.killed = False
        self.desk = Desk()
        self.thread = ThreadPoolExecutor(1)  # in order, as a process does
        self.left = 0

    def ask(self, request: Object) -> None:
        self.asked.append(request)
        loop = asyncio.get_running_loop()

        def say(found: Object) -> None:
            if not self.killed and not loop.is_closed():
                loop.call_soon_threadsafe(self.answered, found)

        def work() -> None:
            self.left -= 1
            answer(request, say, self.desk, lambda: self.left > 0)

        self.left += 1
        loop.run_in_executor(self.thread, work)

    def kill(self) -> None:
        self.killed = True
        self.thread.shutdown(wait=False, cancel_futures=True)

    def hold(self, on: bool) -> bool:
        return True

    async def gone(self) -> None:
        pass


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A copy of the small file, to be changed."""
    return Path(shutil.copy(FILES / "small.hap", tmp_path / "small.hap"))


def prices(path: Path, name: str = "mixed") -> tuple[str, dict[int, str]]:
    """What the cost model says of a program, as the screen writes it: the step, and each line by its number."""
    bench = Workbench(path)
    checked, _, cost = bench.cost(bench.program(name))
    lines: dict[int, float] = {}
    for k, instruction in enumerate(checked.program.instructions):
        lines[instruction.span.line] = lines.get(instruction.span.line, 0.0) + float(cost.per_instruction_s[k].max())
    return in_seconds(cost.sync_s), {line: in_seconds(seconds) for line, seconds in lines.items() if seconds > 0}


@asynccontextmanager
async def opened(
    path: Path, size: tuple[int, int] = (80, 24), **options: Any
) -> AsyncIterator[tuple[ExploreApp, Pilot[int]]]:
    """The application on a file, once it has settled."""
    options.setdefault("connect", Local)
    options.setdefault("search", False)
    options.setdefault("summary", False)
    app = ExploreApp(session_of(path), **options)
    app.haste = 0.05
    async with app.run_test(size=size) as pilot:
        await settled(app, pilot)
        yield app, pilot


async def settled(
    app: ExploreApp, pilot: Pilot[int], until: Callable[[], bool] | None = None, seconds: float = 40
) -> None:
    """Wait until nothing is checked or formatted any more, and `until` holds."""
    calm = 0
    for _ in range(int(seconds / 0.02)):
        await pilot.pause(0.02)
        busy = not app.work.idle or app._pending or app.session.document.checking
        calm = 0 if busy or (until is not None and not until()) else calm + 1
        if calm >= 2:
            return
    raise AssertionError(
        f"still busy: checks {app.work.checks.flying} {app.work.checks.waiting}, search {app.session.searching!r} {app.work.outcome!r}"
    )


def run(work: Coroutine[Any, Any, None], seconds: float = 110) -> None:
    """Run one test's coroutine."""
    asyncio.run(asyncio.wait_for(work, seconds))


def on_screen(app: ExploreApp) -> str:
    """What the terminal shows, as text."""
    return "\n".join("".join(s.text for s in line) for line in app.screen._compositor.render_strips())


MULTIPLY, GATHER = 31, 27  # the lines `z@S(0) = matmul(h@S(0), w2@R)` and `w1@R = all_gather(…)` of small.hap


def below(pid: int) -> Iterator[int]:
    """A process and all that it started."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from below(int(child))
