"""Time and memory of the process at hand."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path


def peak() -> int:
    """Bytes that this process has held at most (the kernel's VmHWM; ru_maxrss would begin with the parent's).

    Where there is no /proc: 0.
    """
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) * 1024 if found else 0


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
