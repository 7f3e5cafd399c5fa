"""One case of `benchmarks.explorer` in this process: `python -m benchmarks.explorer_measure '{"case": …, "folder": …}'` prints its rows as JSON."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import json
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from textual import events
from textual.pilot import Pilot
from textual.widgets import Input

from benchmarks.apart import ROOT
from benchmarks.explorer import row
from benchmarks.process import alive, below, cpu
from benchmarks.rows import Row
from hapdsl.explore.app import ExploreApp, session_of
from hapdsl.explore.widgets.plans import PlanList
from hapdsl.explore.workers import Subprocess

STARTS, EDITS, KEYS, PAGES, SEARCHES = 7, 15, 60, 30, 3
QUICK = 2, 3, 12, 5, 1
PACE = 0.06  # seconds between two keys: faster than anybody types
WAIT = 120.0
Sample = tuple[float, float]
Moment = tuple[float, float, float]  # the clock; CPU of screen and checker; CPU of the screen


# -- in a terminal -----------------------------------------------------------------


def paint(folder: Path) -> list[Row]:
    """The first frame of `hapdsl explore`, on a model (a search begins with it) and on a plan."""
    made = []
    for words, file in (("a model", ROOT / "programs/models/gpt.hap"), ("a plan", folder / "gpt24.hap")):
        samples, ends, torch = [], [], False
        painted(file)  # once for the caches of files
        for _ in range(STARTS):
            seen, ended, has_torch = painted(file)
            samples.append(seen)
            ends.append(ended)
            torch = torch or has_torch
        note = "torch was imported" if torch else "torch isn't imported"
        made.append(row(f"first paint, {words}", 0.7, samples, note))
        made.append(row(f"quitting right after, {words}", 1.0, ends, "no process is left"))
    return made


def painted(file: Path) -> tuple[Sample, Sample, bool]:
    """Seconds to the first whole frame and, from ctrl+q, to the end of all processes; whether torch is in the screen's process.

    Raises TimeoutError where nothing more is painted, or a process is left.
    """
    began = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        os.execvpe(
            sys.executable,
            [sys.executable, "-m", "hapdsl", "explore", str(file)],
            {**os.environ, "TERM": "xterm-256color"},
        )
    out = b""
    while not (file.name.encode() in out and b"Quit" in out):
        said = _read(terminal, WAIT)
        if not said:
            raise TimeoutError("the first frame is never whole")
        out += said
    shown = (time.perf_counter() - began, cpu(pid))
    torch = "torch" in Path(f"/proc/{pid}/maps").read_text()
    _drain(terminal, 1.0)
    started = list(below(pid))
    asked, used = time.perf_counter(), cpu(pid)
    os.write(terminal, b"\x11")
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        with suppress(OSError):
            _read(terminal, 0.01)
        used = max(used, cpu(pid))
    os.waitpid(pid, 0)
    os.close(terminal)
    while any(map(alive, started)):
        time.sleep(0.002)
        if time.perf_counter() - asked > WAIT:
            raise TimeoutError("a process is left")
    return shown, (time.perf_counter() - asked, used - shown[1]), torch


def _read(terminal: int, seconds: float) -> bytes:
    ready, _, _ = select.select([terminal], [], [], seconds)
    return os.read(terminal, 1 << 16) if ready else b""


def _drain(terminal: int, seconds: float) -> None:
    until = time.perf_counter() + seconds
    while (left := until - time.perf_counter()) > 0:
        _read(terminal, left)


# -- in the application ------------------------------------------------------------


UNDRAWN = 0.04  # seconds within which a frame comes if anything is to be drawn; Textual draws sixty a second


class Watched(ExploreApp):
    """Says when a frame is out in which something holds; or since when it holds, where that changes nothing on the screen (no frame comes then)."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.awaited: list[tuple[Callable[[], bool], asyncio.Future[Moment]]] = []
        self.held: dict[asyncio.Future[Moment], Moment] = {}  # since when what is awaited holds
        self.silence = 0.0  # the longest time that the event loop didn't get to anything

    def post_display_hook(self) -> None:
        now = self.now()
        for holds, future in list(self.awaited):
            if holds():
                self.told(future, now)

    def told(self, future: asyncio.Future[Moment], when: Moment) -> None:
        self.awaited = [entry for entry in self.awaited if entry[1] is not future]
        self.held.pop(future, None)
        if not future.done():
            future.set_result(when)

    def now(self) -> Moment:
        return time.perf_counter(), self.used(), time.process_time()

    def used(self) -> float:
        """CPU seconds of the screen and the checker."""
        checker = self.work.checker
        process = checker.process if isinstance(checker, Subprocess) else None
        return time.process_time() + (cpu(process.pid) if process is not None else 0.0)

    async def after(self, key: str, holds: Callable[[], bool], checker: bool = False) -> Sample:
        """Seconds from a key to the frame in which `holds()`; CPU of the screen, and of the `checker` where its answer is waited for."""
        return await self.pressed(key, holds, checker)

    def pressed(self, key: str, holds: Callable[[], bool], checker: bool = False) -> asyncio.Task[Sample]:
        future: asyncio.Future[Moment] = asyncio.get_running_loop().create_future()
        self.awaited.append((holds, future))
        began = time.perf_counter(), self.used(), time.process_time()
        self.post_message(events.Key(key, key if len(key) == 1 else None))

        async def until() -> Sample:
            then = await asyncio.wait_for(future, WAIT)
            which = 1 if checker else 2
            return then[0] - began[0], then[which] - began[which]

        return asyncio.create_task(until())

    async def listen(self) -> None:
        """Watch the event loop."""
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.002)
            self.silence = max(self.silence, time.perf_counter() - before - 0.002)
            for holds, future in list(self.awaited):
                if holds():
                    since = self.held.setdefault(future, self.now())
                    if time.perf_counter() - since[0] > UNDRAWN:
                        self.told(future, since)


@asynccontextmanager
async def opened(file: Path, **options: Any) -> AsyncIterator[tuple[Watched, Pilot[int]]]:
    """The application on a file, with its own helpers."""
    app = Watched(session_of(file), summary=False, **{"search": False, **options})
    app.at_rest = gc.freeze  # as `hapdsl.explore.app.run` does
    async with app.run_test(size=(160, 50)) as pilot:
        watch = asyncio.create_task(app.listen())
        yield app, pilot
        watch.cancel()


async def checked(app: Watched) -> None:
    """Wait until the text is checked and nothing else is going on."""
    calm, until = 0, time.monotonic() + WAIT
    while calm < 5:
        await asyncio.sleep(0.05)
        if time.monotonic() > until:
            raise TimeoutError(f"it is never done: {[n.message for n in app._notifications]}")
        busy = app.session.main.checking or not app.work.idle or app._pending
        calm = 0 if busy else calm + 1


def in_a_layer(app: Watched) -> tuple[int, int]:
    """The end of a line of the program (not of its model) that stands in every layer."""
    rows = app.editor.text.split("\n")
    at = next(k for k, line in enumerate(rows) if "= gelu(" in line and "@" in line)
    return at, len(rows[at])


def _is_long(app: Watched, length: int) -> bool:
    return len(app.editor.text) >= length


async def typed(app: Watched, letters: int) -> list[Sample]:
    """Keys in a row, at a pace: from each to its frame. A search or a check that runs beside doesn't hold them up."""
    found = []
    length = len(app.editor.text)
    for k in range(letters):
        length += 1
        found.append(app.pressed(" #abcdefghij"[k] if k < 12 else "klmnopqrst"[k % 10], partial(_is_long, app, length)))
        await asyncio.sleep(PACE)
    return [await task for task in found]


def rolled(folder: Path) -> list[Row]:
    """A program with rolled layers: keys, and what comes after them."""
    made = []
    for name in ("gpt24", "gpt42"):
        made += asyncio.run(_rolled(folder / f"{name}.hap", name.removeprefix("gpt")))
    return made


async def _rolled(file: Path, layers: str) -> list[Row]:
    async with opened(file) as (app, pilot):
        await checked(app)
        document = app.session.main
        assert document.analysis is not None
        count = document.analysis.programs[0].instructions
        words = f"{layers} layers, rolled"
        app.editor.move_cursor(in_a_layer(app))
        app.editor.focus()
        await checked(app)
        keys = await typed(app, KEYS)
        await checked(app)
        version = document.version

        def priced() -> bool:
            return document.version > version and not document.checking and app.session.rows()[0].seconds is not None

        edits: list[Sample] = []
        wrong: list[Sample] = []
        right: list[Sample] = []
        for _ in range(EDITS):
            version = document.version
            edits.append(await app.after("y", priced, checker=True))
            await checked(app)
        row_at = in_a_layer(app)[0]
        for samples, key in [(wrong, "x"), (right, "backspace")] * EDITS:
            if key == "x":  # gelu becomes another operator
                app.editor.move_cursor((row_at, app.editor.document.get_line(row_at).index("gelu(") + 4))
            version = document.version
            samples.append(await app.after(key, priced, checker=True))
            assert any(f.is_error for f in document.findings) == (key == "x")
            await checked(app)
        await pilot.pause()
        return [
            row(f"{words}: key to its frame", 0.03, keys, f"{1 / PACE:.0f} keys a second, checked meanwhile"),
            row(f"{words}: key to check and price, a line of all layers", 0.1, edits, f"{count:,} instructions"),
            row(f"{words}: the same, the line becomes wrong", 0.1, wrong),
            row(f"{words}: the same, it is right again", 0.1, right),
        ]


def unrolled(folder: Path) -> list[Row]:
    return asyncio.run(_unrolled(folder / "gpt96.hap"))


async def _unrolled(file: Path) -> list[Row]:
    """A program of many thousand lines: opened, paged through, searched, typed into."""
    async with opened(file) as (app, pilot):
        used = app.used()
        await checked(app)
        opening = (app.silence, app.used() - used)
        lines = f"{app.editor.document.line_count:,} lines"
        app.editor.focus()
        app.editor.move_cursor((0, 0))
        await checked(app)
        pages = []
        for _ in range(PAGES):
            row_at = app.editor.cursor_location[0]
            pages.append(await app.after("pagedown", lambda: app.editor.cursor_location[0] > row_at))  # noqa: B023
        await app.after("ctrl+g", lambda: isinstance(app.focused, Input))
        letters = []
        finder = app.focused
        assert isinstance(finder, Input)
        for letter in "layer.90.block.r":
            length = len(finder.value)
            letters.append(await app.after(letter, lambda: len(finder.value) > length and app.sought == finder.value))  # noqa: B023
        await pilot.press("enter")
        steps = []
        await pilot.press("escape")
        app.query_one(PlanList).focus()
        for _ in range(PAGES):
            place = app.editor.cursor_location
            steps.append(await app.after("n", lambda: app.editor.cursor_location != place))  # noqa: B023
        app.editor.focus()
        app.editor.move_cursor(in_a_layer(app))
        app.silence = 0.0
        keys = await typed(app, KEYS)
        await checked(app)
        return [
            row("96 layers, unrolled: longest silence while it is opened and checked", 0.2, [opening], lines),
            row("96 layers, unrolled: page down", 0.2, pages),
            row("96 layers, unrolled: a letter of what is searched", 0.2, letters),
            row("96 layers, unrolled: next place", 0.2, steps),
            row("96 layers, unrolled: key to its frame", 0.2, keys, f"longest silence {1e3 * app.silence:.0f} ms"),
        ]


def beside(folder: Path) -> list[Row]:
    """A search runs beside: keys, its end, the application's end."""
    keys: list[Sample] = []
    cancels: list[Sample] = []
    quits: list[Sample] = []
    for _ in range(SEARCHES):
        asyncio.run(_beside(folder / "gpt24.hap", keys, cancels, quits))
    return [
        row("a search beside: key to its frame", 0.05, keys, "24 layers, rolled"),
        row("escape to the search's end", 1.0, cancels),
        row("quitting while it searches, to the end of all processes", 1.0, quits, "no process is left"),
    ]


async def _beside(file: Path, keys: list[Sample], cancels: list[Sample], quits: list[Sample]) -> None:
    async with opened(file) as (app, pilot):
        await checked(app)
        app.editor.move_cursor(in_a_layer(app))

        async def searching() -> Subprocess:
            await pilot.press("escape")
            app.query_one(PlanList).focus()
            await pilot.press("p")
            while not app.work.log.said:
                await asyncio.sleep(0.02)
            planner = app.work.planner
            assert isinstance(planner, Subprocess) and planner.process is not None
            return planner

        await searching()
        app.editor.focus()
        app.editor.move_cursor(in_a_layer(app))
        keys += (await typed(app, KEYS))[1:]
        app.work.cancel()
        planner = await searching()
        assert planner.process is not None
        began, used = time.perf_counter(), time.process_time()
        app.post_message(events.Key("escape", None))
        await planner.process.wait()
        cancels.append((time.perf_counter() - began, time.process_time() - used))
        app.session.main.saved = app.session.main.text  # else it asks
        await searching()
        pids = [h.process.pid for h in app.work.helpers if isinstance(h, Subprocess) and h.process is not None]
        began, used = time.perf_counter(), time.process_time()
        app.post_message(events.Key("ctrl+q", None))
        while app._exit is False:
            await asyncio.sleep(0.005)
    while any(map(alive, pids)):
        await asyncio.sleep(0.005)
    quits.append((time.perf_counter() - began, time.process_time() - used))


CASES = {"paint": paint, "rolled": rolled, "unrolled": unrolled, "beside": beside}


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    case = json.loads(sys.argv[1])
    if case.get("quick"):
        STARTS, EDITS, KEYS, PAGES, SEARCHES = QUICK
    print(json.dumps(CASES[case["case"]](Path(case["folder"]))))
