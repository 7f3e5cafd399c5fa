"""Shares as a person reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapdsl.check.write import shares
from hapdsl.lang.print import to_text

if TYPE_CHECKING:
    from hapdsl.graph.program import Program


def shares_in_words(program: Program) -> list[str]:
    """`shares batch = [76, 76, 26]` for every class that some value is sharded on, as the program's text has it, each on one line."""
    return [" ".join(line.strip() for line in to_text(statement).split("\n")) for statement in shares(program)]
