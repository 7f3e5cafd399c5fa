"""Shadow prices of the shares: what one unit more, or one less, on a device of each kind would cost.

The program stays as it is, instruction by instruction, and is priced exactly under the shares that one moved unit leaves. A
unit that one kind of device gains is taken from the device where that costs least, and one that it loses is given to where
that costs least. At shares that no single move betters, no price is negative.

Devices of one kind with the same shares of all classes that the program cuts are interchangeable, so one of them (two,
for a move among themselves) stands for all. Where many classes leave many such groups, only those of a kind that compute
longest and shortest stand for it: prices are then those of the moves tried. So they are where kinds are many: units then go from or to
those PARTNERS groups alone that compute longest and shortest of all. Cost: per class and group up to 2 PARTNERS pricings of the merged
stages; of the whole program for the overlapped objective.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.evaluate import Cost, evaluate
from hapdsl.graph.program import Program
from hapdsl.search.readback import cut_classes, settled
from hapdsl.search.shares import Shares, Stages, layout_of

GROUPS = 4  # of one kind of device that are tried at most
PARTNERS = 16  # groups of all kinds that units are taken from or given to at most


@dataclass(frozen=True)
class UnitPrice:
    """One class on one kind of device: seconds that a step takes longer (less: negative) for one unit moved.

    `devices` are the kind's devices and `shares` their units now. `more_s` is the price of one unit more on the device
    `more_to`, taken from `more_from`; `less_s` of one less on `less_from`, given to `less_to`. None where there is no such
    move: nothing to take, nobody to give to, or too little memory wherever it goes.
    """

    cls: str
    devices: tuple[int, ...]
    shares: tuple[int, ...]
    more_s: float | None = None
    more_from: int | None = None
    more_to: int | None = None
    less_s: float | None = None
    less_from: int | None = None
    less_to: int | None = None


def unit_prices(program: Program, cluster: Cluster, objective: str = "sync") -> list[UnitPrice]:
    """Shadow prices of each class that a complete program cuts, for each kind of device, in the graph's and cluster's order.

    Raises HapError: HAP604 for a program on two axes, HAP420 for one on another number of devices.
    """
    return _Prices(program, cluster, objective).all()


_Group = tuple[int, list[int]]  # the number of a kind, and devices of it


class _Move(NamedTuple):
    """A unit that goes from a device to another one, of the kinds that lose and gain it, and what that costs."""

    price: float
    loses: int
    gains: int
    source: int
    target: int


class _Prices:
    def __init__(self, program: Program, cluster: Cluster, objective: str) -> None:
        self.program, self.cluster, self.objective = program, cluster, objective
        self.shares = settled(program, cluster)
        written = evaluate(program, cluster)
        self.classes = cut_classes(program)
        self.stages = Stages(program, cluster)
        self.roomy = bool((written.memory_bytes * 2 <= written.capacity_bytes).all())
        self.busy = self.stages.seconds(self.shares)[1]
        self.now = self.seconds(self.shares)
        self.groups = self._groups()

    def cost(self, shares: Shares) -> Cost:
        """The same instructions under other shares, by the whole evaluator."""
        p = self.program
        moved = Program(p.name, p.graph, layout_of(shares, len(self.cluster)), p.instructions, p.cluster, p.model_args)
        return evaluate(moved, self.cluster)

    def seconds(self, shares: Shares) -> float:
        return self.stages.seconds(shares)[0] if self.objective == "sync" else self.cost(shares).overlap_s

    def _groups(self) -> list[_Group]:
        """Interchangeable devices, each group with the number of its kind; of one kind at most GROUPS."""
        found: list[_Group] = []
        for k, kind in enumerate(self.cluster.kinds()):
            alike: dict[tuple[int, ...], list[int]] = {}
            for device in kind:
                alike.setdefault(tuple(int(self.shares[c][device]) for c in self.classes), []).append(device)
            found += self._ends([(k, group) for group in alike.values()], GROUPS)
        return found

    def _ends(self, groups: list[_Group], most: int) -> list[_Group]:
        """At most so many groups: those whose devices compute shortest and longest."""
        if len(groups) <= most:
            return groups
        ranked = sorted(groups, key=lambda g: self.busy[g[1][0]])
        return ranked[: most // 2] + ranked[-(most // 2) :]

    def all(self) -> list[UnitPrice]:
        return [price for cls in self.classes for price in self._class(cls)]

    def _class(self, cls: str) -> list[UnitPrice]:
        partners = {group[0] for _, group in self._ends(self.groups, PARTNERS)}
        moves: list[_Move] = []
        for a, source in self.groups:
            for b, target in self.groups:
                other = target[1] if target is source and len(target) > 1 else target[0]
                tried = source[0] in partners or target[0] in partners
                if tried and self.shares[cls][source[0]] and source[0] != other:
                    price = self.seconds(self._moved(cls, source[0], other)) - self.now
                    moves.append(_Move(price, a, b, source[0], other))
        moves.sort(key=lambda m: m.price)
        found = []
        for k, kind in enumerate(self.cluster.kinds()):
            units = tuple(int(self.shares[cls][d]) for d in kind)
            more = self._first(cls, (m for m in moves if m.gains == k))
            less = self._first(cls, (m for m in moves if m.loses == k))
            found.append(UnitPrice(cls, tuple(kind), units, *more, *less))
        return found

    def _first(self, cls: str, moves: Iterable[_Move]) -> tuple[float, int, int] | tuple[None, None, None]:
        """The first move that fits into memory: its price, source and target."""
        for move in moves:
            if self.roomy or self.cost(self._moved(cls, move.source, move.target)).fits:
                return move.price, move.source, move.target
        return None, None, None

    def _moved(self, cls: str, source: int, target: int) -> Shares:
        units = self.shares[cls].copy()
        units[source] -= 1
        units[target] += 1
        return {**self.shares, cls: np.asarray(units)}
