"""Processes and ports of this machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from benchmarks import process as linux


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def alive(pid: int) -> bool:
    """Does a process still run? One that has ended and isn't waited for doesn't, where the system says so."""
    try:
        os.kill(pid, 0)
        # It may end, and be gone, between the two.
        return not Path("/proc").is_dir() or linux.alive(pid)
    except ProcessLookupError:
        return False
