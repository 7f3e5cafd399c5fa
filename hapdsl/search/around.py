"""What is near to programs that are known: better ones that the bound didn't lead to.

A* takes programs in the order of what the tables add up, and ends when the gap that is asked for is closed; what is left of the gap may be a
change or two away. Cost: where graphs are small, per pair that is looked at the marginals of one space (about two eliminations), and a small
elimination and a schedule per change that is tried; where they are large nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from hapdsl.search.choices import Choice
from hapdsl.search.climb import LEAST, climb, hopes
from hapdsl.search.nearby import Nearby
from hapdsl.search.pairs import Pair, shares_key
from hapdsl.search.shares import Shares
from hapdsl.search.spaces import Spaces

CLIMB_WORK = 16_000  # calls x changes of a program that are tried near to one,
CLIMBS = 60  # where there are so many at least
CLIMBERS = 3  # programs, each the best known under its shares, near to which is looked at a time


class Around:
    """Looks around near to programs of some spaces, near to each once."""

    def __init__(self, spaces: Spaces, under: Callable[[Choice, Shares], Pair]) -> None:
        self.spaces, self.pairs, self.under = spaces, spaces.pairs, under
        self.seen: set[object] = set()  # what it was near to

    def climb(self, settled: Iterable[Pair]) -> None:
        """Programs near to the best known under each of the shares of `settled` pairs and of the best; better ones are kept.

        The best known may be that of other shares. Shares with a tight bound come first, as they leave few programs to try, also where the gap
        that is asked for is closed; shares with a bound that isn't below the best program are done with.
        """

        def price(found: Pair) -> float:
            if self.pairs.best is None or found.seconds < self.pairs.best.seconds:
                self.pairs.fastest([found])
            return found.seconds

        if self.pairs.best is None or CLIMB_WORK // len(self.spaces.training.nodes) < CLIMBS:
            return
        known = {shares_key(p.shares): p for p in sorted(settled, key=lambda p: -p.seconds)}
        known[shares_key(self.pairs.best.shares)] = self.pairs.best
        bounds = {key: self.spaces.bound(p.shares) for key, p in known.items()}
        climbed = 0
        for key in sorted(bounds, key=lambda key: -bounds[key]):
            if climbed >= CLIMBERS or self.spaces.clock.late():
                break
            best, bound = self.pairs.best, bounds[key]
            if bound >= best.seconds * (1 - LEAST):
                continue
            pair = min(known[key], self.under(best.choice, known[key].shares), key=lambda p: p.seconds)
            if pair.key() in self.seen or _about(pair, bound) in self.seen or not pair.fits:
                continue
            climbed += 1
            price(pair)
            found = self.near(pair, pair.seconds, price, CLIMB_WORK, min(best.seconds, pair.seconds))
            for each in (pair, found):
                self.seen |= {each.key(), _about(each, bound)}

    def near(self, pair: Pair, seconds: float, price: Callable[[Pair], float], work: int, below: float | None) -> Pair:
        """The best by some price of the programs near to a pair's that fit; the pair itself, which takes `seconds`, where none is better.

        `work` is how many may be tried, times calls; what can't come `below` some seconds isn't, nor what can't be better than the
        best found. None: all may be, for where a price may be less than the tables' (in another order, without conversions that nobody reads).
        """
        spaces = self.spaces
        tries = work // len(spaces.training.nodes)
        if tries < CLIMBS or spaces.clock.late():
            return pair
        solved = spaces.solve(pair.shares, spaces.heavy, spaces.paid)
        start, tables = solved.assignment(pair.choice), spaces.tables(solved)
        if not start or tables is None or not tables.feasible:
            return pair

        def priced(assignment: tuple[int, ...]) -> float:
            found = spaces.pair(solved, assignment)
            return price(found) if found.fits else np.inf

        near = Nearby(solved.space.graph, solved.pricing.prices)
        if solved.hopes is None:
            solved.hopes = hopes(tables)
        if below is None:
            hopeful = sorted((-np.inf, variable, value) for _, variable, value in solved.hopes)
        else:
            hopeful = [hope for hope in solved.hopes if hope[0] < below]
        found, least = climb(near, hopeful, start, seconds, priced, tries, spaces.clock.late)
        return spaces.pair(solved, found) if least < seconds else pair


def _about(pair: Pair, bound: float) -> tuple[str, str]:
    """A pair's seconds and the bound of its shares. Where both are equal, shares differ in what programs don't use, and lead nowhere else."""
    return f"{pair.seconds:.9e}", f"{bound / pair.seconds:.4f}"
