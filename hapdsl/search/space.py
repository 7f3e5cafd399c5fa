"""The choices of a program as a factor graph: a rule per operator call, an offered set per tensor.

Variables and their values:

- for each call, the rule it runs under;
- for each computed tensor that something reads, the offered set (`offers`);
- for each parameter, how it is held and what it is offered as, together;
- for each kind of message that the scheduler may share, whether one is sent at all.

All prices sit in unary and pairwise factors: the seconds of a call under a rule, per device (priced by the search);
whether an offered set provides what a rule reads; what it costs to make an offered set from what a rule gives. Data is loaded
in any placement for free; optimizer state is held as its update runs.

The sum of all factors, under any prices of the devices that add up to one, is never above the synchronous cost of
the scheduled program: a stage lasts as long as its slowest device, and collectives that may share a message are
priced by their bytes alone, at the share of one device, with the latency of one message of each kind on top, or each one's part of it.
Cost: O(calls) look-ups and O(kinds of calls and tensors × rules × offers) work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.pricing import Pricer
from hapdsl.graph.program import Layout
from hapdsl.graph.training import TrainingGraph
from hapdsl.search import footprint
from hapdsl.search.carry import MADE_AGAIN, NEVER
from hapdsl.search.choices import Choice
from hapdsl.search.conversions import Conversions
from hapdsl.search.drawn import instruction
from hapdsl.search.eliminate import MAX_CELLS
from hapdsl.search.inside import pricer_of
from hapdsl.search.messages import SHARED
from hapdsl.search.offers import Offer
from hapdsl.search.removal import Order
from hapdsl.search.restriction import Restriction
from hapdsl.search.serial import Pass, least_ways, passes
from hapdsl.search.structure import Structure
from hapdsl.theory.placements import P, Placement, R, S

Table = NDArray[np.float64]
FEW = 60  # calls; with fewer, A* closes more of the gap from prices of the devices alone
WIDER = 4  # times as wide as without: how wide tables may become for what readers wait for
Apart = tuple[bool, ...]  # for each pass, whether something counts in it


@dataclass(frozen=True, slots=True)
class Wait:
    """A reader takes tensor `name` as each of its rules says (`taken`, at all of its operands), from where it is `given`: `scope` are the
    variables of both. Those of one `kind` have the same price."""

    scope: tuple[int, int]
    name: str
    kind: int
    given: tuple[Placement, ...]
    taken: tuple[tuple[Placement, ...], ...]
    apart: Apart


class Space:
    """The choices of one training graph under given shares on one cluster (one mesh axis).

    `graph` is the factor graph, with the order to eliminate it in; `choice(assignment)` reads an assignment. Devices with equal speeds
    and shares are one component of the prices; `groups[k]` lists the devices of component k. Under the overlapped objective
    communication is one more component: a step takes at least as long as all collectives take together, and at least as long as any device
    computes and the part of these collectives (`lost`) for which it can't. For of x seconds in which a device computes beside a message of its own
    it does 1 - c seconds' work of the one and 1 - s of the other (its interference), of all others one second's work, and its messages follow one
    another; so w seconds' work and m of messages take w + m - (1 - c - s) x, and as x is m / (1 - s) at most, and w / (1 - c), w + m c / (1 - s)
    at least, and m + w s / (1 - c): all collectives and the part of computing (`late`) that they lose beside it. That holds for every order of a
    program, and however little a message and computing meet. A step takes at least any mean of these. `timed` are the components whose prices add up to one.

    With `memory`, each group has more components (`footprint`), `held`, whose prices are seconds per memory of the
    device. `structure` may be passed on from another space of the same graph and restriction; `like` is a space whose structure has the
    same kinds, with the same shares, cluster, objective and `memory`: what it has priced is priced.
    """

    def __init__(
        self,
        training: TrainingGraph,
        layout: Layout,
        cluster: Cluster,
        restriction: Restriction | None = None,
        objective: str = "sync",
        structure: Structure | None = None,
        memory: bool = False,
        graded: bool = False,
        like: Space | None = None,
        serial: bool = True,
    ) -> None:
        self.training, self.layout, self.cluster, self.objective = training, layout, cluster, objective
        self.structure = structure or Structure(training, restriction)
        self.pricer: Pricer = (
            pricer_of(training, layout, cluster, self.structure.numbers) if like is None else like.pricer
        )
        self.conversions = self.make_conversions()
        if like is not None:
            self.conversions.share(like.conversions)
        self.rules, self.offers, self.holds = self.structure.rules, self.structure.offers, self.structure.holds
        self.rule_variable, self.offer_variable = self.structure.rule_variable, self.structure.offer_variable
        self.groups = self.alike()
        self._seconds_about: tuple[float, ...] = ()
        self.passes = self._passes() if objective == "overlap" and serial else []
        compute, message = cluster.interferences[[g[0] for g in self.groups]].T
        lost = compute / np.maximum(1 - message, 1e-12)
        late = message / np.maximum(1 - compute, 1e-12)
        # Messages alone count where none is delayed, or where lines stand for what nodes do inside.
        delayed = objective == "overlap" and late.any() and cluster.within is None
        self.late = late if delayed else np.zeros(1)
        self.lost = np.array([*lost.tolist() * (1 + len(self.passes)), *np.ones(len(self.late))])
        self.timed = range(len(self.lost) if objective == "overlap" else len(self.groups))
        self.held = range(len(self.timed), len(self.timed) + footprint.MOMENTS * len(self.groups) * memory)
        self.graph = self.structure.base.copy()
        self.graded = graded
        self._tables: dict[object, Table] = {} if like is None else like._tables
        self._price()

    # What a subclass prices otherwise.

    def make_conversions(self) -> Conversions:
        return Conversions(self.structure, self.layout, self.cluster, self.pricer)

    def alike(self) -> list[list[int]]:
        """Devices of one kind that hold the same share of every class, grouped."""
        kind = {d: k for k, kind in enumerate(self.cluster.kinds()) for d in kind}
        found: dict[tuple[object, ...], list[int]] = {}
        for device in range(len(self.cluster)):
            key = (kind[device], *(int(s[(0,)][device]) for s in self.layout.shares.values()))
            found.setdefault(key, []).append(device)
        return list(found.values())

    def compute(self, k: int) -> Table:
        """Seconds of call k, float array [groups, rules]."""
        node = self.training.nodes[k]
        first = [group[0] for group in self.groups]
        seconds = np.stack([self.pricer.price(instruction(node, r)).seconds[first] for r in self.rules[k]], axis=1)
        return seconds * (1.0 + np.array(self.structure.twice[k]))

    # -- factors ---------------------------------------------------------------------

    def _price(self) -> None:
        structure, graph = self.structure, self.graph
        calls = [
            ((v,), (kind, self._taking(k)))
            for k, (v, kind) in enumerate(zip(structure.rule_variable, structure.node_kind, strict=True))
        ]
        graph.spread(calls, self._compute_table, priced=True)
        sites = [(m.scope, (m.kind, self._apart(m.name))) for m in structure.moves]
        graph.spread(sites, self._move_table, self.objective == "overlap")
        for kind, flag in structure.flags.items():
            names = structure.buckets.groups[SHARED[kind][0]]
            apart = tuple(names <= p.behind for p in self.passes)
            self._communicate((flag,), self._seconds(np.array([0.0, self.conversions.split.floor(kind)]), apart))
        graph.order = (self._wait() if self.passes else None) or structure.order
        for scope, table in footprint.tables(self) if self.held else ():
            graph.priced_factor(scope, self._wide(table, self.held))

    # Which passes something counts in: what tells tables of one kind apart.

    def _taking(self, k: int) -> Apart:
        return tuple(k in p.calls for p in self.passes)

    def _apart(self, name: str) -> Apart:
        return tuple(name in p.behind for p in self.passes)

    def _passes(self) -> list[Pass]:
        """What messages may be apart from; nothing where calls are few or may run twice, or lines stand for what nodes do inside."""
        structure = self.structure
        few = len(self.training.nodes) < FEW
        if few or structure.again is not NEVER or self.cluster.within is not None:
            return []
        # By the first rule, the replicated one: that is the same for all shares and restrictions.
        about: dict[int, float] = {}
        for kind, node in zip(structure.node_kind, self.training.nodes, strict=True):
            if kind not in about:
                about[kind] = float(self.pricer.price(instruction(node, node.rules[0])).seconds.mean())
        self._seconds_about = tuple(about[kind] for kind in structure.node_kind)
        if self._seconds_about not in structure.passes:
            structure.passes[self._seconds_about] = passes(self.training, self._seconds_about)
        return structure.passes[self._seconds_about]

    def _wait(self) -> Order | None:
        """Add what readers wait for, as long as that leaves tables narrow. It ties variables that nothing else does, so it takes another order,
        which is returned; None where nothing was added."""
        structure, graph, waits = self.structure, self.graph, self._waits()
        order = structure.wider.get(self._seconds_about)
        if order is None:
            tied = graph.copy()
            for w in waits:
                tied.factor(w.scope, np.zeros([graph.sizes[v] for v in w.scope]))
            order = structure.wider[self._seconds_about] = structure.narrowest(tied)
        most = min(WIDER * structure.order.peak, MAX_CELLS)
        if order.peak <= most and order.total <= WIDER * structure.order.total:
            graph.spread([(w.scope, w.kind) for w in waits], lambda n: self._wait_table(waits[n]), priced=True)
            return order
        return None

    def _compute_table(self, k: int) -> Table:
        taking = self._taking(k)
        key = ("compute", self.structure.node_kind[k], taking)
        if key not in self._tables:
            seconds = self.compute(k)
            parts = [seconds, *(seconds * t for t in taking)]
            if self.late.any():
                parts.append(seconds * self.late[:, None])
            whole = np.concatenate(parts)
            self._tables[key] = self._wide(whole, range(len(whole)))
        return self._tables[key]

    def _move_table(self, n: int) -> Table:
        """Seconds of the n-th of the structure's moves, over its scope."""
        move = self.structure.moves[n]
        apart = self._apart(move.name)
        key = (move.kind, apart)
        if key not in self._tables:
            name, given = move.name, move.given
            if name in self.offers:
                table = self._communication(name, given, self.offers[name], self._times(name), apart)
            elif name in self.holds:
                routes = [self.conversions.route(name, h, o) for h, o in self.holds[name]]
                once = np.array([np.inf if r is None else r[0] for r in routes])
                table = self._seconds(self._times(name) * once, apart)
            else:
                table = self._communication(name, given, [(h,) for h, _ in self.holds[move.replaces]], apart=apart)
            self._tables[key] = table
        return self._tables[key]

    def _waits(self) -> list[Wait]:
        """Where a reader waits for messages that are apart from a pass."""
        structure = self.structure
        found = []
        for name in structure.offer_variable:
            for reader in sorted({p.between[name] for p in self.passes if name in p.between}):
                apart = tuple(p.between.get(name) == reader for p in self.passes)
                places = structure.places(reader, name)
                taken = tuple(tuple(r.inputs[i] for i in places) for r in self.rules[reader])
                if name in self.holds:
                    first, given = self.offer_variable[name], tuple(h for h, _ in self.holds[name])
                else:
                    k, j = structure.maker(name)
                    first, given = self.rule_variable[k], structure.given(k, j)
                kind = structure.number(("waits", structure.tensor_kind[name], given, taken, apart))
                found.append(Wait((first, self.rule_variable[reader]), name, kind, given, taken, apart))
        return found

    def _wait_table(self, wait: Wait) -> Table:
        """What a reader waits for at least, beside what the moves say of a pass: over the placements that are given, and those that are taken."""
        key = ("waits", wait.kind)
        if key not in self._tables:
            places = (R, P, *map(S, self.training.shardable(wait.name)))
            ways = least_ways(places, lambda p, q: self.conversions.seconds(wait.name, p, q))
            at = {p: i for i, p in enumerate(places)}
            seconds = np.array([[max(ways[at[p], at[q]] for q in each) for each in wait.taken] for p in wait.given])
            seconds[np.isinf(seconds)] = 0.0  # no way at all: excluded elsewhere
            free = 1.0 - self.lost[: len(self.groups)]
            parts = np.concatenate(
                [np.zeros(len(self.groups)), *(free * a for a in wait.apart), np.zeros(len(self.late))]
            )
            self._tables[key] = self._wide(np.multiply.outer(parts, seconds), self.timed)
        return self._tables[key]

    def _wide(self, table: Table, components: range) -> Table:
        """A table of some components, with zeros for the others; read-only."""
        count = len(self.timed) + len(self.held)
        whole = np.zeros((count, *table.shape[1:]))
        whole[components.start : components.stop] = table
        whole.flags.writeable = False
        return whole

    def _seconds(self, table: Table, apart: Apart = ()) -> Table:
        """Seconds of collectives add to the synchronous cost. Under overlap they are a component of their own, and take from each
        device's time the part that is lost to its computing meanwhile, all of it in passes that they are `apart` from; what can't be
        made (inf) can't be made for any of them."""
        if self.objective == "overlap":
            able = np.isfinite(table)
            lost = self.lost.copy()
            for n, whole in enumerate(apart, 1):
                if whole:
                    lost[n * len(self.groups) : (n + 1) * len(self.groups)] = 1.0
            parts = np.multiply.outer(lost, np.where(able, table, 0.0))
            return self._wide(np.where(able, parts, np.inf), self.timed)
        table.flags.writeable = False
        return table

    def _communicate(self, scope: tuple[int, ...], table: Table) -> None:
        if self.objective == "sync":
            self.graph.factor(scope, table)
        else:
            self.graph.priced_factor(scope, table)

    def _communication(
        self,
        name: str,
        given: Sequence[Placement],
        offered: Sequence[Offer],
        times: Table | float = 1.0,
        apart: Apart = (),
    ) -> Table:
        """Seconds to make each offered set from each given placement, `times` over; inf where there is no way."""
        routes = [[self.conversions.route(name, p, o) for o in offered] for p in given]
        return self._seconds(times * np.array([[np.inf if r is None else r[0] for r in row] for row in routes]), apart)

    def _times(self, name: str) -> Table | float:
        """How often each offered set is made: in both passes where it isn't kept."""
        words = self.structure.carries.get(name)
        return 1.0 if words is None else np.array([1.0 + (w in MADE_AGAIN) for w in words])

    # -- reading an assignment ----------------------------------------------------------

    def choice(self, assignment: Sequence[int]) -> Choice:
        """The choices that an assignment stands for."""
        return self.structure.choice(tuple(assignment))
