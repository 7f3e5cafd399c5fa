"""The lines of a program in execution order: sections entered, repeats unrolled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hapdsl.check.names import Turn
from hapdsl.graph.training import SECTIONS, TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error

MAX_LINES = 2_000_000


@dataclass(frozen=True)
class Placedline:
    """One statement with the section and the turn it stands in."""

    statement: nodes.Line | nodes.Free | nodes.Pin | nodes.Rest
    section: str
    turn: Turn | None


def unrolled(program: nodes.Program, graph: TrainingGraph) -> Iterator[Placedline]:
    """All lines in order. Raises HapError: HAP512 a repeat that the model doesn't have, HAP513 turns out of range,
    HAP514 sections out of order."""
    yield from _walk(program.body, "forward", None, graph, [])


def _walk(
    body: Sequence[nodes.Statement], section: str, turn: Turn | None, graph: TrainingGraph, seen: list[str]
) -> Iterator[Placedline]:
    for statement in body:
        match statement:
            case nodes.Section(kind=kind):
                if turn is not None or (seen and SECTIONS.index(kind) <= SECTIONS.index(seen[-1])):
                    raise error("HAP514", f"section '{kind}' can't stand here", statement.span, "the order is forward, backward, update, each once")  # fmt: skip
                seen.append(kind)
                yield from _walk(statement.body, kind, None, graph, seen)
            case nodes.Turns():
                yield from _turns(statement, section, turn, graph, seen)
            case nodes.Line() | nodes.Free() | nodes.Pin() | nodes.Rest():
                yield Placedline(statement, section, turn)


def _turns(
    statement: nodes.Turns, section: str, outer: Turn | None, graph: TrainingGraph, seen: list[str]
) -> Iterator[Placedline]:
    path = statement.variable
    if path.startswith(".") and outer is not None:
        path = outer.absolute(path)
    if path not in graph.repeats:
        known = ", ".join(graph.repeats) or "none"
        raise error("HAP512", f"the model has no repeat '{path}'", statement.span, f"it has: {known}")
    count = graph.repeats[path]
    if not 0 <= statement.start < statement.stop <= count:
        raise error("HAP513", f"'{path}' has the turns 0..{count}, not {statement.start}..{statement.stop}", statement.span)
    turns = range(statement.start, statement.stop)
    for number in reversed(turns) if statement.reverse else turns:
        yield from _walk(statement.body, section, Turn(path, number, count), graph, seen)
