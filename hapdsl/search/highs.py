"""HiGHS through scipy, without what it prints: its C++ code writes to file descriptor 1 now and then, whatever it is told."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scipy.optimize import milp as _milp

_ONE_AT_A_TIME = threading.Lock()


def milp(*arguments: Any, **options: Any) -> Any:
    """`scipy.optimize.milp`; stdout stays as it was before, since a program or an object may be on its way there."""
    with _ONE_AT_A_TIME, _elsewhere():
        return _milp(*arguments, **options)


@contextmanager
def _elsewhere() -> Iterator[None]:
    """Point descriptor 1 at nothing for a while; where there is no such descriptor, nothing needs to be done."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:
        yield
        return
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
