"""In which order tests run, and what they find when they do."""

from __future__ import annotations

import signal

import pytest


def pytest_configure() -> None:
    """Ctrl-C is heard, also where the tests run in the background of a shell that has had it ignored: some of them press it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those marked `long` come first, so that no process is left with one of them when the others are through."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
