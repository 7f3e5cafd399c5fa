"""The synthesizer: programs and shares in turn, from several starts, until a pair repeats (paper §3, eqs 1 and 2).

Given shares, the space's cutting planes and a few of its best leaves propose programs; given a program, the share MILP and
one-unit moves propose shares. Every proposal is priced by the exact evaluator, and the pair that is reported was priced together. At
the end A* proves how good the program is for its shares; then programs without some kind of message (`without`) and programs near to the best
ones (`climb`) are tried. Where that turns up a better one, the two alternate once more.

Cost: per start 2 to 8 eliminations and as many schedules; per round the same, and a small MILP. A* over many leaves runs once per
proof, as it seldom finds what the cutting planes' own minimisers don't.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.diagnostics import error
from hapdsl.search.anyshares import bound_any_shares
from hapdsl.search.around import Around
from hapdsl.search.baselines import baselines as find_baselines
from hapdsl.search.choices import Choice
from hapdsl.search.clock import Clock
from hapdsl.search.listen import listen
from hapdsl.search.pairs import Pair, Pairs, shares_key
from hapdsl.search.plan import BASELINES, Candidate, Plan, Progress, Report
from hapdsl.search.reorder import NO_WISHES, Written, reordered, seconds_in_order, without_unread
from hapdsl.search.reshare import reshare
from hapdsl.search.restriction import Restriction
from hapdsl.search.shares import Shares, layout_of, shares_of
from hapdsl.search.spaces import Solved, Spaces
from hapdsl.search.starts import starts
from hapdsl.search.without import do_without

ROUNDS = 4
PROOFS = 3
KEPT_STARTS = 2  # starts that go on after their first program
LEAVES = 24  # true evaluations per round at most, where the graph is small
ROUND_WORK = 6_000  # calls to schedule per round: deep models get fewer leaves, or none
PROOF_LEAVES = 300
PROOF_WORK = 24_000
ORDER_WORK = 2_500  # calls x changes of a program that are tried near to the best one in its best order
FINAL_WORK = 20_000  # calls x devices that are put into a better order in the end; one program in any case
FINALISTS = 3  # of these in the best order that is found
ALIKE = 0.1  # of the gap that is asked for: pairs that differ by less are as good as each other
SCOPE = "these shares: every rule per operator, every offered set of two, in canonical order"
MEMORY = ", within memory"


def plan(
    training: TrainingGraph,
    cluster: Cluster,
    *,
    objective: str = "sync",
    gap: float = 0.01,
    time_limit: float | None = None,
    progress: Report | None = None,
    cancelled: Callable[[], bool] | None = None,
    baselines: bool | Mapping[str, Candidate | None] = True,
    restriction: Restriction | None = None,
    fixed: Shares | None = None,
    name: str = "plan",
    written: Written | None = None,
) -> Plan:
    """The best program and shares found for `training` on `cluster`.

    `objective` is "sync" (the paper's stages) or "overlap". The search stops when the program is within `gap` of its bound for its
    shares, after `time_limit` seconds, or when `cancelled()`; it always answers with the best so far. `restriction` and `fixed` keep to a part
    of the space and to given shares; instructions that are `written` keep their order among each other. `baselines` tells whether the plan is put
    beside them, or hands over what `hapdsl.search.baselines` found already: then no baseline is below the plan. Raises HapError: HAP601 where no program fits into memory, HAP602 where none exists.
    """
    if not training.nodes:
        raise error(
            "HAP602",
            f"'{training.model}' calls no operator: there is nothing to plan",
            help="compute something",
            status=1,
        )
    clock = Clock(time_limit, cancelled)
    return _Planner(training, cluster, objective, gap, clock, progress, restriction, fixed or {}, name, written).run(
        baselines
    )


class _Planner:
    def __init__(
        self,
        training: TrainingGraph,
        cluster: Cluster,
        objective: str,
        gap: float,
        clock: Clock,
        progress: Report | None,
        restriction: Restriction | None,
        fixed: Shares,
        name: str,
        written: Written | None,
    ) -> None:
        self.training, self.cluster, self.objective, self.gap = training, cluster, objective, gap
        self.written = written
        self.shown: list[tuple[Pair, Candidate]] = []  # baselines, as pairs in canonical order and in their best order
        self.settled: list[Pair] = []  # the best program found under each of the shares that were looked at
        self.clock, self.progress, self.restriction, self.fixed = clock, progress, restriction, fixed
        self.pairs = Pairs(training, cluster, objective, name, lambda: self.say("better plan"))
        self.spaces = Spaces(training, cluster, objective, restriction, self.pairs, clock)
        self.around = Around(self.spaces, self.under)

    @property
    def best(self) -> Pair | None:
        return self.pairs.best

    def run(self, baselines: bool | Mapping[str, Candidate | None]) -> Plan:
        self.say("programs")
        firsts: list[Pair] = []
        for number, shares in enumerate(starts(self.training, self.cluster, self.fixed)):
            if number and (self.clock.late() or (self.spaces.paid and len(firsts) >= KEPT_STARTS)):
                break  # with a price on memory, a start costs ten times as much
            if (pair := self.programs(shares)) is not None:
                firsts.append(pair)
        firsts.sort(key=lambda first: first.seconds)
        for pair in firsts[:KEPT_STARTS]:
            if self.out_of_time():
                break
            self.alternate(pair)
        found: Mapping[str, Candidate | None] = {} if baselines else dict.fromkeys(BASELINES)
        if not isinstance(baselines, bool):
            found = baselines
        elif baselines and not self.out_of_time():
            self.say("baselines")
            self.spaces.let_go(self.best)
            found = find_baselines(self.training, self.cluster, self.objective, self.spaces.drawn)
        self.better_baseline(found)
        if self.best is None:
            raise self.pairs.nothing([], self.clock.late())
        best, proof = self.proven(self.best)
        self.say("order", proof)
        best, written, proof = self.ordered(best, proof)
        self.say("bound for all shares", proof)
        any_shares = None
        if self.restriction is None and self.objective == "sync" and not self.out_of_time():
            layout = layout_of(best.shares, len(self.cluster))
            self.spaces.make_room()  # that one's tables are as large as one space's
            any_shares = bound_any_shares(self.training, layout, self.cluster, self.spaces.structure(self.spaces.heavy))
        restricted = f", {self.restriction.scope}" if self.restriction is not None and self.restriction.scope else ""
        return Plan(
            program=written.program,
            cost=written.cost,
            objective=self.objective,
            # What no shares are below, these aren't either.
            bound_s=min(max(proof, any_shares or 0.0), written.seconds(self.objective)),
            bound_scope=SCOPE + (MEMORY if self.spaces.paid else "") + restricted,
            bound_any_shares_s=any_shares,
            search_s=self.clock.spent(),
            nodes=self.spaces.nodes,
            baselines=found,
            written=self.written,
        )

    # -- the loop --------------------------------------------------------------------

    def better_baseline(self, found: Mapping[str, Candidate | None]) -> None:
        """A search that was cut short may have missed what a baseline shows: go on from there."""
        for candidate in found.values():
            if self.restriction is not None or self.fixed or candidate is None or candidate.choice is None:
                continue
            pair = self.under(candidate.choice, shares_of(candidate.program.layout))
            self.shown.append((pair, candidate))
            if self.best is None or pair.seconds < self.best.seconds:
                if (fastest := self.pairs.fastest([pair])) is not None:
                    self.alternate(fastest)

    def alternate(self, pair: Pair) -> None:
        """Shares for the program, a program for the shares, until a pair repeats; nothing to do where all shares are given."""
        if all(c in self.fixed for c in self.training.classes):
            return
        seen = {pair.key()}
        for _ in range(ROUNDS):
            self.say("shares")
            shares = self.shares(pair)
            if shares_key(shares) == shares_key(pair.shares) or self.out_of_time():
                return
            self.say("programs")
            following = self.programs(shares, pair)
            if following is None or following.key() in seen:
                return
            pair = following
            seen.add(pair.key())

    def programs(self, shares: Shares, known: Pair | None = None) -> Pair | None:
        """The best program under these shares among the cutting planes', the first leaves, and the one at hand.

        Where none of them fits into memory, once more with a price on memory.
        """
        spaces, heavy = self.spaces, self.spaces.heavy
        for memory in (False, True):
            if self.out_of_time():
                return None
            solved = spaces.solve(shares, heavy, memory)
            found = [spaces.pair(solved, a) for a in solved.pricing.minimisers]
            if spaces.once != heavy and self.apart(found, solved):
                solved = max(solved, spaces.solve(shares, spaces.once, memory), key=lambda s: s.pricing.bound)
                found += [spaces.pair(solved, a) for a in solved.pricing.minimisers]
            if memory:
                found += spaces.frugal(solved)
            if self.objective == "overlap":
                # This bound sees no order; what is short one thing after another often is good.
                other = spaces.solve(shares, heavy, memory, "sync")
                found += [self.under(spaces.pair(other, a).choice, shares) for a in other.pricing.minimisers]
            if known is not None:
                found.append(self.under(known.choice, shares))
            if spaces.whole is not None and self.apart(found, solved):
                found.append(self.under(spaces.whole, shares))
            best = self.pairs.fastest(found)
            leaves = min(LEAVES, ROUND_WORK // len(self.training.nodes))
            if leaves > 3 or best is None:
                better, _ = spaces.search(solved, max(3, leaves), self.gap / 4, best)
                best = better if better is not None and (best is None or better.seconds < best.seconds) else best
            if best is not None or self.pairs.smallest_need is None or not np.isfinite(solved.pricing.bound):
                self.settled += [best] if best is not None else []
                return best
        return None

    def apart(self, found: list[Pair], solved: Solved) -> bool:
        """Are programs farther from their space's bound than the gap that is asked for? None at all are."""
        least = min((p.seconds for p in found), default=np.inf)
        return not found or bool(least - solved.pricing.bound > self.gap * least)

    def shares(self, pair: Pair) -> Shares:
        return reshare(pair, lambda shares: self.under(pair.choice, shares), self.pairs, self.fixed)

    def under(self, choice: Choice, shares: Shares) -> Pair:
        return self.pairs.under(choice, shares, self.spaces.structure(self.spaces.heavy))

    # -- the proof -------------------------------------------------------------------

    def proven(self, best: Pair) -> tuple[Pair, float]:
        """The best pair with a bound for its shares: close the gap by A*, look around, and go on from what that finds."""
        tried: set[object] = set()
        for turn in range(PROOFS):
            bound, shares = max(self.prove(best), listen(self.spaces, best)), shares_key(best.shares)
            if shares not in tried:
                do_without(self.spaces, self.best or best)
                tried.add(shares)
            self.around.climb(self.settled)
            found = self.pairs.best or best
            if found is not best and turn < PROOFS - 1 and not self.out_of_time():
                self.alternate(found)
            last, best = best, self.pairs.best or best
            if best is last:
                break
        if shares_key(best.shares) != shares:
            bound = self.prove(best)
        return best, bound

    def prove(self, pair: Pair) -> float:
        """A bound for the shares of a pair; better programs found on the way are kept.

        First with the tables of the rounds; the latency of every kind of message counts where that isn't enough.
        """
        bound, leaves = 0.0, max(3, min(PROOF_LEAVES, PROOF_WORK // len(self.training.nodes)))
        for messages in self.spaces.ever_more():
            if bound and not self.spaces.worth(messages, pair.seconds * (1 - self.gap) - bound):
                continue
            self.say("proof", bound)
            solved = self.spaces.solve(pair.shares, messages, self.spaces.paid)
            bound = max(bound, solved.pricing.bound)
            if pair.seconds - bound <= self.gap * pair.seconds or self.clock.late():
                break
            better, proof = self.spaces.search(solved, leaves, self.gap, pair)
            bound, pair = max(bound, proof), better or pair
        return min(bound, pair.seconds)

    # -- the order -------------------------------------------------------------------

    def ordered(self, best: Pair, bound: float) -> tuple[Pair, Candidate, float]:
        """The best of the fastest pairs once each is in its best order, or of those near to it, and a bound for its shares."""

        def price(pair: Pair) -> float:
            scheduler = pair.scheduler
            return seconds_in_order(scheduler.lines(pair.choice), scheduler.pricer, self.objective, self.written)

        count = max(1, FINAL_WORK // (len(self.training.nodes) * len(self.cluster)))
        first, *others = self.pairs.finalists([*(p for p, _ in self.shown), *self.spaces.minimisers()], count)
        found = first, self.in_order(first)
        for pair in sorted(others, key=price)[:FINALISTS]:
            if self.clock.late():
                break
            found = self.faster(found, pair)
        for pair, shown in self.shown:
            if shown.seconds(self.objective) < found[1].seconds(self.objective) * (1 - 1e-12):
                found = pair, replace(shown, program=replace(shown.program, name=self.pairs.name))
        seconds = found[1].seconds(self.objective)
        if seconds - bound > self.gap * seconds or self.objective == "overlap":  # what overlaps is decided by the order
            found = self.faster(found, self.around.near(found[0], seconds, price, ORDER_WORK, None))
        if shares_key(found[0].shares) != shares_key(best.shares):
            bound = self.prove(found[0])
        return self.surer(found, bound)

    def surer(self, found: tuple[Pair, Candidate], bound: float) -> tuple[Pair, Candidate, float]:
        """The pair itself, or where its gap stays open one that is as good (ALIKE) under shares whose bound is known to close it: if baselines
        are known, so that it isn't above them either.

        Shares that hardly matter to a program may still leave much open to others, as when a small device has most of a class that is read once.
        """
        seconds = found[1].seconds(self.objective)
        most = min([seconds * (1 + ALIKE * self.gap), *(c.seconds(self.objective) for _, c in self.shown)])
        if not self.shown or seconds - bound <= self.gap * seconds:
            return *found, bound
        settled = {p.key(): p for p in sorted(self.settled, key=lambda p: p.seconds) if p.fits}
        sure = [p for p in settled.values() if (1 - self.gap) * p.seconds <= self.spaces.bound(p.shares)]
        for pair in sure[:FINALISTS]:
            if self.clock.late():
                break
            other, known = self.in_order(pair), self.spaces.bound(pair.shares)
            taken = other.seconds(self.objective)
            if taken <= most and (1 - self.gap) * taken <= known:
                return pair, other, known
        return *found, bound

    def faster(self, found: tuple[Pair, Candidate], pair: Pair) -> tuple[Pair, Candidate]:
        """The faster of a pair in its best order and another one; the first where they are equal."""
        if pair is found[0]:
            return found
        other = self.in_order(pair)
        return (
            (pair, other) if other.seconds(self.objective) < found[1].seconds(self.objective) * (1 - 1e-12) else found
        )

    def in_order(self, pair: Pair) -> Candidate:
        """A pair's program in the best order found."""
        candidate, pricer = pair.candidate(), pair.scheduler.pricer
        wishes = self.restriction.wishes if self.restriction is not None else NO_WISHES
        program = without_unread(candidate.program, wishes)
        program = reordered(program, pricer, self.objective, self.written)
        if program is candidate.program:
            return candidate
        return replace(candidate, program=program, cost=evaluate(program, self.cluster, pricer))

    # -- time ------------------------------------------------------------------------

    def out_of_time(self) -> bool:
        """Time is up, and there is something to answer with."""
        return self.best is not None and self.clock.late()

    def say(self, doing: str, bound: float | None = None) -> None:
        if self.progress is not None:
            best = self.best
            self.progress(Progress(doing, best.seconds if best else None, bound, best.candidate if best else None))
