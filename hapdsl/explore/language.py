"""What editors ask of a text: diagnostics, words about a name, where it is made, renaming, formatting, fixes. No protocol here (`lsp`).

Lines and columns count from 1, as everywhere; a span is (line, column, end column) of one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

from hapdsl.explore.analyse import analyse, formatted
from hapdsl.explore.describe import describe
from hapdsl.explore.desk import Desk
from hapdsl.explore.inspecting import inspect
from hapdsl.explore.names import NAME, code, definition, fix_of, name_at
from hapdsl.explore.protocol import analysis_from
from hapdsl.explore.state import Analysis, Document
from hapdsl.explore.state import Finding as Found
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.load import STANDARD, standard_places
from hapdsl.lang.nodes import Span as Stretch
from hapdsl.theory.library import blocks as standard_blocks
from hapdsl.workbench import Workbench

Object = dict[str, Any]
_MISSING = ("HAP561", "HAP562")  # a value isn't at hand, and the help may have the line that makes it
_LINE = re.compile(r"^`([^`]+@[^`]+ = [^`]+)`$")
Span = tuple[int, int, int]


@dataclass(frozen=True)
class Edit:
    """What goes in the place of a span."""

    span: Span
    text: str


@dataclass(frozen=True)
class Place:
    """A place in another file."""

    file: str
    line: int
    column: int


@dataclass(frozen=True)
class Action:
    """A fix with its title, and the finding that it is for."""

    title: str
    finding: Found
    edit: Edit


class Language:
    """One server's knowledge of the texts that are open."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.documents: dict[str, Document] = {}

    def open(self, path: str, text: str) -> Document:
        """Take a text, look at it, and keep both."""
        document = self.documents.setdefault(path, Document(path, ""))
        document.edit(text, by_hand=False)
        document.accept(self._analysis(path, text, document.version))
        return document

    def close(self, path: str) -> None:
        self.documents.pop(path, None)

    def _analysis(self, path: str, text: str, version: int) -> Analysis:
        return analysis_from(analyse(text, path, None, self.desk, version), version)

    def findings(self, path: str) -> tuple[Found, ...]:
        return self.documents[path].findings

    def hover(self, path: str, line: int, column: int) -> str | None:
        """Words about a place: in a program all of the inspector's, in a model the tensor's shape and class."""
        document = self.documents[path]
        program = document.program_at(line)
        if program is not None:
            facts = self._inspected(document, path, program.name, line)
            words = "".join(w for w, _ in describe(document, None, line, facts or None)).strip()
            return words or None
        return self._of_model(document, path, line, column)

    def _of_model(self, document: Document, path: str, line: int, column: int) -> str | None:
        name = name_at(document.text.split("\n")[line - 1], column - 1)
        bench = self._bench(document, path)
        if not name or bench is None:
            return None
        model = next((b for b in bench.bundle.of_main(nodes.Model) if b.span.line <= line <= b.span.end_line), None)
        if model is None or not isinstance(model, nodes.Model):
            return None
        try:
            graph = bench.graph(model.name)
        except HapError:
            return None
        meant = graph.resolve(name)
        found = [t for n, t in graph.tensors.items() if n == meant or n.endswith(f".{name}")]
        if not found:
            return None
        dims = ", ".join(
            f"{n} {c}" if c else str(n)
            for n, c in zip(found[0].shape, found[0].classes or [None] * len(found[0].shape), strict=False)
        )
        more = f", and {len(found) - 1} more of this name" if len(found) > 1 else ""
        return f"{found[0].name}: {found[0].dtype}[{dims}], {found[0].kind}{more}"

    def definition(self, path: str, line: int, column: int) -> tuple[int, int] | None:
        """Where the name at a place is made, in this text."""
        document = self.documents[path]
        name = name_at(document.text.split("\n")[line - 1], column - 1)
        return definition(document.text, name, line, document.program_at(line)) if name else None

    def elsewhere(self, path: str, line: int, column: int) -> Place | None:
        """Where the name at a place is made in another file: what an import names, a block, the model's line behind an instruction, a standard
        operator."""
        document = self.documents[path]
        bench = self._bench(document, path)
        if bench is None:
            return None
        bundle = bench.bundle
        for item in bundle.of_main(nodes.Import):
            if isinstance(item, nodes.Import) and item.span.line == line:
                beside = [bundle.main.path.parent / item.path]
                places = standard_places(item.path) if item.path.startswith(STANDARD) else beside
                wanted = {place.resolve() for place in places}
                found = next((s.path for s in bundle.sources if s.path.resolve() in wanted), None)
                return Place(str(found.resolve()), 1, 1) if found is not None else None
        name = name_at(document.text.split("\n")[line - 1], column - 1)
        for table in (bundle.models, bundle.clusters, bundle.defs, bundle.ops, bundle.devices, bundle.programs):
            if name in table:
                return self._place(bench, table[name].span)
        for file, ops in standard_blocks().items():
            op = next((op for op in ops if op.name == name), None)
            if op is not None:
                return Place(str(resources.files("hapdsl.theory") / f"{file}.hap"), op.span.line, op.span.column)
        program = document.program_at(line)
        source = (
            self._inspected(document, path, program.name, line).get("source") if name and program is not None else None
        )
        return (
            self._place(bench, Stretch(source["file"], source["line"], source["column"]))
            if source is not None
            else None
        )

    def _place(self, bench: Workbench, span: Stretch) -> Place | None:
        found = next((s.path for s in bench.bundle.sources if s.name == span.file and s is not bench.bundle.main), None)
        return Place(str(found.resolve()), span.line, span.column) if found is not None else None

    def _bench(self, document: Document, path: str) -> Workbench | None:
        """The bench of a text; None for one that can't be read."""
        return self.desk.reading({"path": path, "version": document.version, "text": document.text}).bench

    def _inspected(self, document: Document, path: str, program: str, line: int) -> Object:
        """What the inspector says of a program's line; nothing where it isn't proven."""
        request = {"path": path, "version": document.version, "text": document.text, "program": program, "line": line}
        try:
            return inspect(self.desk, request)
        except HapError:
            return {}

    def format(self, path: str) -> str | None:
        """The text as `fmt` prints it; None where it doesn't parse."""
        return formatted(self.documents[path].text, path).get("text")

    def actions(self, path: str, first: int, last: int) -> list[Action]:
        """The fixes for findings in some lines."""
        document = self.documents[path]
        rows = document.text.split("\n")
        found = []
        for f in document.findings:
            fix = fix_of(f, rows[f.line - 1]) if f.here and first <= f.line <= last else None
            if fix is not None:
                found.append(Action(f"write {fix.text}", f, Edit((f.line, fix.start + 1, fix.end + 1), fix.text)))
            elif f.here and f.code in _MISSING and first <= f.line <= last and (line := _LINE.search(f.help)):
                start = self._statement(path, f.line)
                indent = len(rows[start - 1]) - len(rows[start - 1].lstrip())
                edit = Edit((start, indent + 1, indent + 1), f"{line[1]}\n{' ' * indent}")
                if self._mends(path, f, edit):
                    found.append(Action(f"put {line[1]} above", f, edit))
        return found

    def _statement(self, path: str, line: int) -> int:
        """The line on which the program's statement at a line begins."""
        bench = self._bench(self.documents[path], path)
        inner: list[nodes.Statement] = list(bench.bundle.of_main(nodes.Program)) if bench is not None else []
        start = line
        while inner:
            found = next((s for s in inner if s.span.line <= line <= s.span.end_line), None)
            start = found.span.line if found is not None else line
            inner = list(getattr(found, "body", ()))
        return start

    def _mends(self, path: str, finding: Found, edit: Edit) -> bool:
        """Is the finding gone after an edit, and nothing wrong that was right before? In a repeat, or within a statement of several lines, a
        line put above may not be what is needed."""
        document = self.documents[path]
        if any(f.message == finding.message and f.line < finding.line for f in document.findings):
            return False  # it is missing further up already
        after = self._analysis(path, apply(document.text, [edit]), -1)
        known = {(f.code, f.message) for f in document.findings if f is not finding}
        return all((f.code, f.message) in known for f in after.findings if f.is_error)

    # -- renaming ---------------------------------------------------------------------------

    def rename(self, path: str, line: int, column: int, new: str) -> list[Edit]:
        """Every place of a name gets another: of a tensor in its model and the programs for it (gradients and state with it), of a block in
        the whole file. Raises ValueError with words where the text would mean something else, or nothing any more."""
        document = self.documents[path]
        rows = document.text.split("\n")
        old = name_at(rows[line - 1], column - 1).lstrip(".").split(".")[0]
        if not old:
            raise ValueError("there is no name here")
        if not NAME.fullmatch(new) or "." in new:
            raise ValueError(f"'{new}' can't be a name")
        bench = self._bench(document, path)
        if bench is None:
            raise ValueError("the text has to be readable first")
        ranges = _ranges(bench, line, old)
        if new != old and next(_places(rows, ranges, new), None) is not None:
            raise ValueError(f"'{old}' can't be '{new}': that name is taken")
        edits = [Edit((n, c, c + len(old)), new) for n, c in _places(rows, ranges, old)]
        after = self._analysis(path, apply(document.text, edits), -1)
        known = {(f.code, re.sub(rf"\b{old}\b", new, f.message)) for f in document.findings}
        first = next((f for f in after.findings if f.is_error and (f.code, f.message) not in known), None)
        if first is not None:
            raise ValueError(f"'{old}' can't be '{new}': {first.code} {first.message}")
        return edits


def _ranges(bench: Workbench, line: int, old: str) -> list[tuple[int, int]]:
    """The lines (first and last) in which a name means what it means at a line."""
    items = list(bench.bundle.main.tree.items)
    kinds = nodes.Model | nodes.Cluster | nodes.Program | nodes.Def | nodes.Op
    if any(isinstance(b, kinds) and b.name == old for b in items):
        return [(1, bench.bundle.main.text.count("\n") + 1)]
    here = next((b for b in items if b.span.line <= line <= b.span.end_line), None)
    model = here.model if isinstance(here, nodes.Program) else here.name if isinstance(here, nodes.Model) else None
    of_model = [
        b
        for b in items
        if (isinstance(b, nodes.Model) and b.name == model) or (isinstance(b, nodes.Program) and b.model == model)
    ]
    own = [b.span for b in of_model] or ([here.span] if here is not None else [])
    return [(span.line, span.end_line) for span in own] or [(line, line)]


def _places(rows: list[str], ranges: list[tuple[int, int]], name: str) -> Iterator[tuple[int, int]]:
    """Lines and columns of a name, by itself or as the first part of a dotted one."""
    for first, last in ranges:
        for number in range(first, min(last, len(rows)) + 1):
            for m in NAME.finditer(code(rows[number - 1])):
                shift = 1 if m[0].startswith(".") else 0
                if m[0].lstrip(".").split(".")[0] == name:
                    yield number, m.start() + 1 + shift


def apply(text: str, edits: list[Edit]) -> str:
    """The text after some edits."""
    rows = text.split("\n")
    for edit in sorted(edits, key=lambda e: (e.span[0], -e.span[1])):
        line, start, end = edit.span
        rows[line - 1] = rows[line - 1][: start - 1] + edit.text + rows[line - 1][end - 1 :]
    return "\n".join(rows)
