"""The lines of a program in execution order: sections entered, repeats unrolled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hapdsl.check.names import Turn
from hapdsl.graph.training import SECTIONS, TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, Report, error
from hapdsl.theory.expressions import evaluate

MAX_LINES = 2_000_000


@dataclass(frozen=True)
class PlacedLine:
    """One statement with the section and the turn it stands in."""

    statement: nodes.Line | nodes.Free | nodes.Pin | nodes.Rest
    section: str
    turn: Turn | None


def unrolled(program: nodes.Program, graph: TrainingGraph, report: Report) -> Iterator[PlacedLine]:
    """All lines in order; a line outside a section belongs to the section before it, at first to `forward`.

    A block that can't be entered is reported and left out: HAP512 a repeat that the model doesn't have, HAP513 turns out of
    range or a repeat inside itself, HAP514 sections out of order, HAP517 what belongs at the top of a program, HAP518
    `microbatch`. Raises HapError HAP519 where repeats unroll to over MAX_LINES lines.
    """
    yield from _Walk(graph, report).body(program.body, None, ())


@dataclass
class _Walk:
    graph: TrainingGraph
    report: Report
    seen: list[str] = field(default_factory=list)  # sections so far
    count: int = 0
    inside: bool = False  # of a `microbatch` block

    def body(
        self, body: Sequence[nodes.Statement], section: str | None, turns: tuple[Turn, ...]
    ) -> Iterator[PlacedLine]:
        """`section` is None at the top of a program."""
        for statement in body:
            try:
                yield from self.statement(statement, section, turns)
            except HapError as stop:
                if any(d.code == "HAP519" for d in stop.diagnostics):
                    raise
                self.report.extend(stop.diagnostics)

    def statement(
        self, statement: nodes.Statement, section: str | None, turns: tuple[Turn, ...]
    ) -> Iterator[PlacedLine]:
        here = section or (self.seen[-1] if self.seen else "forward")
        match statement:
            case nodes.Section(kind=kind):
                if self.graph.turns > 1 and kind != "update" and not self.inside:
                    raise error("HAP518", f"the model takes its batch in {self.graph.turns} turns, and `{kind}` stands outside of them", statement.span, f"microbatch {self.graph.turns} {{ forward {{ … }}; backward {{ … }} }}")  # fmt: skip
                if kind == "update" and self.inside:
                    raise error(
                        "HAP518",
                        "`update` stands in a `microbatch` block",
                        statement.span,
                        "parameters are updated once, behind all turns",
                    )
                if section or turns or (self.seen and SECTIONS.index(kind) <= SECTIONS.index(self.seen[-1])):
                    raise error("HAP514", f"section '{kind}' can't stand here", statement.span, "the order is forward, backward, update, each once")  # fmt: skip
                self.seen.append(kind)
                yield from self.body(statement.body, kind, ())
            case nodes.Turns():
                yield from self.turns(statement, here, turns)
            case nodes.Line() | nodes.Free() | nodes.Pin() | nodes.Rest():
                self.count += 1
                if self.count > MAX_LINES:
                    raise error(
                        "HAP519",
                        f"this program unrolls to over {MAX_LINES:,} lines",
                        statement.span,
                        "repeats within repeats multiply",
                    )
                yield PlacedLine(statement, here, turns[-1] if turns else None)
            case nodes.Microbatch():
                yield from self.microbatch(statement, section, turns)

    def microbatch(
        self, statement: nodes.Microbatch, section: str | None, turns: tuple[Turn, ...]
    ) -> Iterator[PlacedLine]:
        """The lines of one turn, once: what is said of one holds for all."""
        count, wanted = evaluate(statement.count, self.graph.parameters), self.graph.turns
        if count != wanted:
            takes = f"takes its batch in {wanted} turns" if wanted > 1 else "has no `microbatch` block"
            raise error("HAP518", f"the model '{self.graph.model}' {takes}, not in {count!r}", statement.span, f"microbatch {wanted} {{ … }}" if wanted > 1 else "write the lines without it")  # fmt: skip
        if section or turns or self.inside or any(s != "forward" for s in self.seen):
            raise error("HAP518", "this `microbatch` can't stand here", statement.span, "one block holds `forward` and `backward`, and `update` stands behind it")  # fmt: skip
        self.inside = True
        yield from self.body(statement.body, None, ())
        self.inside = False

    def turns(self, statement: nodes.Turns, section: str, outer: tuple[Turn, ...]) -> Iterator[PlacedLine]:
        path = statement.variable
        if path not in self.graph.repeats:
            known = ", ".join(list(self.graph.repeats)[:8]) or "none"
            raise error("HAP512", f"the model has no repeat '{path}'", statement.span, f"it has: {known}")
        if any(turn.path == path for turn in outer):
            raise error(
                "HAP513", f"'{path}' is repeated inside itself", statement.span, "end the first repeat before this one"
            )
        count = self.graph.repeats[path]
        if not 0 <= statement.start < statement.stop <= count:
            raise error(
                "HAP513",
                f"'{path}' has the turns 0..{count}, not {statement.start}..{statement.stop}",
                statement.span,
                "turns count from 0, and the end is exclusive",
            )
        numbers = range(statement.start, statement.stop)
        for number in reversed(numbers) if statement.reverse else numbers:
            yield from self.body(statement.body, section, (*outer, Turn(path, number, count)))
