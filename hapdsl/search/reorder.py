"""A complete program in a better order: communication behind compute, and work of a few devices where the others wait.

What is kept: the instructions, their messages and methods, and so every bound that sees no order (overlapped, long messages may be cut: `cuts`). `levels` proposes orders for the synchronous
cost, `streams` for the overlapped one, each with every section's lines left in their section, and free of that. An order is taken where it is
faster than the one at hand and fits into memory (where that one does; else where it needs no more); of what is too large for memory the way
there is halved until it fits. A text of many lines is hard to read, and layers in different orders can't be rolled up:
as many lines more as the program has must gain LINES.

Cost: for n tasks on D devices O(n x D) per order that is looked at; their numbers are bounded in `levels` and `streams`. 24 layers of gpt on 8 devices: 0.1 s (sync), 0.9 s (overlap).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hapdsl.check.write import write
from hapdsl.cost.evaluate import stages_of
from hapdsl.cost.memory import measure
from hapdsl.cost.overlap import simulate
from hapdsl.cost.pricing import Ints, Line, Pricer
from hapdsl.graph.program import COLLECTIVES, LOCAL, Instruction, Program, Value
from hapdsl.lang import nodes
from hapdsl.search.cuts import cut_messages
from hapdsl.search.levels import by_levels
from hapdsl.search.order import Tasks
from hapdsl.search.restriction import Wish
from hapdsl.search.streams import by_streams

LEAST = 1e-6  # of the step: what another order must gain at all
LINES = 0.02  # of the step: what as many lines of text as the program has must gain, beyond the first FEW
FEW = 0.1  # of its lines
HALVINGS = 4
QUICK = 12  # orders that are simulated where it must be quick

NO_WISHES: Mapping[str, Wish] = {}
Written = Callable[[Instruction], bool]


def reordered(program: Program, pricer: Pricer, objective: str, written: Written | None = None) -> Program:
    """The program in the best order found for an objective, "sync" or "overlap": never above its own order in that.

    `pricer` is made for its graph, layout and cluster. Instructions that a person has `written` keep their order among each other. The same
    program is returned where nothing is gained.
    """
    lines = [pricer.line(i) for i in program.instructions]
    best = reordered_lines(program, lines, pricer, objective, written)
    return program if best is lines else replace(program, instructions=[line.instruction for line in best])


def without_unread(program: Program, wishes: Mapping[str, Wish] = NO_WISHES) -> Program:
    """The program without conversions of which nothing is read, and that no `wishes` (by tensor) ask for: choices may offer what nobody takes, and
    behind compute that costs nothing."""
    graph = program.graph
    outputs = () if graph.updates else graph.outputs  # training leaves them as they lie
    results = {graph.resolve(n) for n in (graph.loss, *outputs, *graph.metrics) if n is not None}
    results |= set(graph.updates.values())
    read: set[Value] = set()
    kept: list[Instruction] = []
    for instruction in reversed(program.instructions):
        conversion = instruction.node is None and instruction.op in (*COLLECTIVES, *LOCAL)
        asked = any(v.placement[0] in wishes[v.tensor].asked for v in instruction.outputs if v.tensor in wishes)
        if conversion and not asked and not any(v in read or v.tensor in results for v in instruction.outputs):
            continue
        read.update(instruction.inputs)
        kept.append(instruction)
    if len(kept) == len(program.instructions):
        return program
    return replace(program, instructions=kept[::-1])


def reordered_lines(
    program: Program, lines: list[Line], pricer: Pricer, objective: str, written: Written | None = None
) -> list[Line]:
    """The same of a program's lines; the list itself where nothing is gained."""
    judge = _Judge(program, lines, pricer, objective)
    tasks = Tasks(lines, pricer, written)
    propose = by_levels if objective == "sync" else by_streams
    best = _Order(lines, judge.start, judge.start)
    for sections in (True, False):
        before = tasks.part
        tasks.keep_sections(sections)
        if tasks.part != before or sections:
            best = judge.better(best, tasks, propose(tasks))
    if objective == "overlap":
        best = judge.better_cut(best, written)
    return best.lines


def seconds_in_order(lines: Sequence[Line], pricer: Pricer, objective: str, written: Written | None = None) -> float:
    """What lines take in an order that is found quickly; memory and the length of the text aren't looked at."""
    tasks = Tasks(lines, pricer, written)
    order = by_levels(tasks) if objective == "sync" else by_streams(tasks, QUICK)
    return _seconds(tasks.ordered(order), pricer, objective)


def _seconds(lines: Sequence[Line], pricer: Pricer, objective: str) -> float:
    if objective == "overlap":
        return float(simulate(lines, pricer)[1].max(initial=0.0))
    return float(sum(s.seconds for s in stages_of(lines)))


@dataclass(frozen=True)
class _Order:
    """Lines in an order, its seconds, and seconds with what the length of the text is held against it."""

    lines: list[Line]
    seconds: float
    score: float


class _Judge:
    """What orders of a program are worth."""

    def __init__(self, program: Program, lines: list[Line], pricer: Pricer, objective: str) -> None:
        self.program, self.pricer, self.objective, self.lines = program, pricer, objective, lines
        self.start = self.seconds(lines)

    # Of the order at hand; asked for only where another one is faster.

    @cached_property
    def length(self) -> int:
        return self.rows(self.lines)

    @cached_property
    def peak(self) -> Ints:
        return self.needs(self.lines)

    def seconds(self, lines: Sequence[Line]) -> float:
        return _seconds(lines, self.pricer, self.objective)

    def rows(self, lines: Sequence[Line]) -> int:
        """Lines of text."""
        return _count(write(replace(self.program, instructions=[line.instruction for line in lines])).body)

    def fits(self, lines: Sequence[Line]) -> bool:
        """Does no device need more than it has, or, where it has too little anyway, more than before?"""
        room = np.maximum(self.pricer.cluster.memories, self.peak)
        return bool((self.needs(lines) <= room).all())

    def needs(self, lines: Sequence[Line]) -> Ints:
        """Peak bytes, int array [devices]."""
        return measure(self.program.graph, lines, self.pricer).peak

    def better(self, best: _Order, tasks: Tasks, order: list[int], more: float = 0.0) -> _Order:
        """The better of what is at hand and an order of tasks, or as much of it as fits; `more` seconds are held against it."""
        for part in _parts_of_the_way(order):
            lines = tasks.ordered(part)
            seconds = self.seconds(lines)
            if seconds >= min(best.score, self.start * (1 - LEAST)):
                return best
            if self.fits(lines):
                longer = max(0.0, self.rows(lines) / max(1, self.length) - 1 - FEW)
                found = _Order(lines, seconds, seconds + more + LINES * longer * self.start)
                return found if found.score < best.score * (1 - LEAST) else best
        return best

    def better_cut(self, best: _Order, written: Written | None) -> _Order:
        """The better of what is at hand and the same program with its long messages in pieces, in the best order of the best of these.

        What pieces add to all messages one after another must be gained on top: latencies are paid for certain, and hidden only where devices and
        network do in truth as much at once as the simulation says.
        """
        least, added, chosen = best.score, 0.0, None
        whole = self.sent_seconds(self.lines)
        for lines in cut_messages(self.lines, self.pricer, best.seconds, written):
            tasks, more = Tasks(lines, self.pricer, written), self.sent_seconds(lines) - whole
            score = self.seconds(tasks.ordered(by_streams(tasks, QUICK))) + more
            if score < least * (1 - LEAST):
                least, added, chosen = score, more, tasks
        return best if chosen is None else self.better(best, chosen, by_streams(chosen), added)

    def sent_seconds(self, lines: Sequence[Line]) -> float:
        """All messages, one after another."""
        return sum(float(line.price.seconds.max()) for line in lines if line.instruction.is_collective)


def _parts_of_the_way(order: list[int]) -> Iterator[list[int]]:
    """An order, and orders between it and the one at hand: what stands before something else in both does so in each."""
    yield order
    place = np.empty(len(order))
    place[order] = np.arange(len(order))
    stands = np.arange(len(order), dtype=float)
    for k in range(1, HALVINGS + 1):
        part = 0.5**k
        yield np.argsort(part * place + (1 - part) * stands, kind="stable").tolist()


def _count(body: Sequence[nodes.Statement]) -> int:
    return sum(_count(s.body) if isinstance(s, nodes.Section | nodes.Turns | nodes.Microbatch) else 1 for s in body)
