"""A whole plan at a glance: the lines whose best alternative costs least, and those where it costs most."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from hapdsl.cost.comparison import anywhere
from hapdsl.search.alternatives import TOLERANCE, Alternative, Alternatives
from hapdsl.search.questions import Option, Question, questions

LOOKS = 4  # options that are priced, for each line that is to be shown as a dear one,
NEAR_LOOKS = 8  # and for each that is to be shown as a close call


@dataclass(frozen=True)
class Call:
    """The best alternative of some of the plan's lines.

    `questions` are those that one other program answers, or that alternatives answer which read and cost the same.
    """

    questions: tuple[Question, ...]
    chosen: Option
    alternative: Alternative

    @property
    def cost_s(self) -> float:
        """Of the alternative's program; inf where none fits into memory."""
        return math.inf if self.alternative.cost_s is None else self.alternative.cost_s


@dataclass(frozen=True)
class _Family:
    """A question that stands for all that are alike, in other turns of a repeat say; the other options by bound."""

    question: Question
    chosen: Option
    others: Sequence[tuple[float, Option]]


def close_calls(known: Alternatives, count: int) -> tuple[list[Call], list[Call]]:
    """The lines whose best alternative costs least, and those where it costs most, `count` of each at most.

    They are looked at in the order of the bound; close ones until no bound that is left is below what they cost in truth, or many have been looked
    at. Nothing where there are no tables, and on one device, where all choices come to the same. Cost: some eliminations for the marginals, and two schedules per option looked at.
    """
    if not known.exact or len(known.cluster) == 1:
        return [], []
    families = _families(known)
    near = _nearest(known, families, count)
    far = sorted(_dearest(known, families, count), key=lambda c: c.cost_s, reverse=True)
    seen = {q for call in near for q in call.questions}
    return near, [call for call in far if not seen & set(call.questions)]


def _families(known: Alternatives) -> list[_Family]:
    marginals = known.views[0].marginals
    assert marginals is not None
    found: dict[object, _Family] = {}
    for tensor in known.training.tensors:
        for question in questions(known.structure, tensor):
            chosen = known.chosen(question)
            marginal = marginals.of(question.variable)
            bounds = [(float(marginal[list(o.values)].min()), o) for o in question.options if o is not chosen]
            others = sorted(
                ((b, o) for b, o in bounds if math.isfinite(b)), key=lambda other: (other[0], other[1].values)
            )
            if others:
                near = tuple((o.shown, round(b / (TOLERANCE * abs(known.bound_s) or 1.0))) for b, o in others)
                key = (question.kind, anywhere(tensor), anywhere(question.of), chosen.shown, near)
                found.setdefault(key, _Family(question, chosen, others))
    return list(found.values())


def _nearest(known: Alternatives, families: Sequence[_Family], count: int) -> list[Call]:
    """The best alternatives of the families in which these cost least, from the cheapest, `count` at most."""
    heap = [(family.others[0][0], k, 0) for k, family in enumerate(families)]
    heapq.heapify(heap)
    grain = TOLERANCE * known.cost_s or 1.0
    best: dict[int, Alternative] = {}
    looks = NEAR_LOOKS * count

    def cost(k: int) -> float:
        found = best[k].cost_s if k in best else None
        return math.inf if found is None else found

    while heap and looks:
        bound, k, rank = heapq.heappop(heap)
        programs = sorted({round(cost(j) / grain) for j in best if cost(j) < math.inf})
        if len(programs) >= count and programs[count - 1] * grain <= bound:
            break
        if cost(k) <= bound:
            continue  # none of the family's other options is better
        looks -= 1
        alternative = known.look(families[k].question, families[k].others[rank][1], search=False)
        assert alternative is not None
        if alternative.differs and (alternative.cost_s or math.inf) < cost(k):
            best[k] = alternative
        if rank + 1 < len(families[k].others):
            heapq.heappush(heap, (families[k].others[rank + 1][0], k, rank + 1))
    found = _Found(grain)
    for k in sorted(best, key=lambda k: (cost(k), families[k].others[0][0], k)):
        found.add(families[k], best[k])
    return found.calls[:count]


def _dearest(known: Alternatives, families: Sequence[_Family], count: int) -> list[Call]:
    """The best alternatives of the families in which these cost most by their bounds, until there are `count`.

    An option whose program has the plan's own lines is no alternative; the family's next one stands for it. Such options
    cost no more than the plan by the tables, so families stand in the order of those that do.
    """
    plan = known.solved.space.graph.cost(known.plan, known.solved.pricing.prices)
    tell = plan + TOLERANCE * abs(plan)
    heap: list[tuple[float, int, int]] = []
    for k, family in enumerate(families):
        dearer = next((bound for bound, _ in family.others if bound > tell), family.others[0][0])
        heap.append((-dearer, k, 0))
    heapq.heapify(heap)
    found = _Found(TOLERANCE * known.cost_s)
    looks = LOOKS * count
    while heap and looks and len(found.calls) < count:
        looks -= 1
        at, k, rank = heapq.heappop(heap)
        family = families[k]
        alternative = known.look(family.question, family.others[rank][1], search=False)
        assert alternative is not None
        if alternative.differs:
            found.add(family, alternative)
        elif rank + 1 < len(family.others):
            heapq.heappush(heap, (at, k, rank + 1))
    return found.calls


class _Found:
    """Alternatives merged where they are one program, or read and cost the same. `grain` is a difference of cost that is none."""

    def __init__(self, grain: float) -> None:
        self.calls: list[Call] = []
        self.grain = grain or 1.0
        self._place: dict[object, int] = {}

    def add(self, family: _Family, alternative: Alternative) -> None:
        cost = None if alternative.cost_s is None else round(alternative.cost_s / self.grain)
        program = (cost, tuple((c.text, c.tensors) for c in alternative.changes) or alternative.assignment)
        reads = (cost, family.question.kind, family.chosen.shown, alternative.option.shown)
        place = self._place.get(program, self._place.get(reads))
        if place is None:
            place = len(self.calls)
            self.calls.append(Call((family.question,), family.chosen, alternative))
        else:
            first = self.calls[place]
            self.calls[place] = Call((*first.questions, family.question), first.chosen, first.alternative)
        self._place[program] = self._place[reads] = place
