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
priced by their bytes alone, at the share of one device, with the latency of one message of each kind on top.
Cost: O(calls) look-ups and O(kinds of calls and tensors × rules × offers) work.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.pricing import Pricer
from hapdsl.graph.program import Layout
from hapdsl.graph.training import TrainingGraph
from hapdsl.search import footprint
from hapdsl.search.carry import MADE_AGAIN
from hapdsl.search.conversions import Conversions
from hapdsl.search.drawn import instruction
from hapdsl.search.inside import pricer_of
from hapdsl.search.offers import Offer
from hapdsl.search.restriction import Restriction
from hapdsl.search.structure import Choice, Structure
from hapdsl.theory.placements import Placement

Table = NDArray[np.float64]


class Space:
    """The choices of one training graph under given shares on one cluster (one mesh axis).

    `graph` is the factor graph; `choice(assignment)` reads an assignment. Devices with equal speeds and shares
    are one component of the prices; `groups[k]` lists the devices of component k. Under the overlapped objective
    communication is one more component: a step takes at least as long as all collectives take together; and at least as long as any device
    computes and the part of these collectives (`lost`, its interference) for which it can't. For a device of interference c does at
    most 1 - c seconds' work in a second in which a message of its own is on its way, one second's otherwise, and its messages follow one another; so
    of T seconds, m of them with a message, it computes T - c m at most. That holds for every order of a program, and however little a message and
    computing meet. A step takes at least any mean of these. `timed` are the components whose prices add up to one.

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
        self.timed = range(len(self.groups) + (objective == "overlap"))
        self.lost = np.array([*(cluster.interferences[g[0]] for g in self.groups), 1.0])
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
        calls = [((v,), kind) for v, kind in zip(structure.rule_variable, structure.node_kind, strict=True)]
        graph.spread(calls, self._compute_table, priced=True)
        sites = [(m.scope, m.kind) for m in structure.moves]
        graph.spread(sites, self._move_table, self.objective == "overlap")
        for kind, flag in structure.flags.items():
            self._communicate((flag,), self._seconds(np.array([0.0, self.conversions.split.floor(kind)])))
        for scope, table in footprint.tables(self) if self.held else ():
            graph.priced_factor(scope, self._wide(table, self.held))

    def _compute_table(self, k: int) -> Table:
        key = ("compute", self.structure.node_kind[k])
        if key not in self._tables:
            self._tables[key] = self._wide(self.compute(k), range(len(self.groups)))
        return self._tables[key]

    def _move_table(self, n: int) -> Table:
        """Seconds of the n-th of the structure's moves, over its scope."""
        move = self.structure.moves[n]
        if move.kind not in self._tables:
            name, given = move.name, move.given
            if name in self.offers:
                table = self._communication(name, given, self.offers[name], self._times(name))
            elif name in self.holds:
                routes = [self.conversions.route(name, h, o) for h, o in self.holds[name]]
                once = np.array([np.inf if r is None else r[0] for r in routes])
                table = self._seconds(self._times(name) * once)
            else:
                table = self._communication(name, given, [(h,) for h, _ in self.holds[move.replaces]])
            self._tables[move.kind] = table
        return self._tables[move.kind]

    def _wide(self, table: Table, components: range) -> Table:
        """A table of some components, with zeros for the others; read-only."""
        count = len(self.timed) + len(self.held)
        whole = np.zeros((count, *table.shape[1:]))
        whole[components.start : components.stop] = table
        whole.flags.writeable = False
        return whole

    def _seconds(self, table: Table) -> Table:
        """Seconds of collectives add to the synchronous cost. Under overlap they are a component of their own, and take from each
        device's time the part that is lost to its computing meanwhile; what can't be made (inf) can't be made for any of them."""
        if self.objective == "overlap":
            able = np.isfinite(table)
            parts = np.multiply.outer(self.lost, np.where(able, table, 0.0))
            return self._wide(np.where(able, parts, np.inf), self.timed)
        table.flags.writeable = False
        return table

    def _communicate(self, scope: tuple[int, ...], table: Table) -> None:
        if self.objective == "sync":
            self.graph.factor(scope, table)
        else:
            self.graph.priced_factor(scope, table)

    def _communication(
        self, name: str, given: Sequence[Placement], offered: Sequence[Offer], times: Table | float = 1.0
    ) -> Table:
        """Seconds to make each offered set from each given placement, `times` over; inf where there is no way."""
        routes = [[self.conversions.route(name, p, o) for o in offered] for p in given]
        return self._seconds(times * np.array([[np.inf if r is None else r[0] for r in row] for row in routes]))

    def _times(self, name: str) -> Table | float:
        """How often each offered set is made: in both passes where it isn't kept."""
        words = self.structure.carries.get(name)
        return 1.0 if words is None else np.array([1.0 + (w in MADE_AGAIN) for w in words])

    # -- reading an assignment ----------------------------------------------------------

    def choice(self, assignment: Sequence[int]) -> Choice:
        """The choices that an assignment stands for."""
        return self.structure.choice(tuple(assignment))
