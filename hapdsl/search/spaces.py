"""Spaces with their prices solved, remembered by shares, and A* over their assignments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import zip_longest

import numpy as np

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.compute import compute_dtype
from hapdsl.graph.training import TrainingGraph
from hapdsl.search.astar import Limits, best_first
from hapdsl.search.choices import Choice
from hapdsl.search.climb import Hope
from hapdsl.search.clock import Clock
from hapdsl.search.drawn import Drawn
from hapdsl.search.eliminate import MAX_CELLS, Elimination, TooWide, eliminate
from hapdsl.search.footprint import GRADE
from hapdsl.search.messages import SHARED, Buckets, Split
from hapdsl.search.milp import by_milp
from hapdsl.search.pairs import Pair, Pairs, shares_key
from hapdsl.search.prices import Pricing, cutting_planes
from hapdsl.search.restriction import Restriction
from hapdsl.search.schedule import Scheduler
from hapdsl.search.shares import Shares, layout_of, shares_of
from hapdsl.search.space import Space, Table
from hapdsl.search.structure import Structure
from hapdsl.theory.placements import R

# Prices of memory: so many are tried at most, until those under which a program fits and the others are so near.
PRICES, NEAR_PRICE = 11, 0.01
RAISE = 1.3  # from one price to the next until some fit and some don't, squared from time to time
Key = tuple[tuple[object, ...], tuple[str, ...], bool, str]  # shares, messages, memory, objective
# Bytes of solved tables that are kept for the spaces that were looked at last; others are made anew when they are needed.
TABLES = 1 << 27
HOPE = 4  # times the latencies of messages: what is farther away isn't reached by counting them
# Cells of all tables that a solve may have, in the rounds and in the proof, of a graph of USUAL calls
ROUND_CELLS, PROOF_CELLS, USUAL = 2e7, 2e8, 250
WEIGHS = 0.003  # a kind of message whose latency is a smaller part of the step is left out of the rounds' bound


@dataclass
class Solved:
    """A space under given shares, with its prices solved, and the assignments that were priced."""

    space: Space
    scheduler: Scheduler
    pricing: Pricing
    by_tables: bool = True  # or by a mixed-integer program
    pairs: dict[tuple[int, ...], Pair] = field(default_factory=dict)
    looked_at: int = 0  # when it was last, by a count
    hopes: list[Hope] | None = None  # what its values cost at least, as far as that was asked for

    @property
    def bytes(self) -> int:
        """Of the tables that are at hand."""
        return 0 if self.pricing.elimination is None else self.pricing.elimination.bytes

    def let_go(self) -> None:
        """Give up the tables: `tables` makes the same ones again."""
        self.pricing = replace(self.pricing, elimination=None)

    def tables(self) -> Elimination | None:
        """The space solved at the best prices; None where it was too wide for tables."""
        if self.by_tables and self.pricing.elimination is None:
            self.pricing = replace(self.pricing, elimination=eliminate(self.space.graph, self.pricing.prices))
        return self.pricing.elimination

    @cached_property
    def shares(self) -> Shares:
        return shares_of(self.space.layout)

    def assignment(self, choice: Choice) -> tuple[int, ...]:
        """The assignment of a choice; of one that lies outside (a restricted space offers other sets) the empty one."""
        try:
            return self.space.structure.assignment(choice)
        except (ValueError, KeyError):
            return ()


class Spaces:
    """The spaces of one training graph on one cluster."""

    def __init__(
        self,
        training: TrainingGraph,
        cluster: Cluster,
        objective: str,
        restriction: Restriction | None,
        pairs: Pairs,
        clock: Clock,
    ) -> None:
        self.training, self.cluster, self.objective, self.restriction = training, cluster, objective, restriction
        self.pairs, self.clock = pairs, clock
        self.structures: dict[tuple[tuple[str, ...], bool], Structure] = {}
        self.solved: dict[Key, Solved] = {}
        self._looks = 0
        self.nodes = 0  # prefixes that A* looked at
        self.paid = False  # some space had a price on memory,
        self.dear = 1 + GRADE  # of as many duals as programs paid that fitted

    # -- which messages count ----------------------------------------------------------

    @cached_property
    def heavy(self) -> tuple[str, ...]:
        """Kinds of shared message whose latency is a part of the step that matters to the choice of programs: the rounds' flags."""
        return self._messages(WEIGHS)

    @cached_property
    def audible(self) -> tuple[str, ...]:
        """Those whose latency matters to a proof, where a fiftieth of that is still worth having, and tables may be wider."""
        return self._messages(WEIGHS / 50, cells=PROOF_CELLS)

    @cached_property
    def once(self) -> tuple[str, ...]:
        """The same as `heavy` with each of them counted once, by a flag, also where there may be more than one and parts count them."""
        return self._messages(WEIGHS, tuple(SHARED))

    def ever_more(self) -> Iterator[tuple[str, ...]]:
        """`heavy`, `audible`, `once`, as far as they differ; each is worked out when it comes to it, as its structure takes long."""
        found: list[tuple[str, ...]] = []
        for messages in (lambda: self.heavy, lambda: self.audible, lambda: self.once):
            if messages() not in found:
                found.append(messages())
                yield found[-1]

    def worth(self, messages: tuple[str, ...], missing: float) -> bool:
        """May a bound that counts these messages by flags gain so many seconds? Where tables are small it is tried in any case.

        It gains one latency of each kind at most, and what the better prices give; the overlapped cost is often far from all of that.
        """
        hope = HOPE * sum(self.split.floor(m) for m in messages)
        return hope >= missing or self.structure(messages).order.total <= ROUND_CELLS

    def _messages(
        self, part: float, among: tuple[str, ...] | None = None, cells: float = ROUND_CELLS
    ) -> tuple[str, ...]:
        """Those whose floor is more than a part of the step; fewer, the lightest left out, where tables would be too wide for the
        time that a solve should take (their `cells` in all, of a graph of USUAL calls; layers that are alike are solved once)."""
        floors = {m: self.split.floor(m) for m in among or self.buckets.flagged}
        found = tuple(m for m in floors if floors[m] > part * self.floor)
        cells *= max(1.0, len(self.training.nodes) / USUAL)
        while found and (self.structure(found).order.peak > MAX_CELLS or self.structure(found).order.total > cells):
            lightest = min(found, key=lambda m: floors[m])
            found = tuple(m for m in found if m != lightest)
        return found

    @cached_property
    def buckets(self) -> Buckets:
        return Buckets(self.training)

    @cached_property
    def split(self) -> Split:
        """What messages of any size cost at least."""
        return Split(self.cluster, 1.0, self.buckets.usual)

    @cached_property
    def floor(self) -> float:
        return floor(self.training, self.cluster)

    @cached_property
    def whole(self) -> Choice | None:
        """Every device does everything, and nothing is sent; None where a restriction is at work.

        Where messages are slow this is hard to beat, and many changes away from the programs that prices lead to.
        """
        if self.restriction is not None:
            return None
        structure = self.structure(self.heavy)
        rules = tuple(node.rules[0] for node in self.training.nodes)  # the replicated one of each
        return Choice(
            rules, dict.fromkeys((*structure.offers, *structure.holds), (R,)), dict.fromkeys(structure.holds, R)
        )

    # -- spaces ------------------------------------------------------------------------

    def structure(self, messages: tuple[str, ...], carry: bool = False) -> Structure:
        """Raises HAP602 where the restriction leaves nothing."""
        found = self.structures.get((messages, carry))
        if found is None:
            like = next(reversed(self.structures.values()), None)
            found = self.structures[messages, carry] = Structure(self.training, self.restriction, messages, carry, like)
            if found.impossible:
                raise self.pairs.nothing(found.impossible)
        return found

    @property
    def drawn(self) -> Drawn:
        """The lines of programs that were made so far."""
        return self.structure(self.heavy).drawn

    def solve(
        self, shares: Shares, messages: tuple[str, ...], memory: bool = False, objective: str | None = None
    ) -> Solved:
        """The space under these shares with the best prices; with `memory`, a price on that as well, and ways to save it.

        Where no program can be better than the best at hand, the prices are left as good as they are when that shows.
        """
        objective = objective or self.objective
        key: Key = (shares_key(shares), messages, memory, objective)
        if key not in self.solved:
            self.paid = self.paid or memory
            structure = self.structure(messages, memory)
            layout = layout_of(shares, len(self.cluster))
            space = Space(self.training, layout, self.cluster, None, objective, structure, memory)
            groups, ceilings = [list(space.timed)], None
            if memory:
                ceilings = dict.fromkeys(space.held, 20 * self.solve(shares, messages, False, objective).pricing.bound)
            late, best = self.clock.late, self.pairs.best
            cutoff = best.seconds if best is not None and objective == self.objective else np.inf
            self.make_room()
            by_tables = True
            try:
                pricing = cutting_planes(space.graph, groups, ceilings, cancelled=late, cutoff=cutoff)
            except TooWide:
                by_tables = False
                left = self.clock.left()
                by = by_milp(space.graph, seconds=10.0 if left is None else max(1.0, min(10.0, left)))
                pricing = cutting_planes(
                    space.graph, groups, ceilings, cancelled=late, solve=by, iterations=3, cutoff=cutoff
                )
            self.solved[key] = Solved(space, Scheduler(space.conversions), pricing, by_tables)
        return self._looked_at(self.solved[key])

    def bound(self, shares: Shares) -> float:
        """The best bound for these shares that was worked out so far."""
        key = shares_key(shares)
        found = [
            s.pricing.bound
            for (k, _, _, objective), s in self.solved.items()
            if (k, objective) == (key, self.objective)
        ]
        return max(found, default=0.0)

    def _looked_at(self, solved: Solved) -> Solved:
        self._looks += 1
        solved.looked_at = self._looks
        return solved

    def make_room(self) -> None:
        """Give up the tables that were not looked at for longest, until the others come to TABLES at most."""
        total = 0
        for solved in sorted(self.solved.values(), key=lambda s: -s.looked_at):
            total += solved.bytes
            if total > TABLES:
                total -= solved.bytes
                solved.let_go()

    def let_go(self, best: Pair | None) -> None:
        """Give up all tables but those for the shares of the best pair, which its proof looks at."""
        for (shares, *_), solved in self.solved.items():
            if best is None or shares != shares_key(best.shares):
                solved.let_go()

    def tables(self, solved: Solved) -> Elimination | None:
        """The tables of a solved space, made anew where they had to go."""
        self._looked_at(solved)
        if solved.by_tables and solved.pricing.elimination is None:
            self.make_room()
        return solved.tables()

    def pair(self, solved: Solved, assignment: tuple[int, ...]) -> Pair:
        """An assignment as a priced program."""
        found = solved.pairs.get(assignment)
        if found is None:
            choice = solved.space.choice(assignment)
            found = solved.pairs[assignment] = self.pairs.priced(choice, solved.shares, solved.scheduler)
        return found

    def minimisers(self) -> list[Pair]:
        """The least of every space under the prices that were tried, the best prices' first: good in some other order, maybe."""
        found = [[s.pairs[a] for a in reversed(s.pricing.minimisers) if a in s.pairs] for s in self.solved.values()]
        return [pair for each in zip_longest(*found) for pair in each if pair is not None]

    def frugal(self, solved: Solved) -> list[Pair]:
        """Programs that pay for memory: those between which the price decides whether they fit, found by bisection.

        The footprint leaves things out, so its own price may be too low; and it can't tell identical layers apart, so they are graded.
        Prices follow the duals; where nothing fits so, they lie on all moments alike. Cost: PRICES eliminations, or twice that; fewer
        under other shares, where it is known what duals are worth.
        """
        pricing, space = solved.pricing, solved.space
        if not solved.by_tables or not np.isfinite(pricing.bound):
            return []
        graded = Space(
            self.training, space.layout, self.cluster, None, space.objective, space.structure, True, graded=True
        )
        held = slice(space.held.start, space.held.stop)
        duals = pricing.prices[held]
        ways = [(np.ones(len(duals)), abs(pricing.bound) / 8)]
        if duals.any():
            ways.insert(0, (duals, self.dear))
        found: list[Pair] = []
        large: list[Pair] = []

        def fits(weights: Table, price: float) -> bool:
            prices = pricing.prices.copy()
            prices[held] = weights * price
            pair = self.pair(solved, eliminate(graded.graph, prices).best())
            enough = self.pairs.fits(pair)
            (found if enough else large).append(pair)
            return enough

        for weights, first in ways:
            least = _least_price(first, partial(fits, weights), self.clock.late)
            if weights is duals and found:
                self.dear = least
            if found:
                break
        return found or large[-1:]

    def search(self, solved: Solved, leaves: int, gap: float, best: Pair | None) -> tuple[Pair | None, float]:
        """A* from the solved prices, until `gap` is closed to the best pair or the leaves are used up.

        Returns a better pair (None where nothing better comes up) and a bound for these shares.
        """
        elimination = self.tables(solved)
        if elimination is None or not elimination.feasible:
            return None, solved.pricing.bound
        incumbent = None
        if best is not None and shares_key(best.shares) == shares_key(solved.shares):
            incumbent = (best.seconds, solved.assignment(best.choice))
        structure = solved.space.structure
        least = np.inf if incumbent is None else incumbent[0]

        def price(assignment: tuple[int, ...]) -> float:
            nonlocal least
            if structure.spare(assignment):
                return np.inf
            pair = self.pair(solved, assignment)
            if pair.seconds < least:
                if not self.pairs.fits(pair):
                    return np.inf
                least = pair.seconds
            return pair.seconds

        limits = Limits(leaves=leaves, seconds=self.clock.left())
        result = best_first(elimination, price, gap, limits, self.clock.late, incumbent)
        self.nodes += result.nodes
        if result.assignment is None or (incumbent is not None and result.assignment == incumbent[1]):
            return None, result.bound
        found = self.pair(solved, result.assignment)
        self.pairs.keep(found)
        return found, result.bound


def _least_price(first: float, fits: Callable[[float], bool], late: Callable[[], bool]) -> float:
    """The least price found under which something `fits`, from a `first` one on; inf where it does under none of PRICES."""
    low, high, price, by = 0.0, np.inf, first, RAISE
    for _ in range(PRICES):
        if late() or high - low < NEAR_PRICE * high:
            break
        if fits(price):
            high = price
        else:
            low = price
        if low and high < np.inf:
            price = (low + high) / 2
        else:
            price, by = price * by if low else price / by, by * by
    return high


def floor(training: TrainingGraph, cluster: Cluster) -> float:
    """Seconds of a step's work at the peak speed of all devices together: what it takes at the very least.

    Compute that is cut is done once, and compute that isn't by every device; no operator is priced below its FLOPs.
    """
    speeds: dict[str, float] = {}
    total = 0.0
    for node in training.nodes:
        dtype = compute_dtype(node)
        if dtype not in speeds:
            speeds[dtype] = float(cluster.speeds(dtype).sum())
        total += training.times(node.section) * float(np.max(node.instance.flops({}))) / speeds[dtype]
    return total
