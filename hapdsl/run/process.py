"""A rank's life as a process of its own: it meets the others, works, and says what went wrong if something did."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import connection
from typing import Any

import torch
import torch.distributed as dist

from hapdsl.lang.diagnostics import Diagnostic, HapError
from hapdsl.run.backends import GLOO, Backend
from hapdsl.run.heartbeat import BEAT_S, Beat
from hapdsl.run.problems import is_lost_peer, named
from hapdsl.run.reporting import Reporter

ADDRESS = "127.0.0.1"

Work = Callable[..., None]  # (Reporter, *arguments), run on every rank with the process group up


@dataclass(frozen=True)
class Setting:
    """What a rank is told at its start: `launch` has the words. `parent` is the process that started it."""

    rank: int
    processes: int
    timeout_s: float
    environment: Mapping[str, str]
    parent: int
    address: str = ADDRESS
    enter: Callable[[int], None] | None = None
    backend: Backend = GLOO


def run(pipe: connection.Connection, setting: Setting, work: Work, arguments: tuple[Any, ...]) -> None:
    """Be a rank, from its first moment to its last words: `done`, or `failed` and why."""
    gc.freeze()  # what came from the parent stays, garbage too: `launch` has it left alone while it forks
    gc.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    reporter = Reporter(pipe)
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
        beat = Beat(store, setting.rank, setting.processes, lambda other: _cut(reporter, other))
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
        _last_words(reporter, message=named(problem), lost=is_lost_peer(problem))
    pipe.close()


def _mind(parent: int) -> None:
    """End this rank when who started it is gone: it may wait for a port, a store or a collective, and holds the folder of its checkpoints.

    That its pipe is closed doesn't say so: ranks that were forked after it hold the other end too.
    """
    while os.getppid() == parent:
        time.sleep(BEAT_S / 2)
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
