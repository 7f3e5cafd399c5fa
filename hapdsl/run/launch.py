"""Local processes, one per device, as torchrun would start them.

The parent forks them after it has imported torch (a spawned process takes seconds to do so), holds the store at which
they meet, so that no port is chosen twice, and reads what they report from pipes: JSON, and tensors as bytes.
When one fails, the others are ended by their ids and the failure says which one it was and why.
"""

from __future__ import annotations

import gc
import json
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import connection
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from hapdsl.lang.diagnostics import Diagnostic, HapError, error
from hapdsl.run.backends import GLOO, Backend
from hapdsl.run.context import DTYPES, NAMES
from hapdsl.run.heartbeat import ADVICE, BEAT_S, FIRST_S, SILENT_S, Beat, Lost, Pulse, cause_of, unreached
from hapdsl.run.heartbeat import lost as heartbeat_lost

ADDRESS = "127.0.0.1"
GRACE_S = 1.0  # how long to wait for a better explanation than "the peer is gone"
END_S = 3.0  # from asking a process to end to ending it

Message = tuple[int, dict[str, Any], Tensor | None]  # rank, header, tensor
Work = Callable[..., None]  # (Reporter, *arguments), run on every rank with the process group up


class Sink(Protocol):
    """Where a rank reports to: `kind`, JSON values, and a tensor."""

    def send(self, kind: str, tensor: Tensor | None = None, **header: Any) -> None: ...


class Reporter:
    """The way from a rank to who started it."""

    def __init__(self, pipe: connection.Connection, parent: int) -> None:
        self._pipe, self._parent = pipe, parent
        self._lock = threading.Lock()  # the heart's thread may have last words

    def send(self, kind: str, tensor: Tensor | None = None, **header: Any) -> None:
        """As `Sink` says; of the tensor its bytes."""
        if os.getppid() != self._parent:
            raise SystemExit(1)  # nobody is there to read
        if tensor is not None:
            header |= {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape)}
        with self._lock:
            self._pipe.send_bytes(json.dumps({"kind": kind, **header}).encode())
            if tensor is not None:
                self._pipe.send_bytes(
                    tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
                )


def _receive(pipe: connection.Connection) -> tuple[dict[str, Any], Tensor | None]:
    header = json.loads(pipe.recv_bytes())
    if "dtype" not in header:
        return header, None
    raw, shape, dtype = pipe.recv_bytes(), header["shape"], DTYPES[header["dtype"]]
    if not math.prod(shape):
        return header, torch.empty(shape, dtype=dtype)
    return header, torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape)


def launch(
    work: Work,
    processes: int,
    arguments: Sequence[Any] = (),
    receive: Callable[[int, dict[str, Any], Tensor | None], None] | None = None,
    timeout_s: float = 600.0,
    names: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
    method: str | None = None,
    address: str = ADDRESS,
    enter: Callable[[int], None] | None = None,
    backend: Backend = GLOO,
) -> None:
    """Run `work(reporter, *arguments)` on `processes` ranks and return when all are done.

    `receive(rank, header, tensor)` gets what they report. `timeout_s` is for one collective. `names` are the devices' names,
    for messages; `environment` is added to that of the ranks; `method` overrides `start_method`. `enter(rank)` is called before a rank meets the others at `address` (to go where its device's
    network is). Raises HapError: what a rank raised, HAP720 with its cause, HAP760 for one that is silent.
    """
    context: Any = multiprocessing.get_context(method or start_method(backend))
    pipes: list[Any] = []
    children: list[Any] = []
    store: Any = None
    pulse: Pulse | None = None
    watch: _Watch | None = None
    try:
        with _nothing_collected():
            for rank in range(processes):
                ours, theirs = context.Pipe()
                setting = Setting(
                    rank, processes, timeout_s, dict(environment or {}), os.getpid(), address, enter, backend
                )
                child = context.Process(
                    target=_child, args=(theirs, setting, work, tuple(arguments))
                )  # not a daemon: it may have workers that load data
                child.start()
                theirs.close()
                pipes.append(ours)
                children.append(child)
        store = dist.TCPStore(address, 0, processes, is_master=True, wait_for_workers=False)
        for ours in pipes:
            with suppress(OSError):  # it died already: the watch sees the end of its pipe and says why
                ours.send_bytes(str(store.port).encode())
        first_s = SILENT_S if context.get_start_method() == "fork" else FIRST_S
        pulse = Pulse(store, processes, first_s)
        watch = _Watch(pipes, children, receive, names or [f"rank {r}" for r in range(processes)], pulse)
        watch.run()
    finally:
        end(children, watch.done | watch.failures.keys() if watch is not None else ())
        store = None  # a traceback holds this frame, and with it a thread that the next launch would fork beside
        if pulse is not None:
            pulse.close()
        for ours in pipes:
            ours.close()


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """No garbage is collected while ranks are forked.

    An object with a thread (an earlier launch's store in a cycle, a user's) must not be destroyed in a forked child, where
    its thread isn't: that is a segmentation fault. The child then lets go of nothing it has inherited (`_child`).
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(frozen=True)
class Setting:
    """What a rank is told at its start."""

    rank: int
    processes: int
    timeout_s: float
    environment: Mapping[str, str]
    parent: int
    address: str = ADDRESS
    enter: Callable[[int], None] | None = None
    backend: Backend = GLOO


def start_method(backend: Backend = GLOO) -> str:
    """How ranks start: "fork" where that is safe, else "spawn" (seconds each, and arguments must pickle).

    A process that works in threads of its own (an application with workers) may hold locks that a forked child would wait
    for; it calls from such a thread. The main thread of a command may fork.
    """
    main = threading.current_thread() is threading.main_thread()
    safe = (
        sys.platform.startswith("linux") and main and not torch.cuda.is_initialized() and backend.device_type == "cpu"
    )
    return "fork" if safe else "spawn"


def _child(pipe: connection.Connection, setting: Setting, work: Work, arguments: tuple[Any, ...]) -> None:
    """A rank's life: meet the others, work, and say what went wrong if something did."""
    gc.freeze()  # what came from the parent stays, garbage too (see `_nothing_collected`)
    gc.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    reporter = Reporter(pipe, setting.parent)
    threading.Thread(target=_mind, args=(setting.parent,), name="parent", daemon=True).start()
    try:
        if setting.enter is not None:
            setting.enter(setting.rank)
        port = int(pipe.recv_bytes())
        os.environ.update(
            {
                "RANK": str(setting.rank),
                "LOCAL_RANK": str(setting.rank),
                "WORLD_SIZE": str(setting.processes),
                "LOCAL_WORLD_SIZE": str(setting.processes),
                "MASTER_ADDR": setting.address,
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
            }
        )
        os.environ.update(setting.environment)
        if sys.platform.startswith("linux"):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        limit = timedelta(seconds=setting.timeout_s)
        store = dist.TCPStore(setting.address, port, setting.processes, is_master=False, timeout=limit)
        beat = Beat(
            store,
            setting.rank,
            setting.processes,
            lambda other: _cut(reporter, other),
            lambda: _orphaned(setting.parent),
        )
        setting.backend.device()
        dist.init_process_group(
            setting.backend.torch_name, store=store, rank=setting.rank, world_size=setting.processes, timeout=limit
        )
        with torch.no_grad():
            work(reporter, *arguments)
        dist.barrier()  # nobody leaves while another still needs it
        dist.destroy_process_group()
        beat.stop()
        reporter.send("done")
    except HapError as stop:
        found = [_plain(d) for d in stop.diagnostics]
        _last_words(reporter, diagnostics=found, status=stop.status, lost=getattr(stop, "lost", False))
    except Exception as problem:  # whatever it is, the parent must hear of it
        text = f"{type(problem).__name__}: {str(problem).strip().splitlines()[0] if str(problem).strip() else ''}"
        _last_words(reporter, message=text, lost=is_lost_peer(problem))
    pipe.close()


def _mind(parent: int) -> None:
    """End this rank when who started it is gone: it may wait for a port, a store or a collective, and holds the folder of its checkpoints.

    That its pipe is closed doesn't say so: ranks that were forked after it hold the other end too.
    """
    while os.getppid() == parent:
        time.sleep(BEAT_S / 2)
    os._exit(1)


def _orphaned(parent: int) -> None:
    if os.getppid() != parent:
        os._exit(1)


def _cut(reporter: Reporter, other: int) -> None:
    """Say which rank can't be reached any more, and end: the main thread waits for it."""
    _last_words(reporter, unreached=other, lost=True)
    os._exit(1)


def _last_words(reporter: Reporter, **header: Any) -> None:
    try:
        reporter.send("failed", **header)
    except OSError:
        pass  # the parent is gone too


def _plain(d: Diagnostic) -> dict[str, Any]:
    return {
        "code": d.code,
        "message": d.message,
        "help": d.help,
        "file": d.span.file,
        "line": d.span.line,
        "column": d.span.column,
    }


def is_lost_peer(problem: Exception) -> bool:
    """Does this failure only say that another rank is gone?"""
    text = str(problem).lower()
    return isinstance(problem, RuntimeError) and any(
        word in text
        for word in ("connection closed", "connection reset", "broken pipe", "gloo", "socket", "timed out", "store")
    )


class _Watch:
    """Reads reports until all ranks are done, or one has failed."""

    def __init__(
        self, pipes: Sequence[Any], children: Sequence[Any], receive: Any, names: Sequence[str], pulse: Pulse
    ) -> None:
        self.open = dict(enumerate(pipes))
        self.children, self.receive, self.names, self.pulse = children, receive, names, pulse
        self.done: set[int] = set()
        self.failures: dict[int, dict[str, Any]] = {}

    def run(self) -> None:
        deadline, look = math.inf, time.monotonic() + BEAT_S
        while self.open and time.monotonic() < deadline:
            wait_s = min(BEAT_S, max(0.0, deadline - time.monotonic()))
            for pipe in connection.wait(list(self.open.values()), timeout=wait_s):
                rank = next(r for r, p in self.open.items() if p is pipe)
                self.read(rank, pipe)
            if self.failures and deadline == math.inf:
                deadline = time.monotonic() + GRACE_S
            if any(not f.get("lost") for f in self.failures.values()):
                break
            if not self.failures and time.monotonic() >= look:
                self.listen()
                look = time.monotonic() + BEAT_S
        if self.failures:
            raise self.failure()

    def listen(self) -> None:
        """Raises Lost (HAP760) for a rank that is silent."""
        rank = self.pulse.silent()
        if rank is not None:
            raise heartbeat_lost(rank, self.names[rank], cause_of(self.children[rank].pid))

    def read(self, rank: int, pipe: Any) -> None:
        try:
            header, tensor = _receive(pipe)
        except (EOFError, OSError):
            del self.open[rank]
            self.pulse.done(rank)
            if rank not in self.done and rank not in self.failures:
                self.failures[rank] = {"message": self.ending(rank), "gone": True}
            return
        if header["kind"] == "done":
            self.done.add(rank)
            self.pulse.done(rank)
        elif header["kind"] == "failed":
            self.failures[rank] = header
        elif self.receive is not None:
            self.receive(rank, header, tensor)

    def ending(self, rank: int) -> str:
        child = self.children[rank]
        child.join(END_S)
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
        return heartbeat_lost(most, self.names[most], unreached(witness, self.names[witness]))


def _again(header: Mapping[str, Any], name: str) -> HapError:
    """The error that a rank raised, raised here."""
    from hapdsl.lang.nodes import Span

    found = []
    for d in header["diagnostics"]:
        span = Span(d["file"], d["line"], d["column"], d["line"], d["column"] + 1)
        found.append(Diagnostic(d["code"], f"{name}: {d['message']}", span, d["help"]))
    return HapError(*found, status=header["status"])


def end(children: Sequence[Any], leaving: Collection[int] = ()) -> None:
    """End processes that still run, by their ids: first ask, then don't. Ranks that have said how it went (`leaving`) go by themselves."""
    for rank in leaving:
        children[rank].join(END_S)
    for child in children:
        if child.is_alive():
            child.terminate()
    until = time.monotonic() + END_S
    for child in children:
        child.join(max(0.0, until - time.monotonic()))
        if child.is_alive():
            child.kill()
            child.join()


def outer_rank() -> int | None:
    """This process' rank where torchrun has started it, else None."""
    wanted = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return int(os.environ["RANK"]) if all(name in os.environ for name in wanted) else None
