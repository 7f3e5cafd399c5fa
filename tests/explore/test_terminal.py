"""The explorer in a real terminal."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hapdsl.explore.workers import environment
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text
from tests.processes import alive

from .conftest import below, prices

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux, the terminal of this test, isn't installed")


class Terminal:
    """One tmux server of our own with one window."""

    def __init__(self, command: str, folder: Path) -> None:
        self.name = f"hapdsl-{uuid.uuid4().hex[:8]}"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "-c", str(folder), command)

    def tmux(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-L", self.name, *words], capture_output=True, text=True, timeout=20)
        return done.stdout

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def column(self) -> int:
        """Where the cursor is."""
        return int(self.tmux("display-message", "-p", "#{cursor_x}"))

    def press(self, *keys: str) -> None:
        """Keys by tmux's names, or words to type."""
        for key in keys:
            self.tmux("send-keys", key)
            # A key that moves is handled later than one that is typed: on a busy machine they could change places.
            time.sleep(0.3)

    def wait(self, holds: Callable[[str], bool], seconds: float = 30) -> str:
        for _ in range(int(seconds / 0.1)):
            seen = self.screen()
            if holds(seen):
                return seen
            time.sleep(0.1)
        raise AssertionError(f"the screen stayed like this:\n{self.screen()}")


@pytest.fixture
def terminal(small: Path) -> Iterator[Terminal]:
    variables = {
        "PYTHONPATH": environment()["PYTHONPATH"],
        "XDG_STATE_HOME": str(small.parent / "state"),
        "XDG_CONFIG_HOME": str(small.parent / "settings"),
    }
    code = f"import sys; from hapdsl.explore import explore; sys.exit(explore({str(small)!r}))"
    command = f"env {shlex.join(f'{k}={v}' for k, v in variables.items())} {shlex.join([sys.executable, '-c', code])}; echo status $?; sleep 60"
    found = Terminal(command, small.parent)
    yield found
    found.tmux("kill-server")


@pytest.mark.long
def test_start_edit_save_take_compare_quit(terminal: Terminal, small: Path) -> None:
    original = small.read_text()
    step, lines = prices(small)
    terminal.wait(lambda s: step in s and "What is cut and how" in s)  # the summary
    terminal.press("Enter")
    terminal.wait(lambda s: lines[27] in s and "forward {" in s)
    terminal.press("C-g")
    terminal.wait(lambda s: "enter keeps the place" in s)
    terminal.press("forward")
    terminal.wait(lambda s: "1 place" in s)
    terminal.press("Enter")
    terminal.wait(lambda s: "1 place" not in s)
    terminal.press("C-a")
    terminal.wait(lambda _: terminal.column() == len("24      "))  # what is typed next goes there
    terminal.press("$")
    seen = terminal.wait(lambda s: "HAP1" in s and "$forward {" in s)
    assert step in seen  # the last cost stays
    terminal.press("C-q")
    terminal.wait(lambda s: "Not saved: small.hap" in s)
    terminal.press("n")
    terminal.wait(lambda s: "Not saved" not in s)
    terminal.press("C-z")
    terminal.wait(lambda s: "HAP1" not in s)
    terminal.press("End", "#kept")
    terminal.wait(lambda s: "{#kept" in s and "•" in s and "checking" not in s)
    terminal.press("C-s")
    seen = terminal.wait(lambda s: "saved" in s)
    assert "{  # kept" in seen and "•" not in seen
    assert small.read_text() == to_text(parse(small.read_text())) != original
    terminal.press("C-g")
    terminal.wait(lambda s: "enter keeps the place" in s)
    terminal.press("z@S(0) ")  # to the line that makes z, and to its alternatives
    terminal.wait(lambda s: " places" in s or "1 place" in s)
    terminal.press("Enter")
    terminal.wait(lambda s: " place" not in s)
    terminal.press("C-o")
    terminal.wait(lambda s: "z is made by" in s and "= -" in s)
    terminal.press("Down", "Down", "Enter")
    terminal.wait(lambda s: "takes it back" in s and "•" in s)
    terminal.press("C-z")
    terminal.wait(lambda s: "•" not in s and "checking" not in s)
    terminal.press("d")
    terminal.wait(lambda s: "dp_even on" in s and "only what differs" in s)
    terminal.press("C-q")
    seen = terminal.wait(lambda s: "status" in s)
    assert "status 0" in seen and "Traceback" not in seen


@pytest.mark.long
def test_told_to_end_it_keeps_what_is_unsaved_and_leaves_the_terminal_as_it_was(
    terminal: Terminal, small: Path
) -> None:
    terminal.wait(lambda s: "What is cut and how" in s)
    terminal.press("2", "#")
    terminal.wait(lambda s: "•" in s)
    shell = int(terminal.tmux("display-message", "-p", "#{pane_pid}"))
    started = list(below(shell))[1:]
    os.kill(started[0], signal.SIGTERM)
    seen = terminal.wait(lambda s: "status" in s)
    assert "status 143" in seen and "Traceback" not in seen and "What is cut" not in seen
    assert not any(map(alive, started))
    (kept,) = (small.parent / "state").rglob("*.json")
    assert json.loads(kept.read_text())["documents"][0]["text"] != small.read_text()
