"""One quantity of a cluster from low to high: what given programs cost at each point, and where the best plan changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hapdsl.cluster import Cluster
from hapdsl.cluster.settings import LIMITS
from hapdsl.cluster.vary import dimension, vary
from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.program import Program
from hapdsl.lang import nodes, units
from hapdsl.lang.diagnostics import error

Floats = NDArray[np.float64]
SAME = 0.01  # plans that cost this little more than the best one are as good
CLOSE = 0.005  # to how much of itself a change's place is found
_RANGE = re.compile(
    r"\s*([A-Za-z_][\w.]*)\s*=\s*([-\d.eE+]+?)\s*([A-Za-zµμ]+(?:/[A-Za-z]+)?)?\s*\.\.\s*([-\d.eE+]+?)\s*([A-Za-zµμ]+(?:/[A-Za-z]+)?)\s*"
)


@dataclass(frozen=True)
class Range:
    """`name` from `low` to `high` in SI units; people read it in `unit`, of which `scale` SI units are one."""

    name: str
    low: float
    high: float
    unit: str
    scale: float

    def values(self, points: int) -> Floats:
        """So many values in equal ratios."""
        return np.geomspace(self.low, self.high, points)

    def written(self, value: float) -> str:
        return f"{value / self.scale:.3g} {self.unit}"


def read_range(text: str, cluster: Cluster) -> Range:
    """`network=1..100Gbit/s`, `latency=10us..1ms`. Raises HAP426 for another text, an unknown quantity or no range, and the codes of `lang.units`."""
    found = _RANGE.fullmatch(text)
    if found is None:
        raise error("HAP426", f"'{text}' is no range", help="write NAME=LOW..HIGH with a unit: network=1..100Gbit/s")
    name, low, low_unit, high, unit = found.groups()
    measure = dimension(cluster, name)
    try:
        amounts = [nodes.Quantity(float(n), u) for n, u in ((low, low_unit or unit), (high, unit), ("1", unit))]
    except ValueError:
        raise error("HAP426", f"'{text}' holds a number that is none", help="network=1..100Gbit/s") from None
    start, end, scale = (units.to_si(q, measure) for q in amounts)
    most = LIMITS[{"time": "latency"}.get(measure, measure)][2]
    if not 0 < start < end <= most:
        help = "both ends are positive and finite, the smaller one first"
        raise error("HAP426", f"'{text}' isn't a range that can be swept", help=help)
    return Range(name, start, end, unit, scale)


@dataclass(frozen=True)
class Swept:
    """`seconds[k, i]` is what `programs[k]` costs at `values[i]`; `best[i]` numbers the cheapest there. `changes` are (value, program
    that is best below it, program that is best above it).
    `complete` is false where planning was interrupted: what had been planned by then is compared."""

    range: Range
    values: Floats
    programs: list[Program]
    seconds: Floats
    changes: list[tuple[float, int, int]]
    complete: bool = True

    @property
    def best(self) -> list[int]:
        return [int(k) for k in self.seconds.argmin(axis=0)]


def sweep(
    cluster: Cluster,
    over: Range,
    points: int,
    programs: Sequence[Program],
    make: Callable[[Cluster], Program] | None = None,
    objective: str = "sync",
) -> Swept:
    """Price programs at `points` values. Where `make` plans for a cluster, it is asked at both ends, and between points whose best plans differ
    until they are neighbours; of plans that are nearly as good everywhere one is kept. KeyboardInterrupt ends the planning; where nothing is there
    to be compared by then, it is raised.

    Cost: at most `points` plans, and a price of each at each point.
    """
    values = over.values(points)
    clusters = [vary(cluster, over.name, float(v)) for v in values]
    listed = list(programs)
    complete = True
    if make is not None:
        planned, complete = _planned(clusters, make)
        listed += planned
    if not listed and not complete:
        raise KeyboardInterrupt
    seconds = np.array([[_price(p, c, objective) for c in clusters] for p in listed])
    given = len(programs)
    kept = _enough(seconds, given) if make is not None else list(range(len(listed)))
    listed, seconds = [listed[k] for k in kept], seconds[kept]
    changes = _changes(cluster, over, values, listed, seconds, objective)
    return Swept(over, values, listed, seconds, changes, complete)


def key(program: Program) -> tuple[Any, ...]:
    """What a program does, without where it was found."""
    lines = tuple((i.op, i.method, i.axis, i.inputs, i.outputs) for i in program.instructions)
    shares = {c: {a: tuple(map(int, s)) for a, s in by_axes.items()} for c, by_axes in program.layout.shares.items()}
    return lines, repr(sorted(shares.items()))


def _planned(clusters: Sequence[Cluster], make: Callable[[Cluster], Program]) -> tuple[list[Program], bool]:
    """The plans, and whether all were made that are needed."""
    at: dict[int, Program] = {}

    def look(low: int, high: int) -> None:
        for k in (low, high):
            if k not in at:
                at[k] = make(clusters[k])
        if high - low > 1 and key(at[low]) != key(at[high]):
            middle = (low + high) // 2
            look(low, middle)
            look(middle, high)

    try:
        look(0, len(clusters) - 1)
        complete = True
    except KeyboardInterrupt:
        complete = False
    return list({key(p): p for _, p in sorted(at.items())}.values()), complete


def _price(program: Program, cluster: Cluster, objective: str) -> float:
    return evaluate(program, cluster).seconds(objective)


def _enough(seconds: Floats, given: int) -> list[int]:
    """The given programs, and as few of the planned ones as are needed for the best, or nearly so, at every point."""
    good = seconds <= seconds.min(axis=0) * (1 + SAME)
    kept = list(range(given))
    open_ = np.ones(seconds.shape[1], dtype=bool)
    for k in kept:
        open_ &= ~good[k]
    while open_.any():
        covers = (good & open_).sum(axis=1)
        # of those that cover as much, the one that costs least there
        best = min(range(len(seconds)), key=lambda k: (-covers[k], float(seconds[k, open_].sum())))
        kept.append(best)
        open_ &= ~good[best]
    return kept[:given] + sorted(kept[given:], key=lambda k: int(good[k].argmax()))


def _changes(
    cluster: Cluster, over: Range, values: Floats, programs: Sequence[Program], seconds: Floats, objective: str
) -> list[tuple[float, int, int]]:
    """Where the best program is another one: between two points by halving."""
    best = seconds.argmin(axis=0)
    found = []
    for i in range(len(values) - 1):
        a, b = int(best[i]), int(best[i + 1])
        if a == b:
            continue
        low, high = float(values[i]), float(values[i + 1])
        while high / low > 1 + CLOSE:
            middle = (low * high) ** 0.5
            there = vary(cluster, over.name, middle)
            if _price(programs[a], there, objective) <= _price(programs[b], there, objective):
                low = middle
            else:
                high = middle
        found.append(((low * high) ** 0.5, a, b))
    return found
