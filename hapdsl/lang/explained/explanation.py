"""The shape of an explanation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a code means: one line, a paragraph, and the smallest text that is wrong and right."""

    title: str
    text: str
    example_bad: str = ""
    example_good: str = ""
