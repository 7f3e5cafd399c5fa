"""The table of handlers: which function translates which exported operator. The modules below fill it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

HANDLERS: dict[str, Callable[..., Any]] = {}


def handles(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function for exported operators: `handles("aten.linear.default")`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            HANDLERS[name] = function
        return function

    return register
