"""All that is open: documents, and the plans in them. No screen here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hapdsl.explore.state import Analysis, Document

FILE, BASELINE, SYNTHESISED = "file", "baseline", "plan"
GAP = 0.01  # at which a search stops where nobody says otherwise
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
            # A text that holds no program can be looked at as a whole; the main one can anyway.
            names = [p.name for p in analysis.programs] or ([] if document is self.main else [""])
            before = [k[1] for k in self.plans if k[0] == key]
            gone = [k for k in self.plans if k[0] == key and k[1] not in names]
            for k in gone:
                del self.plans[k]
                if k in self.marked:
                    self.marked.remove(k)
            for name in names:  # in the order of the text
                found = self.plans.pop((key, name), None) or Plan(key, name, FILE, name or document.title)
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
            rows.insert(0, self._row(Plan(*self.whole, FILE, self.main.title)))
        return rows

    @property
    def best(self) -> Plan | None:
        """The plan that a person who only has a model wants to hear about: what the search found, else the first baseline."""
        plans = sorted(
            (p for p in self.plans.values() if p.document != self.main.key and p.program),
            key=lambda p: p.origin != SYNTHESISED,
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
        state = document.state(plan.program) if plan.program else document.state_of_all
        return Row(plan, state, seconds, old, fits, document.dirty, model)


def gap_in_words(gap: float | None) -> str:
    """A gap as the list shows it."""
    if gap is None:
        return ""
    return f"gap {gap * 100:.2g} %" if gap >= 5e-5 else "gap 0 %"
