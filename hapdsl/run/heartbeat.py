"""Is every rank still there? Each adds one to a number in the store at which the ranks meet, every second, over the network.

A process that is stopped, or a machine that is cut off, sends nothing and closes nothing: whoever waits for its part of a collective
would wait for minutes. Whoever watches sees that its number stands still. With each beat a rank also looks at its connections to the others
(`hapdsl.run.links`): two ranks may have lost each other and still reach the store.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist

from hapdsl.lang.diagnostics import Diagnostic, HapError, error
from hapdsl.run.links import Links

BEAT_S = 1.0
SILENT_S = 15.0  # so long without a beat: the rank is lost
CUT_S = 3.0  # so much longer nothing is acknowledged: it can't be reached (of one that nobody hears its heart tells)
ENDED = 2**40  # what a heart adds that stops by itself: it isn't missed
FIRST_S = 120.0  # until the first one, where processes start anew and import torch
ADVICE = "with --checkpoint, --resume goes on from the last checkpoint; --replan does so by itself, without the device"


class Lost(HapError):
    """A rank's process or machine is gone, or can't be reached: others could go on without it."""

    def __init__(self, rank: int, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic, status=1)
        self.rank = rank


class Beat:
    """The heart of one rank of several, in a thread of its own with a connection of its own (a store serves one question at a time).

    `cut` is called, once and in that thread, with a rank that can't be reached any more, though it may beat (`hapdsl.run.links`). `answered` is when
    the store last answered; it has `refused` to where its process has ended, which is not the same as silence.
    """

    def __init__(self, store: dist.TCPStore, rank: int, ranks: int, cut: Callable[[int], None]) -> None:
        self._store: Any = another(store)
        self._key = key(rank)
        self._cut = cut
        self._links = Links(self._store, rank, ranks, prefix())
        self._end = threading.Event()
        self.answered, self.refused = time.monotonic(), False
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                self._store.add(self._key, 1)
                self.answered = time.monotonic()
                lost = self._links.lost(SILENT_S + CUT_S)
                if lost is not None and not self._end.is_set():
                    self._cut(lost)
                    return
                self._end.wait(BEAT_S)
            self._store.add(self._key, ENDED)
        except RuntimeError:
            self.refused = True

    def claim(self, what: str) -> bool:
        """Is this the first rank to ask? For `cut`, in the heart's own thread."""
        return int(self._store.add(f"{prefix()}/{what}", 1)) == 1

    def stop(self) -> None:
        """Beat no more. Doesn't wait for an answer that may never come."""
        self._end.set()
        self._thread.join(BEAT_S)


class Pulse:
    """Watches the hearts of several ranks. `first_s` is for how long one may not have begun."""

    def __init__(self, store: dist.TCPStore, ranks: int, first_s: float = FIRST_S) -> None:
        self._store: dist.TCPStore | None = store
        self._first_s = first_s
        now = time.monotonic()
        self._seen = dict.fromkeys(range(ranks), (0, now))
        self._looked = now

    def done(self, rank: int) -> None:
        """A rank that has ended isn't watched any more."""
        self._seen.pop(rank, None)

    def close(self) -> None:
        """Let go of the store: whoever keeps this object doesn't keep its thread."""
        self._store = None

    def silent(self) -> int | None:
        """The rank that has been silent longest, and too long; None where there is none. Asked every second or so.

        Where the watcher itself was held up (the whole job stopped and continued), nobody is blamed.
        """
        if self._store is None:
            return None
        now = time.monotonic()
        held_up = now - self._looked > SILENT_S / 3
        self._looked = now
        for rank, (beats, _) in list(self._seen.items()):
            found = self._store.add(key(rank), 0)
            if found >= ENDED:
                self.done(rank)
            elif found != beats or held_up:
                self._seen[rank] = (found, now)
        late = {
            r: now - since
            for r, (beats, since) in self._seen.items()
            if now - since > (SILENT_S if beats else self._first_s)
        }
        return max(late, key=lambda r: late[r]) if late else None


def another(store: Any) -> Any:
    """A connection of one's own to a store (torch's stubs don't know `clone`)."""
    return store.clone()


def prefix() -> str:
    """What keys in the store begin with; torchrun's restarts have keys of their own."""
    return f"hapdsl/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


def key(rank: int) -> str:
    """Where the beats of a rank are counted."""
    return f"{prefix()}/beat/{rank}"


def lost(rank: int, name: str, cause: str) -> Lost:
    """What is said of a rank that doesn't answer."""
    return Lost(rank, error("HAP760", f"process {rank} ({name}) is lost: {cause}", help=ADVICE).diagnostics[0])


def unreached(rank: int, name: str) -> str:
    """Why a rank is lost that `rank` can't reach."""
    return f"process {rank} ({name}) can't reach it: nothing was acknowledged for {SILENT_S + CUT_S:.0f} s, though both still answer"


def cause_of(pid: int | None) -> str:
    """Why a process doesn't answer, as far as this machine's tables say."""
    silent = f"nothing was heard of it for {SILENT_S:.0f} s"
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return silent
    match state:
        case "T" | "t":
            return f"{silent}; it is stopped (by SIGSTOP or a debugger)"
        case "D":
            return f"{silent}; it waits for a disk or a file server"
    return f"{silent}, though it is running: cut off from the network"
