"""The instructions of a program as what may be put into another order: which must stand before which, and how an order reads.

An instruction follows those that make its operands. Where a value is made again or freed, what read it before stays before. Loads, slices
and the like take no time and aren't ordered: they stand before their first reader, and where they stood if they can. An order is of
*tasks*, calls and collectives, by their numbers; messages and methods stay as they are. Cost: linear.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hapdsl.cost.pricing import Line, Pricer
from hapdsl.graph.program import LOADS, Instruction
from hapdsl.graph.training import SECTIONS, SUMS

Floats = NDArray[np.float64]


class Tasks:
    """What may be ordered in a program's lines, tasks in the order in which they stand.

    `collective[t]`, `seconds[t]` (float array [devices]), `before[t]` and `after[t]` (tasks that must stand before it, and after it; not closed
    under transitivity). `part[t]` numbers the stretches of the program that tasks can't leave (`keep_sections`). Lines that are `written` (by a
    person) keep their order.
    """

    def __init__(
        self, lines: Sequence[Line], pricer: Pricer, written: Callable[[Instruction], bool] | None = None
    ) -> None:
        self.lines, self.pricer = list(lines), pricer
        self.needs = _needs(lines, written)
        takes = [line.instruction.is_collective or line.instruction.is_compute for line in lines]
        self.line_of = [k for k, t in enumerate(takes) if t]
        self.task_of = {k: t for t, k in enumerate(self.line_of)}
        self.collective = [lines[k].instruction.is_collective for k in self.line_of]
        self.seconds: list[Floats] = [lines[k].price.seconds for k in self.line_of]
        self.before: list[list[int]] = []
        through: list[set[int]] = []  # of each line: the task itself, or those that a line without a task waits for
        for k, needed in enumerate(self.needs):
            tasks = set().union(*(through[n] for n in needed)) if needed else set()
            if takes[k]:
                self.before.append(sorted(tasks))
            through.append({self.task_of[k]} if takes[k] else tasks)
        self.after: list[list[int]] = [[] for _ in self.before]
        for t, earlier in enumerate(self.before):
            for e in earlier:
                self.after[e].append(t)
        self.part: list[int] = []
        self.keep_sections(False)

    def __len__(self) -> int:
        return len(self.before)

    def keep_sections(self, yes: bool) -> None:
        """Shall every task stay in its section?

        In any case what is done in every turn of a batch stays there, and what comes of the forward pass where some of it is made again.
        """
        graph = self.pricer.graph
        apart = [yes or self.makes_again, yes or graph.turns > 1]
        number = [0, int(apart[0]), int(apart[0]) + int(apart[1])]
        self.part = [number[_section(self.lines[k].instruction)] for k in self.line_of]

    @cached_property
    def makes_again(self) -> bool:
        """Is some value made twice?"""
        made = [s for line in self.lines if line.instruction.op not in LOADS for s in line.outputs]
        return len(set(made)) < len(made)

    # -- an order as lines ---------------------------------------------------------------

    def ordered(self, order: Sequence[int]) -> list[Line]:
        """The lines in an order of tasks; lines without a task stand where they stood, or before their first reader."""
        if all(t == k for k, t in enumerate(order)):
            return self.lines
        out: list[int] = []
        stands = [False] * len(self.lines)

        def put(k: int) -> None:
            stack = [k]
            while stack:
                top = stack[-1]
                missing = [n for n in self.needs[top] if not stands[n]]
                if missing:
                    stack += reversed(missing)
                    continue
                stack.pop()
                if not stands[top]:
                    stands[top] = True
                    out.append(top)

        def follow(k: int) -> None:
            while k < len(self.lines) and k not in self.task_of:
                if not stands[k] and all(stands[n] for n in self.needs[k]):
                    put(k)
                k += 1

        follow(0)
        for t in order:
            put(self.line_of[t])
            follow(self.line_of[t] + 1)
        for k in range(len(self.lines)):
            if not stands[k]:
                put(k)
        return self._labelled(out)

    def _labelled(self, order: list[int]) -> list[Line]:
        """Sections in their order, with as few lines as possible outside their own; what was moved stands in its neighbours' turn. What is done in every
        turn of a batch never stands behind the turns."""
        own_sections = [_section(self.lines[k].instruction) for k in order]
        turned = [place for place, s in enumerate(own_sections) if s < 2] if self.pricer.graph.turns > 1 else []
        sections = _sections(own_sections, turned[-1] + 1 if turned else 0)
        still = _rising(order)
        turn: tuple[tuple[str, int], ...] = ()
        found = []
        for k, section in zip(order, sections, strict=True):
            line = self.lines[k]
            own = line.instruction
            if k in still:
                turn = own.repeat
            name = own.section if _section(own) == section else SECTIONS[section]
            repeat = own.repeat if k in still else turn
            if (name, repeat) != (own.section, own.repeat):
                line = replace(line, instruction=replace(own, section=name, repeat=repeat))
            found.append(line)
        return found


def _section(instruction: Instruction) -> int:
    return SECTIONS.index("update" if instruction.section == SUMS else instruction.section)


def _needs(lines: Sequence[Line], written: Callable[[Instruction], bool] | None) -> list[list[int]]:
    """For each line the lines that must stand before it."""
    maker: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    found: list[list[int]] = []
    last: int | None = None
    for k, line in enumerate(lines):
        needed = {maker[s] for s in line.inputs if s in maker}
        ends = line.inputs if line.instruction.op == "free" and line.instruction.node is None else line.outputs
        for slot in ends:
            needed.update(readers.pop(slot, ()))
            if slot in maker:
                needed.add(maker[slot])
            maker[slot] = k
        for slot in line.inputs:
            readers.setdefault(slot, []).append(k)
        if written is not None and written(line.instruction):
            if last is not None:
                needed.add(last)
            last = k
        needed.discard(k)
        found.append(sorted(needed))
    return found


def _sections(own: Sequence[int], least_third: int) -> list[int]:
    """Sections that never go back, as near as possible to the lines' own: the two places where the next one begins, by counting. The third begins at
    `least_third` or behind it."""
    n = len(own)
    kinds = np.array(own, dtype=np.int64)
    wrong = [np.concatenate([[0], np.cumsum(kinds != s)]) for s in range(3)]
    total = wrong[2][n]
    best: list[int] = []  # best[q]: where the second begins if the third begins at q
    first = wrong[0] - wrong[1]
    least = 0
    for q in range(n + 1):
        if first[q] < first[least]:
            least = q
        best.append(least)
    third = min(range(least_third, n + 1), key=lambda q: (int(first[best[q]] + wrong[1][q] + total - wrong[2][q]), q))
    second = best[third]
    return [0] * second + [1] * (third - second) + [2] * (n - third)


def _rising(order: Sequence[int]) -> set[int]:
    """A longest rising subsequence: the lines that were left where they were."""
    ends: list[int] = []
    at: list[int] = []
    before: list[int] = []
    for k, value in enumerate(order):
        place = bisect_left(ends, value)
        if place == len(ends):
            ends.append(value)
            at.append(k)
        else:
            ends[place] = value
            at[place] = k
        before.append(at[place - 1] if place else -1)
    found = set()
    k = at[-1] if at else -1
    while k >= 0:
        found.add(order[k])
        k = before[k]
    return found
