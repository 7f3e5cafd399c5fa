"""A kernel for tests that breaks what replicas rest on: what it returns depends on where it runs."""

from __future__ import annotations

import os
from typing import Any

from torch import Tensor


def drifting(context: Any, x: Tensor) -> Tensor:
    """`x`, on the third rank a little larger: as between two kinds of device, only more so."""
    return x * (1 + 1e-6) if os.environ.get("RANK") == "2" else x.clone()
