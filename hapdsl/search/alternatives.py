"""What every other choice for a tensor would cost, everything else chosen anew under the same shares.

For each value of a variable the elimination's tables know the least additive cost of a program that has it (`marginals`): a
bound. What such a program truly costs is another matter, so it is put into the canonical order and priced, and beside it
the plan itself with only the neighbourhood of the change chosen anew (`nearby`). The better of the two is reported with its
true cost: there may be a better one still, but none below the bound.

Everything is compared with the plan in canonical order, which for a plan that was searched is the plan itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.evaluate import evaluate, stages_of
from hapdsl.cost.pricing import Line
from hapdsl.graph.program import Program
from hapdsl.search.clock import Clock
from hapdsl.search.difference import Change, anywhere, differences
from hapdsl.search.marginals import Assignment, Marginals
from hapdsl.search.milp import by_milp
from hapdsl.search.nearby import Nearby
from hapdsl.search.pairs import Pairs
from hapdsl.search.questions import Option, Question, questions
from hapdsl.search.readback import assignment_of, settled
from hapdsl.search.schedule import Scheduler
from hapdsl.search.spaces import Solved, Spaces
from hapdsl.search.structure import Choice

NEARBY = 3  # values of one option that are tried beside the plan
MILP_SECONDS = 5.0  # for one choice, where tables would be too wide
TOLERANCE = 1e-9  # relative: bounds that are closer are equal


@dataclass(frozen=True)
class Alternative:
    """One option of a question, and the best program found that takes it.

    `cost_s` is its true cost (None: none was found that fits into memory), of which `communication_s` and `compute_s` in the
    synchronous stages; `bound_s` is below every program that takes the option under these shares. `changes` is what the
    program has otherwise than the plan; those of the plan itself are none.
    """

    option: Option
    cost_s: float | None
    bound_s: float
    communication_s: float = 0.0
    compute_s: float = 0.0
    changes: tuple[Change, ...] = ()

    @property
    def differs(self) -> bool:
        """Has its program other lines than the plan? An offered set may say more than anybody reads."""
        return self.cost_s is None or bool(self.changes)


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


@dataclass(frozen=True)
class Call:
    """The best alternative of some of the plan's lines: `questions` are those that one other program answers."""

    questions: tuple[Question, ...]
    chosen: Option
    alternative: Alternative


class _Priced:
    """A program in canonical order. `communication` and `compute` are the seconds of its synchronous stages."""

    def __init__(self, choice: Choice, scheduler: Scheduler, objective: str) -> None:
        self.choice, self.scheduler = choice, scheduler
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
    bound for its shares. Raises HapError: HAP604 for a mesh of two axes, HAP605 for lines that no searched program has.
    Cost: what the planner spends on one space; then per tensor a part of an elimination, and per option two schedules.
    """

    def __init__(self, program: Program, cluster: Cluster, objective: str = "sync", clock: Clock | None = None) -> None:
        self.program, self.cluster, self.objective = program, cluster, objective
        self.training = program.graph
        shares = settled(program, cluster)
        pairs = Pairs(self.training, cluster, objective, program.name, lambda: None)
        spaces = Spaces(self.training, cluster, objective, None, pairs, clock or Clock())
        cost = evaluate(program, cluster)
        self.written_s = cost.sync_s if objective == "sync" else cost.overlap_s
        memory = bool((cost.memory_bytes * 2 > cost.capacity_bytes).any())
        self.solved = spaces.solve(shares, spaces.heavy, memory)
        self.structure = self.solved.space.structure
        others = [spaces.solve(shares, spaces.heavy, memory, "sync")] if objective == "overlap" else []
        self.views = [_View(solved) for solved in (self.solved, *others)]
        self._priced: dict[Assignment, _Priced] = {}
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

    def price(self, assignment: Assignment) -> _Priced:
        """The true cost of an assignment."""
        found = self._priced.get(assignment)
        if found is None:
            choice = self.solved.space.choice(assignment)
            found = self._priced[assignment] = _Priced(choice, self.solved.scheduler, self.objective)
        return found

    # -- one tensor ----------------------------------------------------------------------

    def of(self, tensor: str) -> list[Answer]:
        """All questions about a tensor, answered; none where nothing needs it. Raises KeyError for one that isn't there."""
        self.training.tensors[tensor]
        return [self.answer(question) for question in questions(self.structure, tensor)]

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
        return Answer(question, Alternative(chosen, self.cost_s, bound_s), kept, tuple(found))

    def chosen(self, question: Question) -> Option:
        """The option that the plan takes."""
        return next(o for o in question.options if self.plan[question.variable] in o.values)

    def look(self, question: Question, option: Option) -> Alternative | None:
        """The best program found that takes an option; None where none is allowed."""
        bound, found = self.least(question.variable, option.values)
        if not math.isfinite(bound):
            return None
        plan = self.price(self.plan)
        if self.plan[question.variable] in option.values:
            found.append(self.plan)
        best = self.fastest(found)
        # A program that is as close to its bound as the plan is to its own needs no second look.
        if best is None or best.seconds - bound > (plan.seconds - self.bound_s) + TOLERANCE * plan.seconds:
            values = sorted(option.values, key=lambda v: v not in [a[question.variable] for a in found])[:NEARBY]
            changed = (view.nearby.changed(self.plan, question.variable, v) for view in self.views for v in values)
            best = self.fastest([*found, *(a for a in changed if a is not None)])
        if best is None:
            return Alternative(option, None, bound)
        changes = tuple(differences(self.training, plan.lines, best.lines)) if best is not plan else ()
        communication, compute = best.communication - plan.communication, best.compute - plan.compute
        return Alternative(option, best.seconds, bound, communication, compute, changes)

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

    def fastest(self, assignments: Iterable[Assignment]) -> _Priced | None:
        """The fastest of some programs that fits into memory; of equal ones the plan, then the first."""
        options = dict.fromkeys(assignments)
        if self.plan in options:
            options = {self.plan: None, **options}
        priced = sorted((self.price(a) for a in options), key=lambda p: p.seconds)
        return next((p for p in priced if p.fits), None)

    def by_milp(self, view: _View, variable: int, values: Sequence[int]) -> tuple[float, Assignment | None]:
        space = view.solved.space
        graph = space.graph.copy()
        mask = np.full(graph.sizes[variable], np.inf)
        mask[list(values)] = 0.0
        graph.factor((variable,), mask)
        return by_milp(graph, seconds=MILP_SECONDS)(view.solved.pricing.prices)

    # -- the whole plan ------------------------------------------------------------------

    def calls(self, count: int) -> tuple[list[Call], list[Call]]:
        """The lines whose best alternative costs least, and those where it costs most, `count` of each at most.

        Lines that one other program changes together are one entry, and so are turns of a repeat that are alike. They are
        chosen by the bound; of twice as many, the first by true cost are the answer. Nothing where there are no tables.
        """
        if not self.exact:
            return [], []
        families = sorted(self._families(), key=lambda f: f.bound)
        near = sorted(self._distinct(families, count + count // 2), key=_cost)[:count]
        far = sorted(self._distinct(reversed(families), count), key=_cost, reverse=True)
        return near, [call for call in far if not any(set(call.questions) & set(other.questions) for other in near)]

    def _families(self) -> list[_Family]:
        """One question of each family of questions that are alike, with the plan's own option last."""
        marginals = self.views[0].marginals
        assert marginals is not None
        found: dict[object, _Family] = {}
        for tensor in self.training.tensors:
            for question in questions(self.structure, tensor):
                chosen = self.chosen(question)
                marginal = marginals.of(question.variable)
                bounds = [(float(marginal[list(o.values)].min()), o) for o in question.options if o is not chosen]
                others = sorted(((b, o) for b, o in bounds if math.isfinite(b)), key=lambda other: (other[0], other[1].values))
                if others:
                    near = tuple((o.shown, round(b / (TOLERANCE * abs(self.bound_s) or 1.0))) for b, o in others)
                    key = (question.kind, anywhere(tensor), anywhere(question.of), chosen.shown, near)
                    found.setdefault(key, _Family(question, chosen, others))
        return list(found.values())

    def _distinct(self, families: Iterable[_Family], count: int) -> list[Call]:
        """The programs that answer the first questions, until there are `count`."""
        found: dict[object, Call] = {}
        for family in families:
            alternative = next((a for _, o in family.others if (a := self.look(family.question, o)) is not None and a.differs), None)
            if alternative is None:  # whatever it says, the lines are the same
                continue
            key = (alternative.cost_s, tuple((c.text, c.tensors) for c in alternative.changes))
            if key in found:
                first = found[key]
                found[key] = Call((*first.questions, family.question), first.chosen, first.alternative)
            elif len(found) < count:
                found[key] = Call((family.question,), family.chosen, alternative)
            else:
                break
        return list(found.values())


@dataclass(frozen=True)
class _Family:
    question: Question
    chosen: Option
    others: Sequence[tuple[float, Option]]  # by bound

    @property
    def bound(self) -> float:
        return self.others[0][0]


class _View:
    """A solved space and what its tables say."""

    def __init__(self, solved: Solved) -> None:
        self.solved = solved

    @cached_property
    def marginals(self) -> Marginals | None:
        elimination = self.solved.pricing.elimination
        return None if elimination is None else Marginals(elimination)

    @cached_property
    def nearby(self) -> Nearby:
        return Nearby(self.solved.space.graph, self.solved.pricing.prices)


def _cost(call: Call) -> float:
    return math.inf if call.alternative.cost_s is None else call.alternative.cost_s
