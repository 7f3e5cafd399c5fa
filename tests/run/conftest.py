"""Torch on one thread: on a busy machine more threads make small tensors slower."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hapdsl.run.threads import one_thread


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    with one_thread():
        yield
