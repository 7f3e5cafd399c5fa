"""What the explorer knows, apart from any screen: documents, their versions and analyses, the plans at hand.

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


# -- plans -------------------------------------------------------------------------

FILE, BASELINE, SYNTHESISED = "file", "baseline", "plan"
BASELINES = {
    "dp_even": "data parallel, even",
    "dp_proportional": "data parallel, by speed",
    "zero": "fully sharded (ZeRO)",
    "tensor_parallel": "tensor parallel",
    "expert_parallel": "expert parallel",
}


@dataclass(frozen=True)
class Plan:
    """One entry of the list: a program of a document. `gap` and `bound_s` come with a synthesised one."""

    document: str
    program: str
    origin: str
    title: str
    bound_s: float | None = None
    gap: float | None = None
    scope: str = ""
    doing: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return (self.document, self.program)


@dataclass(frozen=True)
class Row:
    """A plan as the list shows it."""

    plan: Plan
    state: str
    seconds: float | None
    old: bool
    fits: bool
    dirty: bool
    model: str = ""


@dataclass
class Session:
    """Everything that is open. The first document is the file that was asked for."""

    documents: dict[str, Document] = field(default_factory=dict)
    plans: dict[tuple[str, str], Plan] = field(default_factory=dict)
    current: tuple[str, str] | None = None
    marked: list[tuple[str, str]] = field(default_factory=list)  # plans to be compared, in the order of marking
    searching: str = ""  # what a running search does, in words
    importing: str = ""  # the factory whose module is being imported
    not_imported: str = ""  # why it wasn't, in words
    brought: Path | None = None  # the file that an import wrote

    @property
    def sources(self) -> list[Path]:
        """The files that plans are made from: tables that a text can't say lie beside them."""
        return [p for p in (self.main.path, self.brought) if p is not None]

    @property
    def main(self) -> Document:
        return next(iter(self.documents.values()))

    @property
    def document(self) -> Document:
        """The document on the screen."""
        return self.documents[self.current[0]] if self.current is not None else self.main

    @property
    def plan(self) -> Plan | None:
        return self.plans.get(self.current) if self.current is not None else None

    @property
    def unsaved(self) -> list[Document]:
        return [d for d in self.documents.values() if d.dirty]

    def open(self, document: Document) -> Document:
        self.documents[document.key] = document
        return document

    def put(self, plan: Plan) -> None:
        self.plans[plan.key] = plan

    def accept(self, key: str, analysis: Analysis) -> bool:
        """Take an analysis and bring the document's plans up to date: a program that is new is a plan at hand."""
        document = self.documents.get(key)
        if document is None or not document.accept(analysis):
            return False
        if analysis.programs or not analysis.findings:
            names = [p.name for p in analysis.programs]
            before = [k[1] for k in self.plans if k[0] == key]
            gone = [k for k in self.plans if k[0] == key and k[1] not in names]
            for k in gone:
                del self.plans[k]
                if k in self.marked:
                    self.marked.remove(k)
            for name in names:  # in the order of the text
                found = self.plans.pop((key, name)) if (key, name) in self.plans else Plan(key, name, FILE, name)
                self.plans[key, name] = found
            if self.current is not None and self.current in gone:
                at = before.index(self.current[1])  # renamed, most likely
                self.current = (key, names[at if len(names) == len(before) else 0]) if names else None
        if self.current in (None, self.whole) and document is self.main:
            self.current = next((k for k in self.plans if k[0] == key), self.current)
        return True

    @property
    def whole(self) -> tuple[str, str]:
        """The key of the first document itself, which holds no program."""
        return (self.main.key, "")

    def listed(self) -> list[Row]:
        """What can be looked at: the plans, and before them the file they are plans for where it holds none."""
        rows = self.rows()
        if rows and all(r.plan.document != self.main.key for r in rows):
            state = WRONG if any(f.is_error for f in self.main.findings) else TEXT
            rows.insert(0, Row(Plan(*self.whole, FILE, self.main.title), state, None, False, True, self.main.dirty))
        return rows

    @property
    def best(self) -> Plan | None:
        """The plan that a person who only has a model wants to hear about: what the search found, else the first baseline."""
        plans = sorted(
            (p for p in self.plans.values() if p.document != self.main.key), key=lambda p: p.origin != SYNTHESISED
        )
        return plans[0] if plans and all(p.document != self.main.key for p in self.plans.values()) else None

    def rows(self) -> list[Row]:
        """The plans in order: the file's own, the synthesised one, baselines; each group as it came."""
        order = {FILE: 0, SYNTHESISED: 1, BASELINE: 2}
        return [self._row(p) for p in sorted(self.plans.values(), key=lambda p: order[p.origin])]

    def _row(self, plan: Plan) -> Row:
        document = self.documents[plan.document]
        priced = document.program(plan.program)
        now = None if document.checking or document.analysis is None else document.analysis.program(plan.program)
        good = document.last_good(plan.program)
        seconds = (
            now.sync_s if now is not None and now.sync_s is not None else good.sync_s if good is not None else None
        )
        old = seconds is not None and (now is None or now.sync_s is None)
        fits, model = (priced.fits, priced.model) if priced is not None else (True, "")
        return Row(plan, document.state(plan.program), seconds, old, fits, document.dirty, model)


def gap_in_words(gap: float | None) -> str:
    """A gap as the list shows it."""
    if gap is None:
        return ""
    return f"gap {gap * 100:.2g} %" if gap >= 5e-5 else "gap 0 %"


def worst(findings: Sequence[Finding], line: int) -> Finding | None:
    """What to show for a line: an error before a warning."""
    own = [f for f in findings if f.here and f.line <= line <= max(f.line, f.end_line if f.end_column > 1 else f.line)]
    exact = [f for f in own if f.line == line] or own
    return min(exact, key=lambda f: not f.is_error, default=None)
