"""Torch on one thread: on a busy machine more threads make small tensors slower."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)
