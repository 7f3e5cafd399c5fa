"""An order for the synchronous cost: what only some devices compute moves next to where the others wait.

A program's stages in levels: the collectives of a level follow each other, then comes what is computed before the next ones. The cost of the
computing is the sum over levels of the slowest device, so a task is moved to another level where that sum gets less. What must go with it (what
it makes operands for, when it goes later; what makes its own, when it goes earlier) goes along. Every move lowers the cost. Per move that is looked at:
O(levels within REACH x devices), and O(devices) for each task that goes along, MOST at most.
"""

from __future__ import annotations

import numpy as np

from hapdsl.search.order import Floats, Tasks

REACH = 12  # levels up and down that a task may go in one move
MOST = 48  # tasks that go along
TARGETS = 3  # levels that are tried for one task
SWEEPS = 6
LEAST = 1e-9  # of the computing: what a move must gain


def by_levels(tasks: Tasks) -> list[int]:
    """An order of the tasks that is not above the given one in synchronous seconds."""
    if not len(tasks):
        return []
    levels = _Levels(tasks)
    for sweep in range(SWEEPS):
        if not levels.sweep(backwards=sweep % 2 == 1):
            break
    return levels.order()


class _Levels:
    def __init__(self, tasks: Tasks) -> None:
        self.tasks = tasks
        n = len(tasks)
        self.level: list[int] = []
        level, computed = 0, False
        for t in range(n):
            if (tasks.collective[t] and computed) or (t and tasks.part[t] != tasks.part[t - 1]):
                level, computed = level + 1, False
            computed = computed or not tasks.collective[t]
            self.level.append(level)
        self.load: Floats = np.zeros((level + 2, len(tasks.seconds[0])))
        for t in range(n):
            if not tasks.collective[t]:
                self.load[self.level[t]] += tasks.seconds[t]
        self.most = self.load.max(axis=1)
        self.grain = LEAST * float(self.most.sum())
        self.bounds()

    def bounds(self) -> None:
        """The levels of each part: its tasks don't leave them, and no two parts share one."""
        low: dict[int, int] = {}
        high: dict[int, int] = {}
        for part, level in zip(self.tasks.part, self.level, strict=True):
            low[part] = min(low.get(part, level), level)
            high[part] = max(high.get(part, level), level)
        high[max(high)] += 1  # the last level is empty: room for what can wait until the very end
        self.low, self.high = low, high

    def order(self) -> list[int]:
        tasks = self.tasks
        return sorted(range(len(tasks)), key=lambda t: (self.level[t], not tasks.collective[t], t))

    def sweep(self, backwards: bool) -> bool:
        """Every task once: was any moved?"""
        tasks = self.tasks
        found = False
        each = range(len(tasks))
        for t in reversed(each) if backwards else each:
            if tasks.collective[t]:
                continue
            for target in self.targets(t):
                if self.move(t, target):
                    found = True
                    break
        return found

    def targets(self, t: int) -> list[int]:
        """The levels where this task alone would gain most."""
        at, part = self.level[t], self.tasks.part[t]
        low, high = max(self.low[part], at - REACH), min(self.high[part], at + REACH)
        if low == high:
            return []
        own = self.tasks.seconds[t]
        saved = self.most[at] - (self.load[at] - own).max()
        if saved <= self.grain:
            return []
        added = (self.load[low : high + 1] + own).max(axis=1) - self.most[low : high + 1]
        added[at - low] = np.inf
        order = np.argsort(added, kind="stable")[:TARGETS]
        return [low + int(k) for k in order if saved - added[k] > self.grain]

    def move(self, t: int, target: int) -> bool:
        """Move a task, and what must go along, if that gains."""
        changes = self.along(t, target)
        if changes is None:
            return False
        touched: dict[int, Floats] = {}
        for each, level in changes.items():
            if not self.tasks.collective[each]:
                own = self.tasks.seconds[each]
                for where, what in ((self.level[each], -own), (level, own)):
                    touched[where] = touched[where] + what if where in touched else self.load[where] + what
        gain = sum(float(self.most[k]) - float(load.max()) for k, load in touched.items())
        if gain <= self.grain:
            return False
        for k, load in touched.items():
            self.load[k] = load
            self.most[k] = load.max()
        for each, level in changes.items():
            self.level[each] = level
        return True

    def along(self, start: int, target: int) -> dict[int, int] | None:
        """The new levels of a task and of those that it takes along; None where that can't be, or they are too many."""
        tasks, later = self.tasks, target > self.level[start]
        changes = {start: target}
        stack = [start]
        while stack:
            t = stack.pop()
            at = changes[t]
            for other in tasks.after[t] if later else tasks.before[t]:
                first, second = (t, other) if later else (other, t)
                gap = 1 if tasks.collective[second] and not tasks.collective[first] else 0
                want = at + gap if later else at - gap
                now = changes.get(other, self.level[other])
                if (now >= want) if later else (now <= want):
                    continue
                part = tasks.part[other]
                if not self.low[part] <= want <= self.high[part]:
                    return None
                changes[other] = want
                if len(changes) > MOST:
                    return None
                stack.append(other)
        return changes
