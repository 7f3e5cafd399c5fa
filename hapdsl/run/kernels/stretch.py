"""Operands that stretch as numpy's do, for functions of torch's that want them in one shape."""

from __future__ import annotations

import torch
from torch import Tensor


def in_full(*operands: Tensor) -> tuple[Tensor, ...]:
    """The operands in their common shape, views where they stretch, themselves where none does."""
    if all(o.shape == operands[0].shape for o in operands):
        return operands
    return tuple(torch.broadcast_tensors(*operands))
