"""The service's answers to questions about texts: one table, so that a new question is one line.

Each takes the desk and the request and gives an object; those of `LONG` say several things and look whether somebody else waits.
Modules are imported when they are asked: a helper that only checks never loads the search.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from hapdsl.explore.desk import Desk

Object = dict[str, Any]
Say = Callable[[Object], None]
Waiting = Callable[[], bool]

SHORT = {
    "line": "inspecting.inspect",
    "overview": "overview.overview",
    "timeline": "timing.timeline",
    "take": "advising.take",
    "shares": "sharing.table",
    "unit_prices": "sharing.prices",
    "move_shares": "sharing.move",
    "optimise_shares": "sharing.optimise",
    "compare": "comparing.compare",
    "export": "exporting.export",
    "alone": "exporting.alone",
    "unroll": "exporting.unroll",
}
LONG = {
    "why": "advising.why",
    "complete": "completing.complete",
    "whatif": "comparing.whatif",
}


def ask(do: str, desk: Desk, request: Object, say: Say, waiting: Waiting) -> bool:
    """Answer a question; False for one that nobody knows. Raises HapError, or Lost where the text has to be sent again."""
    if do in SHORT:
        say({**_function(SHORT[do])(desk, request), "done": True})
    elif do in LONG:
        _function(LONG[do])(desk, request, say, waiting)
        say({"done": True})
    else:
        return False
    return True


def _function(where: str) -> Callable[..., Any]:
    module, _, name = where.partition(".")
    return getattr(import_module(f"hapdsl.explore.{module}"), name)
