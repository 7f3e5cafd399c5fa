"""A report that says a thing once: the turns of a repeat, and lines that share a fault, show it where it stands."""

from __future__ import annotations

from collections.abc import Iterable

from hapdsl.lang.diagnostics import Diagnostic, Report
from hapdsl.lang.nodes import NOWHERE, Span

# After so many errors a program is another program; the rest would be noise.
MOST_ERRORS = 100


class Findings(Report):
    """Collects diagnostics, each code once per place."""

    def __init__(self) -> None:
        super().__init__()
        self._known: set[tuple[str, Span]] = set()

    def add(self, code: str, message: str, span: Span = NOWHERE, help: str = "", severity: str = "error") -> None:
        self.extend((Diagnostic(code, message, span, help, severity),))

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Add those that weren't said of their place yet."""
        for d in diagnostics:
            # What has no place in a text (a synthesised program's lines) is told apart by its words.
            key = (d.code, d.span) if d.span != NOWHERE else (d.code + d.message, d.span)
            if key not in self._known:
                self._known.add(key)
                super().extend((d,))

    @property
    def full(self) -> bool:
        """Are there so many that looking for more is of no use?"""
        return len(self._known) >= MOST_ERRORS
