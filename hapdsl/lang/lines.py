"""Lines of a text before and after an edit."""

from __future__ import annotations

from collections.abc import Sequence


def alike(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """How many lines two texts share at their beginning, and how many others at their end. Cost: one comparison a line."""
    least = min(len(before), len(after))
    head = next((k for k in range(least) if before[k] != after[k]), least)
    tail = next((k for k in range(least - head) if before[-1 - k] != after[-1 - k]), least - head)
    return head, tail
