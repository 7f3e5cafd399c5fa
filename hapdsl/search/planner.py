"""The synthesizer: programs and shares in turn, from several starts, until a pair repeats (paper §3, eqs 1 and 2).

Given shares, the space's cutting planes and a few of its best leaves propose programs; given a program, the share MILP and
one-unit moves propose shares. Every proposal is priced by the exact evaluator, and the pair that is reported was priced together. At
the end A* proves how good the program is for its shares.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.compute import compute_dtype
from hapdsl.cost.evaluate import Cost, evaluate
from hapdsl.cost.pricing import Pricer
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.search.anyshares import bound_any_shares
from hapdsl.search.astar import Limits, best_first
from hapdsl.search.baselines import baselines as find_baselines
from hapdsl.search.baselines import batch_class
from hapdsl.search.conversions import Conversions
from hapdsl.search.eliminate import TooWide, eliminate
from hapdsl.search.messages import SHARED, Split
from hapdsl.search.milp import by_milp
from hapdsl.search.plan import BASELINES, Candidate, Plan, Progress, Report
from hapdsl.search.prices import Pricing, cutting_planes
from hapdsl.search.restriction import Restriction
from hapdsl.search.schedule import Scheduler
from hapdsl.search.sharemodel import propose
from hapdsl.search.shares import Shares, Stages, descend, layout_of, proportional, shares_of
from hapdsl.search.space import Space
from hapdsl.search.structure import Choice, Structure

ROUNDS = 4
KEPT_STARTS = 2  # starts that go on after their first program
LEAVES = 24  # true evaluations per round at most; the proof takes more
PROOF_LEAVES = 300
WORK = 24_000  # calls to schedule per search: deep models get fewer leaves
MOVES = 24
FRUGAL = (0.5, 2.0, 8.0, 40.0)  # times the price of memory that are tried where it is short
WEIGHS = 0.003  # a kind of message whose latency is a smaller part of the step is left out of the rounds' bound
SCOPE = "these shares: every rule per operator, every offered set of two, in canonical order"
MEMORY = ", within memory"


@dataclass(frozen=True, eq=False)
class _Pair:
    """A choice of program with the shares it was priced under, and what it costs (of the objective)."""

    choice: Choice
    shares: Shares
    seconds: float
    scheduler: Scheduler
    name: str

    def key(self) -> tuple[object, ...]:
        held, offered = tuple(self.choice.held.items()), tuple(self.choice.offered.items())
        return (_shares_key(self.shares), self.choice.rules, held, offered)

    @cached_property
    def candidate(self) -> Candidate:
        program = self.scheduler.program(self.choice, self.name)
        return Candidate(program, evaluate(program, self.scheduler.cluster, self.scheduler.pricer), self.choice)


def _shares_key(shares: Mapping[str, np.ndarray]) -> tuple[object, ...]:
    return tuple((c, tuple(int(n) for n in s)) for c, s in sorted(shares.items()))


@dataclass
class _Solved:
    """A space under given shares, with its prices solved, and the assignments that were priced."""

    space: Space
    scheduler: Scheduler
    pricing: Pricing
    pairs: dict[tuple[int, ...], _Pair | None] = field(default_factory=dict)


def plan(
    training: TrainingGraph,
    cluster: Cluster,
    *,
    objective: str = "sync",
    gap: float = 0.01,
    time_limit: float | None = None,
    progress: Report | None = None,
    cancelled: Callable[[], bool] | None = None,
    baselines: bool = True,
    restriction: Restriction | None = None,
    fixed: Shares | None = None,
    name: str = "plan",
) -> Plan:
    """The best program and shares found for `training` on `cluster`.

    `objective` is "sync" (the paper's stages) or "overlap". The search stops when the program is within `gap` of its bound for its
    shares, after `time_limit` seconds, or when `cancelled()`; it always answers with the best so far. `restriction` and `fixed` keep to a part
    of the space and to given shares. Raises HapError: HAP601 where no program fits into memory, HAP602 where none exists.
    """
    return _Planner(training, cluster, objective, gap, time_limit, progress, cancelled, restriction, fixed or {}, name).run(baselines)


@dataclass
class _Planner:
    training: TrainingGraph
    cluster: Cluster
    objective: str
    gap: float
    time_limit: float | None
    progress: Report | None
    cancelled: Callable[[], bool] | None
    restriction: Restriction | None
    fixed: Shares
    name: str
    started: float = field(default_factory=time.monotonic)
    best: _Pair | None = None
    smallest_need: tuple[float, Cost] | None = None  # of what didn't fit: the least bytes over the limit
    solved: dict[tuple[object, ...], _Solved] = field(default_factory=dict)
    structures: dict[tuple[str, ...], Structure] = field(default_factory=dict)
    nodes: int = 0
    bound: float = 0.0  # of the last search
    paid: bool = False  # some space had a price on memory

    def run(self, baselines: bool) -> Plan:
        self.say("programs")
        firsts = [(pair, shares) for shares in self.starts() if (pair := self.programs(shares)) is not None]
        firsts.sort(key=lambda first: first[0].seconds)
        for pair, _ in firsts[:KEPT_STARTS]:
            if self.out_of_time():
                break
            self.alternate(pair)
        found: Mapping[str, Candidate | None] = {} if baselines else dict.fromkeys(BASELINES)
        if baselines and not self.out_of_time():
            self.say("baselines")
            found = find_baselines(self.training, self.cluster, self.objective)
            self.better_baseline(found)
        if self.best is None:
            raise self.failure()
        proof = self.prove()
        self.say("bound for all shares", proof)
        any_shares = None
        if self.restriction is None and self.objective == "sync" and not self.out_of_time():
            layout = layout_of(self.best.shares, len(self.cluster))
            any_shares = bound_any_shares(self.training, layout, self.cluster, self.structure(self.heavy()))
        restricted = f", {self.restriction.scope}" if self.restriction is not None and self.restriction.scope else ""
        return Plan(
            program=self.best.candidate.program,
            cost=self.best.candidate.cost,
            objective=self.objective,
            bound_s=min(proof, self.best.seconds),
            bound_scope=SCOPE + (MEMORY if self.paid else "") + restricted,
            bound_any_shares_s=any_shares,
            search_s=time.monotonic() - self.started,
            nodes=self.nodes,
            baselines=found,
        )

    # -- the loop --------------------------------------------------------------------

    def starts(self) -> list[Shares]:
        """By speed; the batch by speed and the rest even; even; by memory; without the slowest kind of device."""
        n = len(self.cluster)
        speeds = self.cluster.speeds("f32")
        by_speed, even = proportional(self.training, speeds), proportional(self.training, np.ones(n))
        batch = batch_class(self.training)
        wanted = [by_speed, {**even, batch: by_speed[batch]} if batch is not None else even, even]
        wanted.append(proportional(self.training, np.minimum(self.cluster.memories, 1e18)))
        if len(self.cluster.kinds()) > 1 and speeds.max() > speeds.min():
            wanted.append(proportional(self.training, np.where(speeds > speeds.min(), speeds, 0.0)))
        found: dict[tuple[object, ...], Shares] = {}
        for w in wanted:
            shares = {**w, **self.fixed}
            found.setdefault(_shares_key(shares), shares)
        return list(found.values())

    def better_baseline(self, found: Mapping[str, Candidate | None]) -> None:
        """A search that was cut short may have missed what a baseline shows: go on from there."""
        for candidate in found.values():
            if self.restriction is not None or self.fixed or candidate is None or candidate.choice is None:
                continue
            if self.best is None or candidate.seconds(self.objective) < self.best.seconds:
                pair = self.under(candidate.choice, shares_of(candidate.program.layout))
                if pair is not None:
                    self.keep(pair)
                    self.alternate(pair)

    def alternate(self, pair: _Pair) -> None:
        """Shares for the program, a program for the shares, until a pair repeats."""
        seen = {pair.key()}
        for _ in range(ROUNDS):
            self.say("shares")
            shares = self.shares(pair)
            if _shares_key(shares) == _shares_key(pair.shares) or self.out_of_time():
                return
            self.say("programs")
            following = self.programs(shares, pair)
            if following is None or following.key() in seen:
                return
            pair = following
            seen.add(pair.key())

    def programs(self, shares: Shares, known: _Pair | None = None) -> _Pair | None:
        """The best program under these shares among the cutting planes', the first leaves, and the one at hand.

        Where none of them fits into memory, once more with a price on memory.
        """
        for memory in (False, True):
            if self.out_of_time():
                return None
            solved = self.solve(shares, self.heavy(), memory)
            pairs = [self.pair(solved, a) for a in solved.pricing.minimisers]
            if memory:
                pairs += [self.pair(solved, a) for a in self.frugal(solved)]
            if self.objective == "overlap":  # this bound sees no order; what is short one thing after another often is good
                other = self.solve(shares, self.heavy(), memory, "sync")
                pairs += [self.pair(other, a) for a in other.pricing.minimisers]
            if known is not None:
                pairs.append(self.under(known.choice, shares))
            best = min((p for p in pairs if p is not None), key=lambda p: p.seconds, default=None)
            if best is not None:
                self.keep(best)
            found = self.search(solved, LEAVES, self.gap / 4, best)
            if found is not None and (best is None or found.seconds < best.seconds):
                best = found
            if best is not None or self.smallest_need is None:
                return best
        return None

    def frugal(self, solved: _Solved) -> list[tuple[int, ...]]:
        """Assignments that pay more and more for memory: the footprint leaves things out, so its own price may be too low."""
        space, pricing = solved.space, solved.pricing
        found = []
        for factor in FRUGAL if pricing.elimination is not None and pricing.elimination.feasible else ():
            prices = pricing.prices.copy()
            held = slice(space.held.start, space.held.stop)
            prices[held] = np.maximum(prices[held], abs(pricing.bound) / 10) * factor
            found.append(eliminate(space.graph, prices, order=space.structure.order).best())
        return list(dict.fromkeys(found))

    def shares(self, pair: _Pair) -> Shares:
        """Better shares for a program: proposals of the linear program, then moves of units.

        The synchronous cost is priced over merged stages; where the overlapped cost is asked for, or memory is short, by
        the whole evaluator. The answer is priced by that evaluator in any case.
        """
        cost = pair.candidate.cost
        stages = Stages(pair.candidate.program, self.cluster)
        costs: dict[tuple[object, ...], tuple[float, np.ndarray]] = {}

        def exactly(shares: Shares) -> tuple[float, np.ndarray]:
            found = self.under(pair.choice, shares)
            if found is not None:
                self.keep(found)
            return (np.inf if found is None else found.seconds), stages.seconds(shares)[1]

        roomy = bool((cost.memory_bytes * 2 <= cost.capacity_bytes).all())
        price = stages.seconds if self.objective == "sync" and roomy else exactly

        def look(shares: Shares) -> tuple[float, np.ndarray]:
            key = _shares_key(shares)
            if key not in costs:
                costs[key] = price(shares)
            return costs[key]

        memory = None if roomy else cost.memory
        options = [pair.shares, *propose(pair.candidate.program, self.cluster, self.fixed, stages, memory)]
        best = min(options, key=lambda s: look(s)[0])
        free = [c for c in self.training.classes if c not in self.fixed]
        best, _ = descend(best, look(best)[0], lambda s: look(s)[0], free, lambda s: look(s)[1], MOVES)
        return best if exactly(best)[0] <= pair.seconds else pair.shares

    def prove(self) -> float:
        """Close the gap of the best pair at its shares; better programs found on the way are kept. Returns the bound.

        First with the tables of the rounds; the latency of every kind of message counts where that isn't enough.
        """
        assert self.best is not None
        bound = 0.0
        for messages in dict.fromkeys((self.heavy(), self.audible())):
            self.say("proof", bound)
            solved = self.solve(self.best.shares, messages, self.paid)
            bound = max(bound, solved.pricing.bound)
            if self.close(bound) or self.late():
                break
            found = self.search(solved, PROOF_LEAVES, self.gap, self.best)
            bound = max(bound, self.bound)
            if found is not None:
                self.keep(found)
        return min(bound, self.best.seconds)

    def close(self, bound: float) -> bool:
        assert self.best is not None
        return self.best.seconds - bound <= self.gap * self.best.seconds

    # -- pieces ----------------------------------------------------------------------

    def heavy(self) -> tuple[str, ...]:
        """Kinds of shared message whose latency is a part of the step that matters to the choice of programs."""
        return self.messages(WEIGHS)

    def audible(self) -> tuple[str, ...]:
        return self.messages(WEIGHS / 50)

    def messages(self, part: float) -> tuple[str, ...]:
        split = Split(self.cluster, 1.0)
        return tuple(m for m in SHARED if split.floor(m) > part * self.floor())

    def floor(self) -> float:
        """Seconds of the model's work at the speed of all devices together: what a step takes at the very least."""
        if self._floor is None:
            speeds = {}
            total = 0.0
            for node in self.training.nodes:
                dtype = compute_dtype(node)
                if dtype not in speeds:
                    speeds[dtype] = float(self.cluster.speeds(dtype).sum())
                total += float(np.max(node.instance.flops({}))) / speeds[dtype]
            self._floor = total
        return self._floor

    _floor: float | None = None

    def structure(self, messages: tuple[str, ...]) -> Structure:
        if messages not in self.structures:
            self.structures[messages] = Structure(self.training, self.restriction, messages)
            if self.structures[messages].impossible:
                raise self.failure()
        return self.structures[messages]

    def solve(
        self, shares: Shares, messages: tuple[str, ...], memory: bool = False, objective: str | None = None
    ) -> _Solved:
        """The space under these shares with the best prices; with `memory`, a price on that as well."""
        objective = objective or self.objective
        key = (_shares_key(shares), messages, memory, objective)
        if key not in self.solved:
            self.paid = self.paid or memory
            structure = self.structure(messages)
            layout = layout_of(shares, len(self.cluster))
            space = Space(self.training, layout, self.cluster, None, objective, structure, memory)
            groups, ceilings = [list(space.timed)], None
            if memory:
                ceilings = dict.fromkeys(space.held, 20 * self.solve(shares, messages, False, objective).pricing.bound)
            try:
                pricing = cutting_planes(
                    space.graph, groups, ceilings, elimination_order=structure.order, cancelled=self.late
                )
            except TooWide:
                left = 10.0 if self.time_limit is None else max(1.0, min(10.0, self.left() or 0.0))
                by = by_milp(space.graph, seconds=left)
                pricing = cutting_planes(space.graph, groups, ceilings, cancelled=self.late, solve=by, iterations=3)
            self.solved[key] = _Solved(space, Scheduler(space.conversions), pricing)
        return self.solved[key]

    def search(self, solved: _Solved, leaves: int, gap: float, best: _Pair | None) -> _Pair | None:
        """A* from the solved prices, until `gap` is closed to the best pair or the leaves are used up.

        Sets `bound`, which holds for these shares. None where nothing better comes up.
        """
        elimination = solved.pricing.elimination
        self.bound = solved.pricing.bound
        if elimination is None or not elimination.feasible:
            return None
        incumbent = None
        if best is not None and _shares_key(best.shares) == _shares_key(shares_of(solved.space.layout)):
            incumbent = (best.seconds, self.assignment(solved, best.choice))

        structure = solved.space.structure

        def price(assignment: tuple[int, ...]) -> float:
            # Paying for a message that nothing needs is allowed by the tables, but it is another leaf's program once more.
            if structure.flags and structure.assignment(structure.choice(assignment)) != assignment:
                return np.inf
            pair = self.pair(solved, assignment)
            return np.inf if pair is None else pair.seconds

        limits = Limits(leaves=max(3, min(leaves, WORK // len(self.training.nodes))), seconds=self.left())
        result = best_first(elimination, price, gap, limits, self.late, incumbent)
        self.nodes += result.nodes
        self.bound = result.bound
        if result.assignment is None or (incumbent is not None and result.assignment == incumbent[1]):
            return None
        found = self.pair(solved, result.assignment)
        if found is not None:
            self.keep(found)
        return found

    def assignment(self, solved: _Solved, choice: Choice) -> tuple[int, ...]:
        """The assignment of a choice; of one that lies outside (a restricted space offers other sets) the empty one."""
        try:
            return solved.space.structure.assignment(choice)
        except (ValueError, KeyError):
            return ()

    def pair(self, solved: _Solved, assignment: tuple[int, ...]) -> _Pair | None:
        """An assignment as a priced program; None where it doesn't fit into memory."""
        if assignment not in solved.pairs:
            shares = shares_of(solved.space.layout)
            solved.pairs[assignment] = self.priced(solved.space.choice(assignment), shares, solved.scheduler)
        return solved.pairs[assignment]

    def under(self, choice: Choice, shares: Shares) -> _Pair | None:
        """The same choices under other shares."""
        layout = layout_of(shares, len(self.cluster))
        pricer = Pricer(self.training, layout, self.cluster)
        conversions = Conversions(self.structure(self.heavy()), layout, self.cluster, pricer)
        return self.priced(choice, shares, Scheduler(conversions))

    def priced(self, choice: Choice, shares: Shares, scheduler: Scheduler) -> _Pair | None:
        lines = scheduler.lines(choice)
        pair = _Pair(choice, shares, scheduler.seconds(lines, self.objective), scheduler, self.name)
        if scheduler.fits(lines):
            return pair
        if self.best is None:
            self.note(pair.candidate.cost)
        return None

    def keep(self, pair: _Pair) -> None:
        if self.best is None or pair.seconds < self.best.seconds * (1 - 1e-12):
            self.best = pair
            self.say("better plan")

    def note(self, cost: Cost) -> None:
        over = float((cost.memory_bytes - cost.capacity_bytes).max())
        if self.smallest_need is None or over < self.smallest_need[0]:
            self.smallest_need = (over, cost)

    def failure(self) -> HapError:
        if self.smallest_need is None:
            none = [n for s in self.structures.values() for n in s.impossible][:1]
            which = f": nothing is left for '{none[0]}'" if none else ""
            message = f"no program exists for '{self.training.model}' under these restrictions{which}"
            return error("HAP602", message, help="free a placement or a class", status=1)
        cost = self.smallest_need[1]
        device = int((cost.memory_bytes - cost.capacity_bytes).argmax())
        largest = ", ".join(f"{n} {b / 2**20:.0f} MiB" for n, b in cost.memory_holders[device][:3])
        return error(
            "HAP601",
            f"no plan found fits: '{self.cluster.devices[device].name}' needs {cost.memory_bytes[device] / 2**20:.0f} MiB, "
            f"has {cost.capacity_bytes[device] / 2**20:.0f} MiB",
            help=f"the largest there: {largest}; lower the batch, or add memory",
            status=1,
        )

    def late(self) -> bool:
        late = self.time_limit is not None and time.monotonic() - self.started > self.time_limit
        return late or (self.cancelled is not None and self.cancelled())

    def out_of_time(self) -> bool:
        """Time is up, and there is something to answer with."""
        return self.best is not None and self.late()

    def left(self) -> float | None:
        """Seconds until the time limit."""
        return None if self.time_limit is None else max(0.0, self.time_limit - (time.monotonic() - self.started))

    def say(self, doing: str, bound: float | None = None) -> None:
        if self.progress is not None:
            best = self.best.candidate if self.best is not None else None
            self.progress(Progress(doing, self.best.seconds if self.best else None, bound, best))
