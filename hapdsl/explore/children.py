"""Verbs of hapdsl in processes of their own (an import, a run): started, ended with the screen, asked why they failed."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

from hapdsl.explore.workers import environment

Child = asyncio.subprocess.Process
GRACE_S = 5.0  # from asking a process to end to ending it: a run ends its ranks before it goes


async def start(*words: str) -> Child:
    """`hapdsl WORDS`, without an input; both outputs are there to be read. Raises OSError where no process can be started."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hapdsl", *words,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip


def interrupt(child: Child) -> None:
    """Ask a process to end, as ctrl+c does."""
    if child.returncode is None:
        with suppress(ProcessLookupError, ValueError):  # it is gone already; a platform that can't ask
            child.send_signal(signal.SIGINT)


def kill(child: Child) -> None:
    """End a process now."""
    if child.returncode is None:
        with suppress(ProcessLookupError):
            child.kill()


async def end(child: Child, grace_s: float = GRACE_S) -> None:
    """Have a process end, and wait until nothing is left of it: first ask (unless there is no time for that), then don't."""
    if grace_s:
        interrupt(child)
        with suppress(TimeoutError):
            await asyncio.wait_for(child.wait(), grace_s)
            return
    kill(child)
    # What it has said and nobody reads may keep its pipes open.
    with suppress(TimeoutError):
        await asyncio.wait_for(child.wait(), GRACE_S)


def why_not(said: bytes, complaints: bytes) -> str:
    """Why a verb called with --json failed: its first diagnostic with place and help, else its last words. Others may print as well."""
    words = said.decode("utf-8", "replace")
    with suppress(ValueError, KeyError, IndexError):
        found: dict[str, Any] = json.loads(words[words.index('{\n  "ok"') :])["diagnostics"][0]
        where = f"\n{found['file']}, line {found['line']}" if found["file"] and found["line"] else ""
        advice = f"\n{found['help']}" if found["help"] else ""
        return f"{found['code']} {found['message']}{where}{advice}"
    lines = [line for line in complaints.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it ended without a word"
