"""Time and memory of the process at hand; which others there are (Linux)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path


def peak() -> int:
    """Bytes that this process has held at most (the kernel's VmHWM; ru_maxrss would begin with the parent's).

    Where there is no /proc: 0.
    """
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) * 1024 if found else 0


def cpu(pid: int) -> float:
    """CPU seconds of a process' first thread so far, 0 for one that is gone."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    return 0.0


def below(pid: int) -> Iterator[int]:
    """A process and all that it started."""
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from below(int(child))


def state(pid: int) -> str:
    """The kernel's letter for what a process does (T: it is stopped). Raises OSError for one that is gone."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def alive(pid: int) -> bool:
    """Does a process still run? One that has ended and isn't waited for doesn't."""
    with suppress(OSError):
        return state(pid) not in ("Z", "X")
    return False


@dataclass
class Watch:
    """Wall-clock and CPU seconds since it was made."""

    wall_start: float = field(default_factory=time.perf_counter)
    cpu_start: float = field(default_factory=time.process_time)

    @property
    def wall(self) -> float:
        return time.perf_counter() - self.wall_start

    @property
    def cpu(self) -> float:
        return time.process_time() - self.cpu_start
