"""What the ranks' parent does while they run: it reads what they report, and when one fails, it says which one it was and why."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from multiprocessing import connection
from typing import Any

from torch import Tensor

from hapdsl.lang.diagnostics import Diagnostic, HapError, error
from hapdsl.lang.nodes import Span
from hapdsl.run.heartbeat import ADVICE, BEAT_S, Lost, Pulse, cause_of, lost, unreached
from hapdsl.run.reporting import received

GRACE_S = 1.0  # how long to wait for a better explanation than "the peer is gone"
END_S = 3.0  # from asking a process to end to ending it
ASK_S = 0.1

Receive = Callable[[int, dict[str, Any], Tensor | None], None]  # (rank, header, tensor)


class Watch:
    """Reads reports until all ranks are done, or one has failed. `pipes`, `children` and `names` are by rank."""

    def __init__(
        self, pipes: Sequence[Any], children: Sequence[Any], receive: Receive | None, names: Sequence[str], pulse: Pulse
    ) -> None:
        self.open = dict(enumerate(pipes))
        self.children, self.receive, self.names, self.pulse = children, receive, names, pulse
        self.done: set[int] = set()
        self.failures: dict[int, dict[str, Any]] = {}

    def run(self) -> None:
        """Returns when all are done. Raises HapError: what a rank raised, HAP720 with its cause, HAP760 for one that is silent, HAP763 for one that hangs."""
        deadline, look = math.inf, time.monotonic() + BEAT_S
        while self.open and time.monotonic() < deadline:
            wait_s = min(BEAT_S, max(0.0, deadline - time.monotonic()))
            for pipe in connection.wait(list(self.open.values()), timeout=wait_s):
                rank = next(r for r, p in self.open.items() if p is pipe)
                self.read(rank, pipe)
            looks = time.monotonic() >= look
            if self.failures or looks:
                self.reap()
            if self.failures and deadline == math.inf:
                deadline = time.monotonic() + GRACE_S
            if any(not f.get("lost") for f in self.failures.values()):
                break
            if not self.failures and looks:
                self.listen()
                look = time.monotonic() + BEAT_S
        if self.failures:
            raise self.failure()

    def listen(self) -> None:
        """Raises Lost (HAP760) for a rank that is silent."""
        rank = self.pulse.silent()
        if rank is not None:
            raise lost(rank, self.names[rank], cause_of(self.children[rank].pid))

    def read(self, rank: int, pipe: Any) -> None:
        try:
            header, tensor = received(pipe)
        except (EOFError, OSError):
            self.ended(rank)
            return
        if header["kind"] == "done":
            self.done.add(rank)
            self.pulse.done(rank)
        elif header["kind"] == "failed":
            self.failures[rank] = header
        elif self.receive is not None:
            self.receive(rank, header, tensor)

    def reap(self) -> None:
        """Find ranks that have ended though their pipes are open: processes that they had started (to load data) hold the other ends a while longer."""
        for rank, pipe in list(self.open.items()):
            if self.children[rank].exitcode is not None and not pipe.poll():
                self.ended(rank)

    def ended(self, rank: int) -> None:
        """Nothing will come from this rank any more."""
        del self.open[rank]
        self.pulse.done(rank)
        if rank not in self.done and rank not in self.failures:
            self.failures[rank] = {"message": self.ending(rank), "gone": True}

    def ending(self, rank: int) -> str:
        child = self.children[rank]
        join(child, time.monotonic() + END_S)
        code = child.exitcode
        if code is not None and code < 0:
            return f"it was ended by signal {-code} ({signal.Signals(-code).name})"
        return f"it ended with status {code}"

    def failure(self) -> HapError:
        """The failure that explains the others: one that isn't merely a lost peer, else a line that is cut, else the first."""
        if (cut := self.cut()) is not None:
            return cut
        rank, header = min(self.failures.items(), key=lambda f: bool(f[1].get("lost")))
        waited = any("timed out" in f.get("message", "").lower() for f in self.failures.values())
        missing = [r for r in self.open if r not in self.failures and r not in self.done]
        if header.get("lost") and waited and missing:
            names = ", ".join(f"{r} ({self.names[r]})" for r in missing)
            words = f"process {names} took no part any more: the others have waited in vain (--timeout)"
            return Lost(missing[0], error("HAP763", words, status=1).diagnostics[0])
        if "diagnostics" in header:
            return _again(header, f"process {rank} ({self.names[rank]})")
        gone = header.get("gone", False)
        words = f"process {rank} ({self.names[rank]}) failed: {header['message']}"
        found = error("HAP720", words, help=ADVICE if gone else "", status=1)
        return Lost(rank, found.diagnostics[0]) if gone else found

    def cut(self) -> Lost | None:
        """Where all that was found is that ranks can't reach one another: the one that most of them say it of."""
        said = [(f["unreached"], rank) for rank, f in self.failures.items() if "unreached" in f]
        if not said or not all(f.get("lost") for f in self.failures.values()):
            return None
        others = [other for other, _ in said]
        most = max(others, key=lambda other: (others.count(other), other))
        witness = next(rank for other, rank in said if other == most)
        return lost(most, self.names[most], unreached(witness, self.names[witness]))


def _again(header: Mapping[str, Any], name: str) -> HapError:
    """The error that a rank raised, raised here."""
    found = []
    for d in header["diagnostics"]:
        span = Span(d["file"], d["line"], d["column"], d["line"], d["column"] + 1)
        found.append(Diagnostic(d["code"], f"{name}: {d['message']}", span, d["help"]))
    return HapError(*found, status=header["status"])


def end(children: Sequence[Any], leaving: Collection[int] = ()) -> None:
    """End processes that still run, by their ids: first ask, then don't. Ranks that have said how it went (`leaving`) go by themselves."""
    until = time.monotonic() + END_S
    for rank in leaving:
        join(children[rank], until)
    for child in children:
        if child.is_alive():
            child.terminate()
    until = time.monotonic() + END_S
    for child in children:
        join(child, until)
        if child.is_alive():
            child.kill()
            child.join()


def join(child: Any, until: float) -> None:
    """Wait for a process to end, until a time of the monotonic clock. It is asked for now and then: what says by itself that it has ended may be held
    open by processes that it had started."""
    while child.is_alive() and (left := until - time.monotonic()) > 0:
        child.join(min(left, ASK_S))
