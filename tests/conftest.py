"""In which order tests run, and what they find when they do."""

from __future__ import annotations

import gc
import signal

import pytest


def pytest_configure() -> None:
    """Ctrl-C is heard, also where the tests run in the background of a shell that has had it ignored: some of them press it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.set_threshold(50_000, 10, 10)  # graphs and trees are many small objects, hardly any of them garbage in cycles


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those marked `long` come first, so that no process is left with one of them when the others are through."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """What has been imported stays: to look for garbage among all modules again and again took a fifth of the time."""
    gc.collect()
    gc.freeze()
