"""How much time a search still has."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Clock:
    """A limit in wall-clock seconds (None: none) and a way to cancel."""

    limit: float | None = None
    cancelled: Callable[[], bool] | None = None
    started: float = field(default_factory=time.monotonic)

    def late(self) -> bool:
        """Is time up, or has somebody cancelled it?"""
        left = self.left()
        return (left is not None and left <= 0) or (self.cancelled is not None and self.cancelled())

    def left(self) -> float | None:
        """Seconds until the limit."""
        return None if self.limit is None else max(0.0, self.limit - self.spent())

    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started
