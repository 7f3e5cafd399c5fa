"""Shares for a given program: a mixed-integer linear program proposes (`sharemodel`), the exact evaluator decides.

The linear program can't hold the true cost, so its incumbent, its rounded relaxation and moves of single units are all
priced exactly, and the best is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from hapdsl.check.layout import largest_remainder
from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.evaluate import stages_of
from hapdsl.cost.pricing import Pricer
from hapdsl.graph.program import Instruction, Layout, Program
from hapdsl.graph.training import TrainingGraph
from hapdsl.search.inside import pricer_of

Shares = dict[str, np.ndarray]  # units per device by class


def layout_of(shares: Mapping[str, np.ndarray], devices: int) -> Layout:
    """A layout on one axis."""
    return Layout((("devices", devices),), {c: {(0,): np.asarray(s, dtype=np.int64)} for c, s in shares.items()})


def shares_of(layout: Layout) -> Shares:
    return {c: s[(0,)] for c, s in layout.shares.items()}


def proportional(training: TrainingGraph, weights: Iterable[float]) -> Shares:
    """All classes in proportion to `weights`, by largest remainder."""
    listed = list(weights)
    return {c.name: largest_remainder(listed, c.units) for c in training.classes.values()}


class Stages:
    """A program's stages, equal ones merged: what it takes to price the same instructions under other shares.

    `seconds(shares)` is the synchronous cost of the program's instructions in their order, methods of collectives
    included; a scheduler might choose other methods for other shares, so it is never below what that would find. Cost of
    a call: O(distinct instructions × devices).
    """

    def __init__(self, program: Program, cluster: Cluster, pricer: Pricer | None = None) -> None:
        self.program, self.cluster = program, cluster
        pricer = pricer or pricer_of(program.graph, program.layout, cluster)
        self.numbers = pricer.numbers
        lines = [pricer.priced(line) for line in pricer.numbered(program.instructions)]
        self.distinct: list[Instruction] = []
        number: dict[int, int] = {}
        merged: dict[tuple[int | None, tuple[tuple[int, int], ...]], int] = {}
        for stage in stages_of(lines):
            head: int | None = None
            counts: dict[int, int] = {}
            for line in lines[stage.first : stage.last + 1]:
                if not (line.instruction.is_compute or line.instruction.is_collective):
                    continue
                k = number.setdefault(id(line.price), len(number))
                if k == len(self.distinct):
                    self.distinct.append(line.instruction)
                if line.instruction.is_collective:
                    head = k
                else:
                    counts[k] = counts.get(k, 0) + 1
            key = (head, tuple(sorted(counts.items())))
            merged[key] = merged.get(key, 0) + 1
        self._lines = lines  # prices are told apart by identity: keep them alive
        self.heads = [head for head, _ in merged]
        self.multiplicity = np.array(list(merged.values()), dtype=np.float64)
        self.counts = np.zeros((len(merged), len(self.distinct)))
        for row, (_, counts_) in enumerate(merged):
            for k, n in counts_:
                self.counts[row, k] = n

    def times(self, shares: Mapping[str, np.ndarray]) -> np.ndarray:
        """Seconds of each distinct instruction on each device, float array [instructions, devices]."""
        pricer = pricer_of(self.program.graph, layout_of(shares, len(self.cluster)), self.cluster, self.numbers)
        found = np.zeros((len(self.distinct), len(self.cluster)))
        for k, instruction in enumerate(self.distinct):
            found[k] = pricer.price(instruction).seconds
        return found

    def seconds(self, shares: Mapping[str, np.ndarray]) -> tuple[float, np.ndarray]:
        """The synchronous cost, and how long each device computes in all."""
        times = self.times(shares)
        work = self.counts @ times
        comm = np.array([0.0 if h is None else times[h].max() for h in self.heads])
        return float(self.multiplicity @ (comm + work.max(axis=1, initial=0.0))), self.multiplicity @ work


Price = Callable[[Shares], float]


def descend(
    shares: Shares, cost: float, price: Price, free: Iterable[str], busy: Callable[[Shares], np.ndarray], most: int
) -> tuple[Shares, float]:
    """Follow moves of units that pay, from the device that computes longest to the one that computes least.

    A move that pays is tried again twice as far; at most `most` calls of `price`. Returns the best shares with their cost.
    """
    spent = 0
    steps = dict.fromkeys(free, 1)
    improved = True
    while improved and spent < most:
        improved = False
        load = busy(shares)
        source, target = int(load.argmax()), int(load.argmin())
        for cls in steps:
            step = min(steps[cls], int(shares[cls][source]))
            if not step or source == target or spent >= most:
                continue
            moved = shares[cls].copy()
            moved[source] -= step
            moved[target] += step
            candidate = {**shares, cls: moved}
            spent += 1
            found = price(candidate)
            if found < cost * (1 - 1e-9):
                shares, cost, improved = candidate, found, True
                steps[cls] = 2 * step
                load = busy(shares)
                source, target = int(load.argmax()), int(load.argmin())
            elif step > 1:
                steps[cls], improved = 1, True
    return shares, cost
