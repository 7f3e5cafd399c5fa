"""What every other choice for a tensor would cost, everything else chosen anew under the same shares.

For each value of a variable the elimination's tables know the least additive cost of a program that has it (`marginals`): a
bound. What such a program truly costs is another matter, so it is put into the canonical order and priced, beside it
the plan itself with only the neighbourhood of the change chosen anew (`nearby`), and in small graphs some of the next best. The
best of them is reported with its true cost: there may be a better one still, but none below the bound.

Everything is compared with the plan in canonical order; as it is written it may be faster (`reorder`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.comparison import Change, changes, same_work
from hapdsl.cost.evaluate import evaluate, stages_of
from hapdsl.cost.pricing import Line
from hapdsl.graph.program import Program
from hapdsl.lang.diagnostics import error
from hapdsl.search.astar import Limits, best_first
from hapdsl.search.choices import Choice
from hapdsl.search.clock import Clock
from hapdsl.search.factors import Assignment, FactorGraph
from hapdsl.search.marginals import Marginals
from hapdsl.search.milp import by_milp
from hapdsl.search.nearby import Nearby
from hapdsl.search.pairs import Pairs
from hapdsl.search.prices import Pricing, cutting_planes
from hapdsl.search.questions import Option, Question, questions
from hapdsl.search.readback import assignment_of, makes_again, settled
from hapdsl.search.schedule import Scheduler
from hapdsl.search.spaces import Solved, Spaces

LEAVES = 60  # true evaluations for one option at most, in a search of its own, where the graph is small
WORK = 1_000  # calls to schedule for that; deep models get none
FEW = 4  # leaves that aren't worth an elimination
NEARBY = 3  # values of one option that are tried beside the plan
MILP_SECONDS = 5.0  # for one choice, where tables would be too wide
TOLERANCE = 1e-9  # relative: bounds that are closer are equal


@dataclass(frozen=True)
class Alternative:
    """One option of a question, and the best program found that takes it.

    `cost_s` is its true cost (None: none was found that fits into memory), of which `communication_s` and `compute_s` in the
    synchronous stages; `bound_s` is below every program that takes the option under these shares. `changes` is what takes
    other time in the program than in the plan; it `differs` if it has other calls or messages at all (an offered set may say more than
    anybody reads). `Alternatives.program_of` writes it out.
    """

    option: Option
    cost_s: float | None
    bound_s: float
    communication_s: float = 0.0
    compute_s: float = 0.0
    changes: tuple[Change, ...] = ()
    assignment: Assignment = ()
    differs: bool = True


@dataclass(frozen=True)
class Answer:
    """The plan's own option of a question and all others that some program can take, by true cost, then bound.

    `chosen.cost_s` is the plan's cost; `kept_s` that of the best program found that has the chosen option, which is less
    where the plan is not the best.
    """

    question: Question
    chosen: Alternative
    kept_s: float
    alternatives: tuple[Alternative, ...]


class Priced:
    """A program in canonical order. `communication` and `compute` are the seconds of its synchronous stages."""

    def __init__(self, assignment: Assignment, choice: Choice, scheduler: Scheduler, objective: str) -> None:
        self.assignment, self.choice, self.scheduler = assignment, choice, scheduler
        self.lines: Sequence[Line] = scheduler.lines(choice)
        stages = stages_of(self.lines)
        self.communication = float(sum(s.comm_s for s in stages))
        self.compute = float(sum(s.compute_s.max(initial=0.0) for s in stages))
        self.seconds = scheduler.seconds(choice, objective)

    @cached_property
    def fits(self) -> bool:
        """Looked at only where the seconds make it worth knowing."""
        return self.scheduler.fits(self.choice)


class Alternatives:
    """Other choices for a complete program on one axis, under its shares.

    `objective` is "sync" or "overlap". `cost_s` is the program's cost in canonical order, `written_s` in its own; `bound_s` a
    bound for its shares. Raises HapError: HAP604 for a mesh of two axes, HAP420 for another number of
    devices, HAP605 for lines that no searched program has.
    Cost: what the planner spends on one space; then per tensor a part of an elimination, and per option two schedules.
    """

    def __init__(self, program: Program, cluster: Cluster, objective: str = "sync", clock: Clock | None = None) -> None:
        self.program, self.cluster, self.objective = program, cluster, objective
        self.training = program.graph
        shares = settled(program, cluster)
        cost = evaluate(program, cluster)
        pairs = Pairs(self.training, cluster, objective, program.name, lambda: None)
        spaces = Spaces(self.training, cluster, objective, None, pairs, clock or Clock())
        self.written_s = cost.seconds(objective)
        # Ways to save memory are in the space where it is short, or where the program takes some.
        memory = bool((cost.memory_bytes * 2 > cost.capacity_bytes).any()) or makes_again(program)
        self.solved = spaces.solve(shares, spaces.heavy, memory)
        self.structure = self.solved.space.structure
        others = [spaces.solve(shares, spaces.heavy, memory, "sync")] if objective == "overlap" else []
        self.views = [_View(solved) for solved in (self.solved, *others)]
        self._priced: dict[Assignment, Priced] = {}
        self.plan = assignment_of(program, self.solved.space, self.solved.pricing.prices)

    @property
    def cost_s(self) -> float:
        return self.price(self.plan).seconds

    @property
    def bound_s(self) -> float:
        return self.solved.pricing.bound

    @property
    def exact(self) -> bool:
        """Are there tables, or only mixed-integer programs, one for each question?"""
        return self.views[0].marginals is not None

    def price(self, assignment: Assignment) -> Priced:
        """The true cost of an assignment."""
        found = self._priced.get(assignment)
        if found is None:
            choice = self.solved.space.choice(assignment)
            found = self._priced[assignment] = Priced(assignment, choice, self.solved.scheduler, self.objective)
        return found

    def program_of(self, alternative: Alternative) -> Program:
        """The program behind an alternative. Raises ValueError where none was found that fits into memory."""
        if alternative.cost_s is None:
            raise ValueError("no program with this option fits into memory")
        return self.solved.scheduler.program(self.price(alternative.assignment).choice, self.program.name)

    # -- one tensor ----------------------------------------------------------------------

    def of(self, tensor: str) -> list[Answer]:
        """All questions about a tensor, answered. Raises HAP612 for one that no program needs, KeyError for one that isn't there."""
        kind = self.training.tensors[tensor].kind
        found = questions(self.structure, tensor)
        if not found:
            what = f"nothing reads the {kind} '{tensor}', so no program loads it"
            raise error("HAP612", what, self.training.tensors[tensor].span, "leave it out of the model, or read it")
        return [self.answer(question) for question in found]

    def answer(self, question: Question) -> Answer:
        """What each option of a question would cost."""
        chosen = self.chosen(question)
        found = []
        kept = self.cost_s
        bound_s = self.cost_s
        for option in question.options:
            looked = self.look(question, option)
            if looked is None:
                continue
            if option is chosen:
                kept = min(kept, math.inf if looked.cost_s is None else looked.cost_s)
                bound_s = looked.bound_s
            else:
                found.append(looked)
        found.sort(key=lambda a: (math.inf if a.cost_s is None else a.cost_s, a.bound_s, a.option.values))
        return Answer(
            question, Alternative(chosen, self.cost_s, bound_s, assignment=self.plan, differs=False), kept, tuple(found)
        )

    def chosen(self, question: Question) -> Option:
        """The option that the plan takes."""
        return next(o for o in question.options if self.plan[question.variable] in o.values)

    def look(self, question: Question, option: Option, search: bool = True) -> Alternative | None:
        """The best program found that takes an option; None where none is allowed. Without `search` only by the tables at hand."""
        bound, found = self.least(question.variable, option.values)
        if not math.isfinite(bound):
            return None
        plan = self.price(self.plan)
        # Of other questions; the plan maybe.
        found += [a for a in self._priced if a[question.variable] in option.values]
        best = self.fastest(found)
        if best is None or not self.close(best, bound):
            # Where tables are too wide, HiGHS may not have come to any in its time.
            first = found[0][question.variable] if found else option.values[0]
            values = sorted(option.values, key=lambda v: v != first)[:NEARBY]
            near = (view.nearby.changed(self.plan, question.variable, v) for view in self.views for v in values)
            best = self.fastest([*found, *(a for a in near if a is not None)])
        if search and (best is None or not self.close(best, bound)):
            best, bound = self.search(question.variable, option.values, best, bound)
        if best is None:
            return Alternative(option, None, bound)
        changed = tuple(changes(self.training, plan.lines, best.lines)) if best is not plan else ()
        communication, compute = best.communication - plan.communication, best.compute - plan.compute
        differs = not same_work(plan.lines, best.lines)
        return Alternative(option, best.seconds, bound, communication, compute, changed, best.assignment, differs)

    def close(self, found: Priced, bound: float) -> bool:
        """Is a program as near to its bound as the plan, in the better of its orders, is to its own? Then it needs no second look."""
        plan = min(self.cost_s, self.written_s)
        return found.seconds - bound <= max(0.0, plan - self.bound_s) + TOLERANCE * plan

    def search(
        self, variable: int, values: Sequence[int], best: Priced | None, bound: float
    ) -> tuple[Priced | None, float]:
        """A few programs more in the order of the bound, where pricing them takes no time: the best, and a higher bound."""
        leaves = min(LEAVES, WORK // max(1, len(self.training.nodes)))
        if leaves < FEW or not self.exact:
            return best, bound
        best, pricing = self.repriced(self.only(self.views[0], variable, values), best)
        if pricing.elimination is None or not pricing.elimination.feasible:
            return best, bound
        known = None if best is None else (best.seconds, best.assignment)

        def price(assignment: Assignment) -> float:
            if self.structure.spare(assignment):
                return math.inf
            found = self.price(assignment)
            return found.seconds if found.fits else math.inf  # a bound that pays for memory says nothing of others

        result = best_first(pricing.elimination, price, limits=Limits(leaves=leaves), incumbent=known)
        if result.assignment is not None:
            best = self.price(result.assignment)
        return best, max(bound, pricing.bound, result.bound)

    def repriced(self, graph: FactorGraph, best: Priced | None) -> tuple[Priced | None, Pricing]:
        """Prices that are best for one option, and the best of the programs that were met on the way to them."""
        space, prices = self.solved.space, self.solved.pricing.prices
        ceilings = {k: 2 * float(prices[k]) for k in space.held} or None
        pricing = cutting_planes(graph, [list(space.timed)], ceilings, [prices])
        known = [] if best is None else [best.assignment]
        return self.fastest([*known, *pricing.minimisers]), pricing

    def only(self, view: _View, variable: int, values: Sequence[int]) -> FactorGraph:
        """A view's graph with one variable kept to some values."""
        graph = view.solved.space.graph.copy()
        mask = np.full(graph.sizes[variable], np.inf)
        mask[list(values)] = 0.0
        graph.factor((variable,), mask)
        return graph

    def least(self, variable: int, values: Sequence[int]) -> tuple[float, list[Assignment]]:
        """A bound for programs where the variable has one of some values, and what attains it (in each view)."""
        bound = math.inf
        found = []
        for view in self.views:
            if view.marginals is None:
                least, best = self.by_milp(view, variable, values)
            else:
                marginal = view.marginals.of(variable)
                value = min(values, key=lambda v: (marginal[v], v))
                least = float(marginal[value])
                best = view.marginals.best(variable, value) if math.isfinite(least) else None
            found += [best] if best is not None else []
            bound = least if view is self.views[0] else bound
        return bound, found

    def fastest(self, assignments: Iterable[Assignment]) -> Priced | None:
        """The fastest of some programs that fits into memory; of equal ones the plan, then the first."""
        options = dict.fromkeys(assignments)
        if self.plan in options:
            options = {self.plan: None, **options}
        priced = sorted((self.price(a) for a in options), key=lambda p: p.seconds)
        return next((p for p in priced if p.fits), None)

    def by_milp(self, view: _View, variable: int, values: Sequence[int]) -> tuple[float, Assignment | None]:
        """The same where the tables would be too wide."""
        return by_milp(self.only(view, variable, values), seconds=MILP_SECONDS)(view.solved.pricing.prices)


class _View:
    """A solved space and what its tables say."""

    def __init__(self, solved: Solved) -> None:
        self.solved = solved

    @cached_property
    def marginals(self) -> Marginals | None:
        elimination = self.solved.tables()
        return None if elimination is None else Marginals(elimination)

    @cached_property
    def nearby(self) -> Nearby:
        return Nearby(self.solved.space.graph, self.solved.pricing.prices)
