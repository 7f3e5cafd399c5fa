"""The explorer: a terminal application over plans, programs and their costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hapdsl.explore.bringing import Bring


def explore(
    path: str,
    model: str | None = None,
    cluster: str | None = None,
    settings: Mapping[str, Any] | None = None,
    trace: str | None = None,
    theme: str | None = None,
    bring: Bring | None = None,
) -> int:
    """Open a file, or what `bring` imports (then `path` is not read), in the explorer and return the exit status. Raises HapError for a file that can't be read."""
    from hapdsl.explore.app import run

    return run(path, model, cluster, dict(settings or {}), trace, theme, bring)
