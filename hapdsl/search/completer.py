"""A plan kept open: sketches of it are completed from the tables that are there already.

`complete` starts from nothing but the sketch; that takes seconds for a deep model. Whoever looks at a plan and pins one tensor wants the answer
at once, under the plan's own shares. What the pin changes are the choices of a few variables: their tables are made, all others are
those of the plan's space, and so are the prices, which are near the best ones. One elimination under them gives a bound and a program.

Cost: O(calls) look-ups, one elimination and two schedules per sketch (24 layers: some 0.3 s); where that leaves a gap, what the planner
spends on one space.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.program import Program
from hapdsl.search.alternatives import Alternatives
from hapdsl.search.clock import Clock
from hapdsl.search.complete import Decision, contradiction, restrict, written
from hapdsl.search.eliminate import eliminate
from hapdsl.search.pairs import Pair, Pairs
from hapdsl.search.planner import PROOF_LEAVES, ROUND_WORK
from hapdsl.search.prices import Pricing, cutting_planes
from hapdsl.search.reorder import reordered, without_unread
from hapdsl.search.schedule import Scheduler
from hapdsl.search.space import Space
from hapdsl.search.spaces import Solved, Spaces
from hapdsl.search.structure import Structure


@dataclass(frozen=True)
class Completion:
    """A program that keeps what was decided, its true cost, and a bound for such programs under its shares, in any order (seconds of the objective)."""

    program: Program
    cost_s: float
    bound_s: float


class Completer:
    """What an open plan knows of programs that differ from it."""

    def __init__(self, plan: Alternatives) -> None:
        self.plan = plan

    def complete(self, decided: Sequence[Decision], gap: float = 0.01, clock: Clock | None = None) -> Completion:
        """The best program found that keeps what is decided (`complete.decisions` reads a sketch), under the plan's shares.

        The search goes on until the program is within `gap` of its bound, or the clock says that it is late. Raises HapError: HAP603 and
        HAP605 for decisions that can't stand, HAP601 where no program with them fits into memory; TooWide where the plan's graph is too wide for tables.
        """
        plan, old, clock = self.plan, self.plan.solved.space, clock or Clock()
        training, cluster, objective = plan.training, plan.cluster, plan.objective
        restriction = restrict(training, decided)
        like = old.structure
        structure = Structure(training, restriction, like.messages, bool(like.carries), like)
        space = Space(training, old.layout, cluster, None, objective, structure, bool(old.held), like=old)
        prices = plan.solved.pricing.prices
        tables = eliminate(space.graph, prices)
        if structure.impossible or not tables.feasible:
            raise contradiction(training, decided, cluster)
        pairs = Pairs(training, cluster, objective, plan.program.name, lambda: None)
        spaces = Spaces(training, cluster, objective, restriction, pairs, clock)
        pricing = Pricing(prices, tables.bound, math.inf, (tables.best(),), 1, "known", tables)
        solved = Solved(space, Scheduler(space.conversions), pricing)
        best, bound = pairs.fastest([spaces.pair(solved, tables.best())]), tables.bound
        if not _within(best, bound, gap) and not clock.late():
            best, bound = self._further(spaces, solved, best, gap)
        if best is None:
            raise pairs.nothing([])
        program, pricer = best.scheduler.program(best.choice, plan.program.name), best.scheduler.pricer
        program = reordered(without_unread(program, restriction.wishes), pricer, objective, written(decided))
        seconds = evaluate(program, cluster, pricer).seconds(objective)
        return Completion(program, seconds, min(bound, seconds))

    def _further(self, spaces: Spaces, solved: Solved, best: Pair | None, gap: float) -> tuple[Pair | None, float]:
        """With prices of its own, ways to save memory where that is short, and leaves in the order of the bound where the graph is small."""
        space, known = solved.space, solved.pricing
        ceilings = {k: 2 * float(known.prices[k]) for k in space.held} or None
        late = spaces.clock.late
        solved.pricing = cutting_planes(space.graph, [list(space.timed)], ceilings, [known.prices], cancelled=late)
        found = [spaces.pair(solved, a) for a in (*known.minimisers, *solved.pricing.minimisers)]
        if space.held:
            found += spaces.frugal(solved)
        best = spaces.pairs.fastest(found)
        bound = max(known.bound, solved.pricing.bound)
        leaves = max(3, min(PROOF_LEAVES, ROUND_WORK // len(spaces.training.nodes)))
        if not _within(best, bound, gap) and not late():
            better, _ = spaces.search(solved, leaves, gap, best)  # what that proves is for one order only
            best = better or best
        return best, bound


def _within(best: Pair | None, bound: float, gap: float) -> bool:
    return best is not None and best.seconds - bound <= gap * best.seconds
