"""A rank that torchrun has started: nobody of ours stands above it, so the ranks watch one another."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import torch
import torch.distributed as dist

from hapdsl.lang.diagnostics import HapError, error
from hapdsl.run import heartbeat
from hapdsl.run.backends import Backend
from hapdsl.run.heartbeat import BEAT_S, FIRST_S, Beat, Pulse, another, lost, unreached
from hapdsl.run.problems import is_lost_peer, reason

Fatal = Callable[[HapError], None]  # says what is wrong and ends the process; called from a thread
FOUND_BY_ALL = ("HAP717", "HAP718", "HAP762")  # the ranks have compared something, and all know


class OwnError(HapError):
    """What one rank of a torchrun has found; other errors all of them find."""


@contextmanager
def joined(backend: Backend, timeout_s: float) -> Iterator[None]:
    """Within it this process is a rank of the torchrun that has started it, on its device, and the ranks watch one another; they leave together.

    `timeout_s` is for one collective. Raises HapError: HAP721 no such device here, HAP720 another rank is lost; `OwnError` for what only this rank has found.
    """
    torch.set_num_threads(1)
    backend.device()  # before the group: nccl takes the current one
    enter(backend.torch_name, timeout_s)
    try:
        with torch.no_grad(), guarded():
            yield
            dist.barrier()
    except HapError as problem:
        if getattr(problem, "lost", False) or any(d.code in FOUND_BY_ALL for d in problem.diagnostics):
            raise HapError(*problem.diagnostics, status=problem.status) from None
        found = [replace(d, message=f"rank {dist.get_rank()}: {d.message}") for d in problem.diagnostics]
        raise OwnError(*found, status=problem.status) from None
    except RuntimeError as problem:
        if not is_lost_peer(problem):
            raise
        words = f"rank {dist.get_rank()} has lost another one: {reason(problem).rpartition('] ')[2].split('. ')[0]}"
        raise error(
            "HAP720", words, help="what that one said, or torchrun says of it, is the cause", status=1
        ) from None
    finally:
        dist.destroy_process_group()


def enter(backend: str, timeout_s: float) -> None:
    """Join the process group that torchrun's environment describes; `timeout_s` is for one collective, and for all to come.

    Each of torchrun's attempts has keys of its own: it may keep the store, and with it the addresses of ranks that have ended.
    Raises OwnError HAP720 where not all come: the first rank may be one of those, so who is there says so.
    """
    limit = timedelta(seconds=timeout_s)
    try:
        store, rank, ranks = next(iter(dist.rendezvous("env://", timeout=limit)))
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        own = dist.PrefixStore(f"hapdsl/{attempt}", store)
        dist.init_process_group(backend, store=own, rank=rank, world_size=ranks, timeout=limit)
    except RuntimeError as problem:
        named = {name: os.environ.get(name, "?") for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
        words = f"rank {named['RANK']} hasn't met the others at {named['MASTER_ADDR']}:{named['MASTER_PORT']}: {reason(problem)}"
        hint = f"have {named['WORLD_SIZE']} processes been started in all, and can they reach that address? --timeout says how long to wait"
        raise OwnError(*error("HAP720", words, help=hint).diagnostics, status=1) from None


@contextmanager
def guarded(fatal: Fatal | None = None) -> Iterator[None]:
    """Within it, with the process group up, a rank that is stopped or cut off ends all ranks."""
    environment = os.environ
    store = dist.TCPStore(
        environment["MASTER_ADDR"], int(environment["MASTER_PORT"]), is_master=False, timeout=timedelta(seconds=FIRST_S)
    )
    guard = Guard(store, dist.get_rank(), dist.get_world_size(), fatal or _end)
    try:
        yield
    finally:
        guard.stop()


def _end(stop: HapError) -> None:
    (said,) = stop.diagnostics
    sys.stderr.write(f"error {said.code}: {said.message}\n  help: {said.help}\n")
    sys.stderr.flush()
    os._exit(stop.status)


def _leave() -> None:
    os._exit(1)


class Guard:
    """Under torchrun nobody stands above the ranks: rank 0 watches all, each other its own way to the store, and each its connections to all.

    `fatal` is called from a thread, while the rank itself may wait for ever: it says what is wrong and ends the process. `left` ends it without a
    word: the first rank has ended, and with it the store. It has said why; this one waits for another that is stopped, and would do so for ever.
    """

    def __init__(
        self,
        store: dist.TCPStore,
        rank: int,
        ranks: int,
        fatal: Callable[[HapError], None],
        left: Callable[[], None] = _leave,
    ) -> None:
        self._rank, self._fatal, self._left = rank, fatal, left
        self._beat = Beat(store, rank, ranks, self._cut)
        self._store = another(store)
        self._end = threading.Event()
        self._pulse = Pulse(self._store, ranks) if rank == 0 else None
        self._threads = [threading.Thread(target=self._reach, daemon=True)]
        if self._pulse is not None:
            self._threads.append(threading.Thread(target=self._watch, daemon=True))
        for thread in self._threads:
            thread.start()

    def _reach(self) -> None:
        looked = time.monotonic()
        while not self._end.wait(BEAT_S):
            now = time.monotonic()
            if now - looked > heartbeat.SILENT_S / 3:  # this process was stopped itself
                self._beat.answered = now
            looked = now
            if now - self._beat.answered > heartbeat.SILENT_S and not self._end.is_set():
                if self._beat.refused:
                    return self._left()
                self._fatal(
                    lost(
                        self._rank,
                        f"rank {self._rank}",
                        f"it can't reach the others at {os.environ.get('MASTER_ADDR', '?')}",
                    )
                )

    def _watch(self) -> None:
        assert self._pulse is not None
        with suppress(RuntimeError):
            while not self._end.wait(BEAT_S):
                silent = self._pulse.silent()
                if silent is not None and not self._end.is_set():
                    self._fatal(
                        lost(
                            silent,
                            f"rank {silent}",
                            f"nothing was heard of it for {heartbeat.SILENT_S:.0f} s: stopped, or cut off from the network",
                        )
                    )

    def _cut(self, other: int) -> None:
        """Called by the heart, in its thread. Two ranks that have lost each other both find it: the first one says it, and ends all."""
        if self._beat.claim("cut"):
            self._fatal(lost(other, f"rank {other}", unreached(self._rank, f"rank {self._rank}")))

    def stop(self) -> None:
        """The run is over: nobody is watched any more."""
        self._end.set()
        self._beat.stop()
