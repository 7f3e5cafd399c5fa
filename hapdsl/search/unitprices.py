"""Shadow prices of the shares: what one unit more, or one less, on a device of each kind would cost.

The program stays as it is, instruction by instruction, and is priced exactly under the shares that one moved unit leaves. A
unit that one kind of device gains is taken from the device where that costs least, and one that it loses is given to where
that costs least. At shares that no single move betters, no price is negative.

Devices of one kind with the same shares of all classes that the program cuts are interchangeable, so one of them (two,
for a move among themselves) stands for all. Where many classes leave many such groups, only those of a kind that compute
longest and shortest stand for it: prices are then those of the moves tried. Cost: a pricing of the merged stages per
pair of groups and class; of the whole program for the overlapped objective.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.evaluate import Cost, evaluate
from hapdsl.graph.program import Program
from hapdsl.search.readback import cut_classes, settled
from hapdsl.search.shares import Shares, Stages, layout_of

GROUPS = 4  # of one kind of device that are tried at most


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

    def _groups(self) -> list[tuple[int, list[int]]]:
        """Interchangeable devices, each group with the number of its kind; of one kind at most GROUPS."""
        found: list[tuple[int, list[int]]] = []
        for k, kind in enumerate(self.cluster.kinds()):
            alike: dict[tuple[int, ...], list[int]] = {}
            for device in kind:
                alike.setdefault(tuple(int(self.shares[c][device]) for c in self.classes), []).append(device)
            groups = list(alike.values())
            if len(groups) > GROUPS:
                groups.sort(key=lambda g: self.busy[g[0]])
                groups = groups[: GROUPS // 2] + groups[-(GROUPS // 2) :]
            found += [(k, group) for group in groups]
        return found

    def all(self) -> list[UnitPrice]:
        return [price for cls in self.classes for price in self._class(cls)]

    def _class(self, cls: str) -> list[UnitPrice]:
        moves: list[tuple[float, int, int, int, int]] = []  # price, kinds of source and target, devices
        for a, source in self.groups:
            for b, target in self.groups:
                other = target[1] if target is source and len(target) > 1 else target[0]
                if self.shares[cls][source[0]] and source[0] != other:
                    price = self.seconds(self._moved(cls, source[0], other)) - self.now
                    moves.append((price, a, b, source[0], other))
        moves.sort(key=lambda m: m[0])
        found = []
        for k, kind in enumerate(self.cluster.kinds()):
            units = tuple(int(self.shares[cls][d]) for d in kind)
            more = self._first(cls, moves, lambda m, k=k: m[2] == k)  # type: ignore[misc]
            less = self._first(cls, moves, lambda m, k=k: m[1] == k)  # type: ignore[misc]
            found.append(
                UnitPrice(cls, tuple(kind), units, *(more or (None, None, None)), *(less or (None, None, None)))
            )
        return found

    def _first(
        self,
        cls: str,
        moves: list[tuple[float, int, int, int, int]],
        wanted: Callable[[tuple[float, int, int, int, int]], bool],
    ) -> tuple[float, int, int] | None:
        """The cheapest move of those wanted that fits into memory: its price, source and target."""
        for move in filter(wanted, moves):
            if self.roomy or self.cost(self._moved(cls, move[3], move[4])).fits:
                return move[0], move[3], move[4]
        return None

    def _moved(self, cls: str, source: int, target: int) -> Shares:
        units = self.shares[cls].copy()
        units[source] -= 1
        units[target] += 1
        return {**self.shares, cls: np.asarray(units)}
