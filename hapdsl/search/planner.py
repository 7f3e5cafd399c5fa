"""The synthesizer: programs and shares in turn, from several starts, until a pair repeats (paper §3, eqs 1 and 2).

Given shares, the space's cutting planes and a few of its best leaves propose programs; given a program, the share MILP and
one-unit moves propose shares. Every proposal is priced by the exact evaluator, and the pair that is reported was priced together. At
the end A* proves how good the program is for its shares.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.collectives import best_method
from hapdsl.cost.compute import compute_dtype
from hapdsl.cost.evaluate import Cost, evaluate
from hapdsl.cost.pricing import Pricer
from hapdsl.graph.program import Layout, Program
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.search.anyshares import bound_any_shares
from hapdsl.search.astar import Limits, SearchResult, best_first
from hapdsl.search.baselines import baselines as find_baselines
from hapdsl.search.conversions import Conversions
from hapdsl.search.eliminate import TooWide
from hapdsl.search.milp import by_milp
from hapdsl.search.plan import BASELINES, Candidate, Plan, Progress, Report
from hapdsl.search.prices import Pricing, cutting_planes
from hapdsl.search.schedule import Scheduler
from hapdsl.search.shares import Shares, Stages, descend, layout_of, proportional, propose, shares_of
from hapdsl.search.space import Space
from hapdsl.search.restriction import Restriction
from hapdsl.search.structure import SHARED_MESSAGES, Choice, Structure

ROUNDS = 4
KEPT_STARTS = 2  # starts that go on after their first program
LEAVES = 24  # true evaluations per round at most; the proof takes more
PROOF_LEAVES = 300
WORK = 12_000  # instructions to evaluate per round: long programs get fewer leaves
MOVES = 24
WEIGHS = 0.003  # a kind of message whose latency is a smaller part of the step is left out of the rounds' bound
SCOPE = "these shares: every rule per operator, every offered set of two, in canonical order"


@dataclass(frozen=True)
class _Pair:
    """A choice of program with the shares it was priced under."""

    choice: Choice
    shares: Shares
    candidate: Candidate

    def key(self) -> tuple[object, ...]:
        return (_shares_key(self.shares), tuple((i.op, i.inputs, i.outputs) for i in self.candidate.program.instructions))


def _shares_key(shares: Mapping[str, np.ndarray]) -> tuple[object, ...]:
    return tuple((c, tuple(int(n) for n in s)) for c, s in sorted(shares.items()))


@dataclass
class _Solved:
    """A space under given shares, with its prices solved."""

    space: Space
    scheduler: Scheduler
    pricing: Pricing


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

    def run(self, baselines: bool) -> Plan:
        self.say("programs")
        firsts = [(pair, shares) for shares in self.starts() if (pair := self.programs(shares)) is not None]
        firsts.sort(key=lambda first: self.seconds(first[0].candidate))
        for pair, _ in firsts[:KEPT_STARTS]:
            if self.out_of_time():
                break
            self.alternate(pair)
        found: Mapping[str, Candidate | None] = dict.fromkeys(BASELINES)
        if baselines and not self.out_of_time():
            self.say("baselines")
            found = find_baselines(self.training, self.cluster, self.objective)
            self.better_baseline(found)
        if self.best is None:
            raise self.failure()
        proof = self.prove()
        self.say("bound for all shares", proof)
        pair = self.best
        any_shares = None
        if self.restriction is None and self.objective == "sync" and not self.out_of_time():
            any_shares = bound_any_shares(self.training, layout_of(pair.shares, len(self.cluster)), self.cluster)
        return Plan(
            program=pair.candidate.program,
            cost=pair.candidate.cost,
            objective=self.objective,
            bound_s=min(proof, self.seconds(pair.candidate)),
            bound_scope=SCOPE,
            bound_any_shares_s=any_shares,
            search_s=time.monotonic() - self.started,
            nodes=self.nodes,
            baselines=found,
        )

    # -- the loop --------------------------------------------------------------------

    def starts(self) -> list[Shares]:
        """Proportional to speed, even, proportional to memory, and without the slowest kind of device."""
        n = len(self.cluster)
        speeds = self.cluster.speeds("f32")
        weights = [speeds, np.ones(n), np.minimum(self.cluster.memories, 1e18)]
        if len(self.cluster.kinds()) > 1:
            weights.append(np.where(speeds > speeds.min(), speeds, 0.0))
        found: dict[tuple[object, ...], Shares] = {}
        for w in weights:
            if w.sum() > 0:
                shares = {**proportional(self.training, w), **self.fixed}
                found.setdefault(_shares_key(shares), shares)
        return list(found.values())

    def better_baseline(self, found: Mapping[str, Candidate | None]) -> None:
        """A search that was cut short may have missed what a baseline shows: go on from there."""
        for candidate in found.values():
            if self.restriction is not None or self.fixed or candidate is None or candidate.choice is None:
                continue
            if self.best is None or self.seconds(candidate) < self.seconds(self.best.candidate):
                program = replace(candidate.program, name=self.name)
                pair = _Pair(candidate.choice, shares_of(program.layout), Candidate(program, candidate.cost))
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
        """The best program under these shares among the cutting planes', the first leaves, and the one at hand."""
        if self.out_of_time():
            return None
        solved = self.solve(shares, self.heavy())
        pairs = [self.pair(solved, a) for a in solved.pricing.minimisers]
        if known is not None:
            pairs.append(self.fitting(known.choice, shares, self.candidate(known.choice, shares)))
        best = min((p for p in pairs if p is not None), key=lambda p: self.seconds(p.candidate), default=None)
        if best is not None:
            self.keep(best)
        if solved.pricing.elimination is not None and solved.pricing.elimination.feasible:
            length = len(best.candidate.program.instructions) if best is not None else len(self.training.nodes)
            result = self.search(solved, max(3, min(LEAVES, WORK // max(1, length))), gap=0.0)
            if result.assignment is not None:
                pair = self.pair(solved, result.assignment)
                if pair is not None and (best is None or self.seconds(pair.candidate) < self.seconds(best.candidate)):
                    best = pair
                    self.keep(best)
        return best

    def shares(self, pair: _Pair) -> Shares:
        """Better shares for a program: proposals of the linear program, then one-unit moves.

        The synchronous cost is priced over merged stages; where the overlapped cost is asked for, or memory is short, by
        the whole evaluator. The answer is priced by that evaluator in any case.
        """
        stages = Stages(pair.candidate.program, self.cluster)
        costs: dict[tuple[object, ...], tuple[float, np.ndarray]] = {}

        def exactly(shares: Shares) -> tuple[float, np.ndarray]:
            candidate = self.candidate(pair.choice, shares)
            fits = self.fitting(pair.choice, shares, candidate)
            if fits is not None:
                self.keep(fits)
            busy = np.sum([s.compute_s for s in candidate.cost.stages], axis=0)
            return (self.seconds(candidate) if fits is not None else np.inf), busy

        roomy = bool((pair.candidate.cost.memory_bytes * 2 <= pair.candidate.cost.capacity_bytes).all())
        price = stages.seconds if self.objective == "sync" and roomy else exactly

        def look(shares: Shares) -> tuple[float, np.ndarray]:
            key = _shares_key(shares)
            if key not in costs:
                costs[key] = price(shares)
            return costs[key]

        options = [pair.shares, *propose(pair.candidate.program, self.cluster, self.fixed, stages)]
        best = min(options, key=lambda s: look(s)[0])
        free = [c for c in self.training.classes if c not in self.fixed]
        best, _ = descend(best, look(best)[0], lambda s: look(s)[0], free, lambda s: look(s)[1], MOVES)
        return best if exactly(best)[0] <= self.seconds(pair.candidate) else pair.shares

    def prove(self) -> float:
        """Close the gap of the best pair at its shares; better programs found on the way are kept. Returns the bound.

        First with the tables of the rounds; the latency of every kind of message counts where that isn't enough.
        """
        bound = 0.0
        while True:
            assert self.best is not None
            shares = self.best.shares
            for messages in dict.fromkeys((self.heavy(), self.audible())):
                self.say("proof", bound)
                solved = self.solve(shares, messages)
                bound = max(bound, solved.pricing.bound)
                if solved.pricing.elimination is None or self.close(bound) or self.late():
                    continue
                result = self.search(solved, PROOF_LEAVES, self.gap)
                self.nodes += result.nodes
                bound = max(bound, result.bound)
                if result.assignment is not None:
                    pair = self.pair(solved, result.assignment)
                    if pair is not None:
                        self.keep(pair)
            if _shares_key(self.best.shares) == _shares_key(shares):
                return min(bound, self.seconds(self.best.candidate))
            bound = 0.0

    def close(self, bound: float) -> bool:
        assert self.best is not None
        return self.seconds(self.best.candidate) - bound <= self.gap * self.seconds(self.best.candidate)

    # -- pieces ----------------------------------------------------------------------

    def heavy(self) -> tuple[str, ...]:
        """Kinds of shared message whose latency is a part of the step that matters to the choice of programs."""
        return self.messages(WEIGHS)

    def audible(self) -> tuple[str, ...]:
        return self.messages(WEIGHS / 50)

    def messages(self, part: float) -> tuple[str, ...]:
        floor = self.floor()
        return tuple(
            k for k in SHARED_MESSAGES if best_method(k, np.zeros(len(self.cluster)), 0.0, self.cluster)[1] > part * floor
        )

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

    def solve(self, shares: Shares, messages: tuple[str, ...]) -> _Solved:
        key = (_shares_key(shares), messages)
        if key not in self.solved:
            if messages not in self.structures:
                self.structures[messages] = Structure(self.training, self.restriction, messages)
            structure = self.structures[messages]
            layout = layout_of(shares, len(self.cluster))
            space = Space(self.training, layout, self.cluster, None, self.objective, structure)
            scheduler = Scheduler(space.conversions)
            try:
                pricing = cutting_planes(space.graph, elimination_order=structure.order, cancelled=self.cancelled)
            except TooWide:
                pricing = cutting_planes(space.graph, cancelled=self.cancelled, solve=by_milp(space.graph, seconds=10.0), iterations=3)
            self.solved[key] = _Solved(space, scheduler, pricing)
        return self.solved[key]

    def search(self, solved: _Solved, leaves: int, gap: float) -> SearchResult:
        elimination = solved.pricing.elimination
        assert elimination is not None
        seconds: dict[tuple[int, ...], float] = {}

        def price(assignment: tuple[int, ...]) -> float:
            if assignment not in seconds:
                pair = self.pair(solved, assignment)
                seconds[assignment] = self.seconds(pair.candidate) if pair is not None else np.inf
            return seconds[assignment]

        left = None if self.time_limit is None else max(0.0, self.time_limit - (time.monotonic() - self.started))
        return best_first(elimination, price, gap, Limits(leaves=leaves, seconds=left), self.cancelled)

    def pair(self, solved: _Solved, assignment: tuple[int, ...]) -> _Pair | None:
        """An assignment as a priced program; None where it doesn't fit into memory. The last ones are remembered."""
        key = (id(solved), assignment)
        if key not in self.recent:
            choice = solved.space.choice(assignment)
            program = solved.scheduler.program(choice, self.name)
            candidate = Candidate(program, evaluate(program, self.cluster, solved.space.pricer))
            if len(self.recent) > 64:
                self.recent.clear()
            self.recent[key] = self.fitting(choice, shares_of(solved.space.layout), candidate)
        return self.recent[key]

    recent: dict[tuple[int, tuple[int, ...]], _Pair | None] = field(default_factory=dict)

    def fitting(self, choice: Choice, shares: Shares, candidate: Candidate) -> _Pair | None:
        if not candidate.cost.fits:
            self.note(candidate.cost)
            return None
        return _Pair(choice, shares, candidate)

    def candidate(self, choice: Choice, shares: Shares) -> Candidate:
        layout: Layout = layout_of(shares, len(self.cluster))
        pricer = Pricer(self.training, layout, self.cluster)
        program: Program = Scheduler(Conversions(self.structures[self.heavy()], layout, self.cluster, pricer)).program(choice, self.name)
        return Candidate(program, evaluate(program, self.cluster, pricer))

    def seconds(self, candidate: Candidate) -> float:
        return candidate.cost.sync_s if self.objective == "sync" else candidate.cost.overlap_s

    def keep(self, pair: _Pair) -> None:
        if self.best is None or self.seconds(pair.candidate) < self.seconds(self.best.candidate) * (1 - 1e-12):
            self.best = pair
            self.say("better plan")

    def note(self, cost: Cost) -> None:
        over = float((cost.memory_bytes - cost.capacity_bytes).max())
        if self.smallest_need is None or over < self.smallest_need[0]:
            self.smallest_need = (over, cost)

    def failure(self) -> HapError:
        if self.smallest_need is None:
            return error("HAP602", f"no program exists for '{self.training.model}' under these restrictions", help="free a placement or a class", status=1)  # fmt: skip
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

    def say(self, doing: str, bound: float | None = None) -> None:
        if self.progress is not None:
            best = self.best.candidate if self.best is not None else None
            self.progress(Progress(doing, self.seconds(best) if best else None, bound, best))

