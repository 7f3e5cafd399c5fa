"""Local processes, one per device, as torchrun would start them.

The parent forks them after it has imported torch (a spawned process takes seconds to do so), holds the store at which
they meet, so that no port is chosen twice, and reads what they report from pipes (`hapdsl.run.process` is a rank's side, `hapdsl.run.watch` the
parent's). When one fails, the others are ended by their ids and the failure says which one it was and why.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.distributed as dist

from hapdsl.lang.diagnostics import error
from hapdsl.run import process
from hapdsl.run.backends import GLOO, Backend
from hapdsl.run.heartbeat import FIRST_S, SILENT_S, Pulse
from hapdsl.run.process import ADDRESS, Setting, Work
from hapdsl.run.watch import Receive, Watch, end


def launch(
    work: Work,
    processes: int,
    arguments: Sequence[Any] = (),
    receive: Receive | None = None,
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
    network is). Raises HapError: what a rank raised, HAP720 with its cause, HAP760 for one that is silent, HAP763 for one that hangs.
    """
    context: Any = multiprocessing.get_context(method or start_method(backend))
    pipes: list[Any] = []
    children: list[Any] = []
    store: Any = None
    pulse: Pulse | None = None
    watch: Watch | None = None
    try:
        with _nothing_collected():
            for rank in range(processes):
                setting = Setting(
                    rank, processes, timeout_s, dict(environment or {}), os.getpid(), address, enter, backend
                )
                _start(context, pipes, children, setting, work, tuple(arguments))
        store = _store(address, processes)
        for ours in pipes:
            with suppress(OSError):  # it died already: the watch sees the end of its pipe and says why
                ours.send_bytes(str(store.port).encode())
        first_s = SILENT_S if context.get_start_method() == "fork" else FIRST_S
        pulse = Pulse(store, processes, first_s)
        watch = Watch(pipes, children, receive, names or [f"rank {r}" for r in range(processes)], pulse)
        watch.run()
    finally:
        end(children, watch.done | watch.failures.keys() if watch is not None else ())
        store = None  # a traceback holds this frame, and with it a thread that the next launch would fork beside
        if pulse is not None:
            pulse.close()
        for ours in pipes:
            ours.close()


def _start(
    context: Any, pipes: list[Any], children: list[Any], setting: Setting, work: Work, arguments: tuple[Any, ...]
) -> None:
    """Start one more process, and put it and its pipe behind the others. Raises HapError HAP720 where the system has no room for it."""
    try:
        ours, theirs = context.Pipe()
        pipes.append(ours)
        child = context.Process(
            target=process.run, args=(theirs, setting, work, arguments)
        )  # not a daemon: it may have workers that load data
        child.start()
    except OSError as problem:
        raise error(
            "HAP720",
            f"process {setting.rank} of {setting.processes} can't be started: {problem.strerror or problem}",
            help="`ulimit -a` says how many processes and open files one may have here",
            status=1,
        ) from None
    theirs.close()
    children.append(child)


def _store(address: str, processes: int) -> dist.TCPStore:
    """The store at which ranks meet, at a free port of this address alone.

    Left to itself torch listens on all addresses of the machine; and who can write to the store can say to whom ranks connect.
    """
    listening = socket.create_server((address, 0))
    port = listening.getsockname()[1]
    return dist.TCPStore(
        address, port, processes, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach()
    )


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """No garbage is collected while ranks are forked.

    An object with a thread (an earlier launch's store in a cycle, a user's) must not be destroyed in a forked child, where
    its thread isn't: that is a segmentation fault. The child then lets go of nothing it has inherited (`hapdsl.run.process`).
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


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


def outer_rank() -> int | None:
    """This process' rank where torchrun has started it, else None."""
    wanted = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return int(os.environ["RANK"]) if all(name in os.environ for name in wanted) else None
