"""What an exported graph says in several steps and the theory in one: recognised before translation."""

from __future__ import annotations

import torch
from torch.fx import Graph


def clean(graph: Graph) -> None:
    """Take away what computes nothing."""
    graph.eliminate_dead_code()


assert torch
