"""What the explorer knows of a text, apart from any screen: a document, its versions and analyses.

Texts have versions. Whatever is worked out elsewhere comes back with the version it was worked out from; an answer to an older
version is dropped, and the last good cost of a program stays until there is a newer one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hapdsl.explore.moving import moved


@dataclass(frozen=True)
class Finding:
    """A diagnostic as it came from the checker. `here` says that it stands in the document itself; lines count from 1, 0 for none."""

    code: str
    severity: str
    message: str
    help: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    here: bool = True

    @property
    def is_error(self) -> bool:
        return self.severity == "error"


@dataclass(frozen=True)
class LineCost:
    """What one line costs: seconds on the slowest device, and on each; `count` instructions (turns of a repeat), `bytes` moved."""

    seconds: float
    devices: tuple[float, ...] = ()
    count: int = 1
    bytes: int = 0
    words: str = ""


PROVEN, SKETCH, WRONG, UNKNOWN = "proven", "sketch", "wrong", "unknown"
TEXT = "text"  # of a file that holds no program


@dataclass(frozen=True)
class Priced:
    """One program of a text. The totals are None where it has no cost; `lines` are costs by line number."""

    name: str
    model: str
    cluster: str | None
    line: int
    end_line: int
    state: str = UNKNOWN
    instructions: int = 0
    sync_s: float | None = None
    overlap_s: float | None = None
    memory_bytes: tuple[int, ...] = ()
    capacity_bytes: tuple[float, ...] = ()
    devices: tuple[str, ...] = ()
    fits: bool = True
    guessed: bool = False
    note: str = ""
    lines: Mapping[int, LineCost] = field(default_factory=dict)


@dataclass(frozen=True)
class Analysis:
    """All that the checker says about one version of a text."""

    version: int
    findings: tuple[Finding, ...] = ()
    programs: tuple[Priced, ...] = ()

    def program(self, name: str) -> Priced | None:
        return next((p for p in self.programs if p.name == name), None)


@dataclass
class Document:
    """A text that is open: a file's, or one that has no file yet (then `suggested` is a name for it)."""

    key: str
    text: str
    path: Path | None = None
    suggested: Path | None = None
    saved: str | None = None
    version: int = 1
    analysis: Analysis | None = None
    analysed: str = ""  # the text that it is about
    # Per program: its last cost, with the text it was the cost of.
    good: dict[str, tuple[str, Priced]] = field(default_factory=dict)
    # Per program: where it was last seen, cost or not.
    seen: dict[str, tuple[str, Priced]] = field(default_factory=dict)
    carried: dict[tuple[str, str], tuple[int, Priced, Priced]] = field(default_factory=dict, repr=False)
    touched: bool = False

    @property
    def title(self) -> str:
        if self.path is not None:
            return self.path.name
        return self.suggested.name if self.suggested is not None else self.key

    @property
    def name(self) -> str:
        """What positions call this text."""
        return str(self.path or self.suggested or self.key)

    @property
    def dirty(self) -> bool:
        """Would quitting lose something that a person typed?"""
        return self.touched and self.text != self.saved

    @property
    def claimed(self) -> bool:
        """Is it a person's, edited or saved, so that nothing else takes its place?"""
        return self.touched or self.path is not None

    @property
    def checking(self) -> bool:
        return self.analysis is None or self.analysis.version != self.version

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Those of this very text; none while it is being checked."""
        return () if self.checking or self.analysis is None else self.analysis.findings

    def edit(self, text: str, by_hand: bool = True) -> bool:
        """Take a new text; False where it is the old one."""
        if text == self.text:
            return False
        self.text = text
        self.version += 1
        self.touched = self.touched or by_hand
        return True

    def outdate(self) -> None:
        """What the text depends on has changed: all that is known of it is about an older version."""
        self.version += 1

    def accept(self, analysis: Analysis) -> bool:
        """Take an answer of the checker unless it is about another version."""
        if analysis.version != self.version:
            return False
        self.analysis, self.analysed = analysis, self.text
        for priced in analysis.programs:
            self.seen[priced.name] = (self.text, priced)
            if priced.sync_s is not None:
                self.good[priced.name] = (self.text, priced)
        names = {p.name for p in analysis.programs}
        if names or not analysis.findings:  # a program that was renamed or taken away leaves nothing behind
            self.good, self.seen = ({n: g for n, g in table.items() if n in names} for table in (self.good, self.seen))
        return True

    def saved_as(self, path: Path, text: str) -> None:
        self.path, self.saved, self.touched = path, text, False

    def program(self, name: str) -> Priced | None:
        """What is known of a program: of this version, else as it was last seen, with its lines moved along."""
        if not self.checking and self.analysis is not None:
            found = self.analysis.program(name)
            if found is not None:
                return found
        return self._remembered("seen", name)

    def last_good(self, name: str) -> Priced | None:
        """The last cost of a program, its lines where they stand in the text now."""
        return self._remembered("good", name)

    def _remembered(self, which: str, name: str) -> Priced | None:
        """From `good` or `seen`, with lines where they stand now; worked out once a version."""
        table = self.good if which == "good" else self.seen
        if name not in table:
            return None
        text, priced = table[name]
        if text == self.text:
            return priced
        known = self.carried.get((which, name))
        if known is None or known[0] != self.version or known[1] is not priced:
            known = self.carried[which, name] = (self.version, priced, self._carry(text, priced))
        return known[2]

    def _carry(self, text: str, priced: Priced) -> Priced:
        move = moved(text, self.text)
        lines = move.carried(priced.lines)
        return replace(
            priced,
            lines=lines,
            line=move(priced.line) or priced.line,
            end_line=move(priced.end_line) or priced.end_line,
        )

    def state(self, name: str) -> str:
        """Whether a program is proven, a sketch, or wrong; unknown while it is checked, or while the fault is elsewhere in the text."""
        if self.checking or self.analysis is None:
            return UNKNOWN
        now = self.analysis.program(name)
        if now is not None:
            return now.state
        last = self._remembered("seen", name)
        inside = last is None or any(
            f.is_error and f.here and last.line <= f.line <= last.end_line for f in self.findings
        )
        return WRONG if inside else UNKNOWN

    @property
    def state_of_all(self) -> str:
        """The same of a text without a program."""
        return WRONG if any(f.is_error for f in self.findings) else TEXT

    def costs(self) -> tuple[dict[int, LineCost], set[int]]:
        """Costs by line, and which of these lines are only remembered: their program has no cost now."""
        found: dict[int, LineCost] = {}
        old: set[int] = set()
        for name in self.good:
            now = None if self.checking or self.analysis is None else self.analysis.program(name)
            current = now is not None and now.sync_s is not None
            priced = now if current else self.last_good(name)
            assert priced is not None
            found.update(priced.lines)
            if not current:
                old.update(priced.lines)
        return found, old

    def program_at(self, line: int) -> Priced | None:
        """The program that a line stands in."""
        for name in self.seen:
            found = self.program(name)
            if found is not None and found.line <= line <= found.end_line:
                return found
        return None


def worst(findings: Sequence[Finding], line: int) -> Finding | None:
    """What to show for a line: an error before a warning."""
    own = [f for f in findings if f.here and f.line <= line <= max(f.line, f.end_line if f.end_column > 1 else f.line)]
    exact = [f for f in own if f.line == line] or own
    return min(exact, key=lambda f: not f.is_error, default=None)
