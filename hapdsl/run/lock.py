"""One run at a time writes into a folder."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hapdsl.lang.diagnostics import error
from hapdsl.lang.nodes import Span
from hapdsl.run.checkpoint_write import unwritable

NAME = "lock"
PATIENCE_S = 8.0  # the ranks of a run that was killed notice it within a second, processes that load their data within five, and let go


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder, made where it is missing, against other runs. The system lets go when the processes that hold it have ended.

    Raises HapError: HAP755 another run holds it, HAP754 the folder can't be written to.
    """
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as problem:
        raise unwritable(path, problem) from None
    try:
        _take(handle, path)
        with suppress(OSError):  # a full disk: the lock holds without a name in it
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def _take(handle: int, path: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                break
        except OSError as problem:  # a file system without locks
            raise unwritable(path, problem) from None
        time.sleep(0.2)
    holder = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
    raise error(
        "HAP755",
        f"{path.parent} is in use: {holder} writes its checkpoints there",
        Span(str(path)),
        "wait for it, or give this run a folder of its own: --checkpoint OTHER",
        status=1,
    )
