"""Torch on one thread: tensors of a few numbers are slower on two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hapdsl.run.threads import one_thread


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    with one_thread():
        yield
