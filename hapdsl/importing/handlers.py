"""The table of handlers: which function translates which exported operator. The modules below fill it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

HANDLERS: dict[str, Callable[..., Any]] = {}
KNOWING: set[str] = set()  # operators whose handlers look at constants; others get them as tensors of the text


def handles(*names: str, constants: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function for exported operators: `handles("aten.linear.default")`. With `constants` it gets these as they are."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            HANDLERS[name] = function
            if constants:
                KNOWING.add(name)
        return function

    return register
