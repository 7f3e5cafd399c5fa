"""A choice of program and the shares it is priced under, together: what the planner compares, and the best it has seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

import numpy as np

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.evaluate import Cost, evaluate
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.amounts import in_bytes
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.search.choices import Choice
from hapdsl.search.conversions import Conversions
from hapdsl.search.inside import pricer_of
from hapdsl.search.plan import Candidate
from hapdsl.search.schedule import Scheduler
from hapdsl.search.shares import Shares, layout_of
from hapdsl.search.structure import Structure

LEADING = 16  # choices that are remembered as the fastest


def shares_key(shares: Mapping[str, np.ndarray]) -> tuple[object, ...]:
    return tuple((c, tuple(int(n) for n in s)) for c, s in sorted(shares.items()))


@dataclass(frozen=True, eq=False)
class Pair:
    """A choice of program under shares, and the seconds it takes (of the objective)."""

    choice: Choice
    shares: Shares
    seconds: float
    scheduler: Scheduler
    name: str

    def key(self) -> tuple[object, ...]:
        return (shares_key(self.shares), self.choice.key())

    @cached_property
    def fits(self) -> bool:
        """Does every device's peak fit into its memory? Looked at only where the seconds make it worth knowing."""
        return self.scheduler.fits(self.choice)

    def candidate(self) -> Candidate:
        """As a program with its cost. Made anew each time: with a thousand devices it takes a hundred megabytes."""
        program = self.scheduler.program(self.choice, self.name)
        return Candidate(program, evaluate(program, self.scheduler.cluster, self.scheduler.pricer), self.choice)


class Pairs:
    """All pairs that were priced for one training graph on one cluster: `best` is the fastest that fits.

    `better` is called whenever there is a new best.
    """

    def __init__(
        self, training: TrainingGraph, cluster: Cluster, objective: str, name: str, better: Callable[[], None]
    ) -> None:
        self.training, self.cluster, self.objective, self.name, self.better = training, cluster, objective, name, better
        self.best: Pair | None = None
        self.leading: dict[object, Pair] = {}  # by their choices, the fastest that were priced, whether they fit or not
        self.smallest_need: tuple[float, Cost] | None = None  # of what didn't fit: the least bytes over the limit

    def priced(self, choice: Choice, shares: Shares, scheduler: Scheduler) -> Pair:
        """A choice under shares with its seconds in the canonical order (of the objective), kept among the fastest; its memory isn't looked at."""
        pair = Pair(choice, shares, scheduler.seconds(choice, self.objective), scheduler, self.name)
        self._lead(pair)
        return pair

    def _lead(self, pair: Pair) -> None:
        worst = max(self.leading.items(), key=lambda item: item[1].seconds, default=None)
        if worst is not None and len(self.leading) >= LEADING and pair.seconds >= worst[1].seconds:
            return
        key = pair.choice.key()
        known = self.leading.get(key)
        if known is not None:
            if pair.seconds < known.seconds:
                self.leading[key] = pair
            return
        if worst is not None and len(self.leading) >= LEADING:
            del self.leading[worst[0]]
        self.leading[key] = pair

    def finalists(self, others: Sequence[Pair], count: int) -> list[Pair]:
        """The best pair, the fastest of other choices and some others, all of which fit: so many at most."""
        assert self.best is not None
        leading = sorted(self.leading.values(), key=lambda p: p.seconds)
        found = {self.best.key(): self.best}
        for pair in (p for two in zip_longest(leading, others) for p in two if p is not None):
            if len(found) >= count:
                break
            if pair.key() not in found and pair.fits:
                found[pair.key()] = pair
        return list(found.values())

    def under(self, choice: Choice, shares: Shares, structure: Structure) -> Pair:
        """Choices under other shares than they were found for."""
        layout = layout_of(shares, len(self.cluster))
        pricer = pricer_of(self.training, layout, self.cluster, structure.numbers)
        conversions = Conversions(structure, layout, self.cluster, pricer)
        return self.priced(choice, shares, Scheduler(conversions))

    def fits(self, pair: Pair) -> bool:
        """Does it fit into memory? What doesn't is remembered as long as nothing has."""
        if not pair.fits and self.best is None:
            cost = pair.candidate().cost
            over = float((cost.memory_bytes - cost.capacity_bytes).max())
            if self.smallest_need is None or over < self.smallest_need[0]:
                self.smallest_need = (over, cost)
        return pair.fits

    def fastest(self, pairs: list[Pair]) -> Pair | None:
        """The fastest that fits, kept where it is the best so far; of equal ones the first."""
        for pair in sorted(pairs, key=lambda p: p.seconds):
            if self.fits(pair):
                self.keep(pair)
                return pair
        return None

    def keep(self, pair: Pair) -> None:
        """Take note of a pair that fits."""
        if self.best is None or pair.seconds < self.best.seconds * (1 - 1e-12):
            self.best = pair
            self.better()

    def nothing(self, impossible: list[str], late: bool = False) -> HapError:
        """Why there is no best: memory (HAP601), or restrictions that leave nothing for what is `impossible` (HAP602), or too little time."""
        if self.smallest_need is None:
            if late:
                message = f"no program for '{self.training.model}' was found in the time there was"
                return error("HAP602", message, help="a longer --time-limit, or none", status=1)
            which = f": nothing is left for '{impossible[0]}'" if impossible else ""
            message = f"no program exists for '{self.training.model}' under these restrictions{which}"
            return error("HAP602", message, help="free a placement or a class", status=1)
        cost = self.smallest_need[1]
        device = int((cost.memory_bytes - cost.capacity_bytes).argmax())
        largest = ", ".join(f"{n} {in_bytes(b)}" for n, b in cost.memory_holders[device][:3])
        sizes = float(cost.memory_bytes[device]), float(cost.capacity_bytes[device])
        need, has = map(in_bytes, sizes)
        if need == has:
            need, has = (f"{size:,.0f} bytes" for size in sizes)
        return error(
            "HAP601",
            f"no plan found fits: '{self.cluster.devices[device].name}' needs {need}, has {has}",
            help=f"the largest there: {largest}; lower the batch, or add memory",
            status=1,
        )
