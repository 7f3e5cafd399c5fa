"""Work beside the screen: helper processes that are asked and answer, and can be killed.

Nothing here touches a widget: answers go to a callback, and the application turns them into messages.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

Object = dict[str, Any]
Answered = Callable[[Object], None]
Died = Callable[[str], None]
LONGEST_ANSWER = 256 * 2**20  # bytes of one line


class Helper(Protocol):
    """What the application asks: `answered` gets each answer, `died` says why no more will come; `gone` waits for a killed one's end.

    `hold` stops its work for a while, or lets it go on; False where that can't be.
    """

    def ask(self, request: Object) -> None: ...

    def kill(self) -> None: ...

    def hold(self, on: bool) -> bool: ...

    async def gone(self) -> None: ...


Connect = Callable[[Answered, Died, bool], Helper]


class Subprocess:
    """A helper in a process of its own, started with the first request. `later`: it makes way for others."""

    def __init__(self, answered: Answered, died: Died, later: bool = False) -> None:
        self.answered, self.died, self.later = answered, died, later
        self.process: asyncio.subprocess.Process | None = None
        self.killed = False
        self.waiting: list[Object] = []
        self.complaints: deque[str] = deque(maxlen=20)
        self.task: asyncio.Task[None] | None = None

    def ask(self, request: Object) -> None:
        """Send a request; it may have to wait for the process to start."""
        if self.process is not None and self.process.stdin is not None:
            self._send(request)
            return
        self.waiting.append(request)
        if self.task is None:
            self.task = asyncio.get_running_loop().create_task(self._run())

    def kill(self) -> None:
        """End the process now; nothing is answered or reported after that."""
        self.killed = True
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.kill()

    def hold(self, on: bool) -> bool:
        """Stop the process for a while, or let it go on."""
        if self.process is None or self.process.returncode is not None or not hasattr(signal, "SIGSTOP"):
            return False
        self.process.send_signal(signal.SIGSTOP if on else signal.SIGCONT)
        return True

    async def gone(self) -> None:
        """Wait until nothing is left of a killed process."""
        if self.task is not None:
            await asyncio.wait([self.task], timeout=5)

    def _send(self, request: Object) -> None:
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")

    async def _run(self) -> None:
        try:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "hapdsl.explore.service", *(["--later"] if self.later else []),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                limit=LONGEST_ANSWER, env=environment(),
            )  # fmt: skip
        except OSError as problem:
            self.died(f"it can't be started: {problem.strerror or problem}")
            return
        if self.killed:
            self.kill()
        for request in self.waiting:
            self._send(request)
        self.waiting.clear()
        complaining = asyncio.get_running_loop().create_task(self._listen())
        await self._read()
        await complaining
        status = await self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        if not self.killed:
            last = next((c for c in reversed(self.complaints) if c), "")
            self.died(f"{ending(status)}{f': {last}' if last else ''}")

    async def _read(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        while True:
            try:
                line = await self.process.stdout.readline()
                if not line:
                    return
                found = json.loads(line)
            except ValueError:  # too long, or no JSON
                self.complaints.append("it gave an answer that can't be read")
                self.process.kill()
                return
            if not self.killed:
                self.answered(found)

    async def _listen(self) -> None:
        assert self.process is not None and self.process.stderr is not None
        with suppress(ValueError):
            async for line in self.process.stderr:
                self.complaints.append(line.decode("utf-8", "replace").strip()[:300])


def ending(status: int) -> str:
    """How a process ended, in words."""
    return f"signal {-status}" if status < 0 else f"exit status {status}"


def environment() -> dict[str, str]:
    """A child finds the same hapdsl as we do, wherever it was started from."""
    home = str(Path(__file__).absolute().parents[2])
    paths = [home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONIOENCODING": "utf-8"}


@dataclass
class Checks:
    """Which texts wait for the checker: one at a time, of each document only the newest version.

    `send` takes a request of (number, key, version); a helper that died is replaced with the next one.
    """

    send: Callable[[int, str, int], None]
    numbers: int = 0
    flying: tuple[int, str, int] | None = None
    waiting: dict[str, int] = field(default_factory=dict)
    deaths: dict[tuple[str, int], int] = field(default_factory=dict)

    def want(self, key: str, version: int) -> None:
        self.waiting[key] = version
        self._next()

    def landed(self, number: int) -> tuple[str, int] | None:
        """An answer came: what it was about, None where nobody waits for it."""
        if self.flying is None or self.flying[0] != number:
            return None
        _, key, version = self.flying
        self.flying = None
        self._next()
        return key, version

    def crashed(self) -> bool:
        """The helper died. Its work is tried once more, since it may not have been to blame; True if it will be."""
        if self.flying is None:
            return False
        _, key, version = self.flying
        self.flying = None
        count = self.deaths[key, version] = self.deaths.get((key, version), 0) + 1
        again = count < 2 and key not in self.waiting
        if again:
            self.waiting[key] = version
        self._next()
        return again

    @property
    def idle(self) -> bool:
        return self.flying is None and not self.waiting

    def _next(self) -> None:
        if self.flying is None and self.waiting:
            key = next(iter(self.waiting))
            self.numbers += 1
            self.flying = (self.numbers, key, self.waiting.pop(key))
            self.send(*self.flying)
