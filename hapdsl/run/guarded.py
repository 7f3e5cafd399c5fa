"""A rank that torchrun has started: nobody of ours stands above it, so the ranks watch one another."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import timedelta

import torch
import torch.distributed as dist

from hapdsl.lang.diagnostics import HapError, error
from hapdsl.run import heartbeat
from hapdsl.run.backends import Backend
from hapdsl.run.heartbeat import BEAT_S, FIRST_S, Beat, Pulse, another, lost, prefix, unreached
from hapdsl.run.problems import is_lost_peer, reason

Fatal = Callable[[HapError], None]  # says what is wrong and ends the process; called from a thread
FOUND_BY_ALL = ("HAP717", "HAP718", "HAP762")  # the ranks have compared something, and all know
PATIENCE_S = 1800.0  # of ranks with one another, in one collective of a script: torch's own
SPEAK_S = 1.0  # torchrun ends all ranks with the first that ends: the one that speaks must have spoken


class OwnError(HapError):
    """What one rank of a torchrun has found, and says; other errors all of them find."""


class Unsaid(HapError):
    """What this rank has found behind another one of its machine, which says what that has found."""

    said = True


@contextmanager
def joined(backend: Backend, timeout_s: float, fatal: Fatal | None = None) -> Iterator[None]:
    """Within it this process is a rank of the torchrun that has started it, on its device, and the ranks watch one another; they leave together.

    `timeout_s` is for one collective, `fatal` as for `guarded`. Raises HapError: HAP721 no such device here; what all ranks find. What one rank
    has found, and HAP720 where another rank is lost, the first of a machine raises as `OwnError`, the others as `Unsaid`: they share a stdout.
    """
    torch.set_num_threads(1)
    backend.device()  # before the group: nccl takes the current one
    enter(backend.torch_name, timeout_s)
    try:
        try:
            with torch.no_grad(), guarded(fatal) as guard, nullcontext() if fatal is None else _heard(guard):
                try:
                    yield
                    dist.barrier()
                except Exception as problem:
                    found = _found(problem, guard)
                    if found is None:
                        raise
                    raise found from None
        finally:
            dist.destroy_process_group()
    except Unsaid:
        time.sleep(SPEAK_S)
        raise


def _found(problem: Exception, guard: Guard) -> HapError | None:
    """What a rank says to what has ended its work; None for a fault of ours. It asks to speak before it leaves the group, by which the others find that it is gone."""
    status = 1
    if isinstance(problem, HapError):
        found, status = list(problem.diagnostics), problem.status
        if any(d.code in FOUND_BY_ALL for d in found):
            return HapError(*found, status=status)
        if getattr(problem, "lost", False):
            time.sleep(SPEAK_S / 2)  # the rank that has failed knows why
        else:
            found = [replace(d, message=f"rank {dist.get_rank()}: {d.message}") for d in found]
    elif is_lost_peer(problem):
        words = f"rank {dist.get_rank()} has lost another one: {reason(problem).rpartition('] ')[2].split('. ')[0]}"
        found = list(_failed(words).diagnostics)
    else:
        guard.speaks()  # it does in any case, and the others needn't
        return None
    return OwnError(*found, status=status) if guard.speaks() else Unsaid(*found, status=status)


def _failed(words: str) -> HapError:
    """Another rank has failed, of which this one knows no more than `words`."""
    return error("HAP720", words, help="what that one said, or torchrun says of it, is the cause", status=1)


def stay(backend: Backend) -> None:
    """Join the torchrun that has started this process, as a rank on its device, for as long as it lives: the ranks watch one another as within
    `joined`, and one that comes to its end by itself isn't missed.

    Raises HapError: HAP721 no such device here, HAP720 where not all come.
    """
    backend.device()  # before the group: nccl takes the current one
    enter(backend.torch_name, PATIENCE_S)
    # Where a rank keeps the store, that may end before the others.
    guard = Guard(_store(), dist.get_rank(), dist.get_world_size(), _end, left=lambda: None)
    atexit.register(guard.stop)


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
def _heard(guard: Guard) -> Iterator[None]:
    """Within it SIGTERM, too, ends this process only when that is said: torchrun sends it within a tenth of a second behind the end of a rank, of which
    the others may know nothing yet. A thread hears of it, since the rank itself may wait for ever. Whoever has a handler of their own keeps it."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    heard, tells = os.pipe()
    os.set_blocking(tells, False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    before = signal.set_wakeup_fd(tells)
    listener = threading.Thread(target=guard.listen, args=(heard,), daemon=True)
    listener.start()
    after: signal.Handlers = signal.SIG_DFL
    try:
        yield
    except BaseException:
        after = signal.SIG_IGN  # what has ended the work is yet to be said
        raise
    finally:
        signal.signal(signal.SIGTERM, after)
        signal.set_wakeup_fd(before)
        os.close(tells)
        listener.join()
        os.close(heard)


@contextmanager
def guarded(fatal: Fatal | None = None) -> Iterator[Guard]:
    """Within it, with the process group up, a rank that is stopped or cut off ends all ranks; the one that says so does it with `fatal`."""
    guard = Guard(_store(), dist.get_rank(), dist.get_world_size(), fatal or _end)
    try:
        yield guard
    finally:
        guard.stop()


def _store() -> dist.TCPStore:
    """A connection to where torchrun's ranks meet."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=FIRST_S))


def _end(stop: HapError) -> None:
    (said,) = stop.diagnostics
    sys.stderr.write(f"error {said.code}: {said.message}\n  help: {said.help}\n")
    sys.stderr.flush()
    os._exit(stop.status)


def _leave() -> None:
    os._exit(1)


def _first_left() -> bool:
    """Does this rank speak where the store can't be asked who does? The first of a machine; beside rank 0, which may be the reason, rank 1."""
    return os.environ.get("LOCAL_RANK", "0") == "0" or os.environ.get("RANK") == "1"


class Guard:
    """Under torchrun nobody stands above the ranks: rank 0 watches all, rank 1 watches it, each other its own way to the store, and each its connections to all.

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
        self._store, self._asked = another(store), another(store)
        self._end = threading.Event()
        self._pulse = Pulse(self._store, ranks if rank == 0 else 1) if rank < 2 else None
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
                if self._beat.refused or not _first_left():
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
                    self._say(
                        lost(
                            silent,
                            f"rank {silent}",
                            f"nothing was heard of it for {heartbeat.SILENT_S:.0f} s: stopped, or cut off from the network",
                        )
                    )

    def _cut(self, other: int) -> None:
        """Called by the heart, in its thread. Two ranks that have lost each other both find it: the first one says it, and ends all."""
        if self._beat.claim("cut"):
            self._say(lost(other, f"rank {other}", unreached(self._rank, f"rank {self._rank}")))

    def listen(self, heard: int) -> None:
        """Reads the numbers of signals from a pipe until that is closed; SIGTERM ends this rank."""
        while signals := os.read(heard, 64):
            if signal.SIGTERM in signals:
                words = f"rank {self._rank} was told to end (SIGTERM), as torchrun does when another one has failed"
                self._say(_failed(words))

    def speaks(self) -> bool:
        """Is this the first rank of its machine that has something to say? Its torchrun gives them one stdout, which takes one document of JSON."""
        try:
            return int(self._asked.add(f"{prefix()}/said/{os.environ.get('GROUP_RANK', '0')}", 1)) == 1
        except RuntimeError:  # whoever kept the store has ended, and said why
            return self._rank == 0

    def _say(self, stop: HapError) -> None:
        if self.speaks():
            return self._fatal(stop)
        time.sleep(SPEAK_S)
        self._left()

    def stop(self) -> None:
        """The run is over: nobody is watched any more."""
        self._end.set()
        self._beat.stop()
