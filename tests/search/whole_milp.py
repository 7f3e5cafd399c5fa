"""The whole choice of a program as one mixed-integer program, written from rules, placements and prices of conversions.

It shares no table, variable or route with the search: a binary per rule of a call, per placement that a parameter is held in and per
placement that a tensor is offered as; what is offered must come from what the call gives, so each offered placement is the sink of a
unit of flow whose source is the rule that was chosen (a Steiner arborescence: a conversion is paid once, however many placements lie
behind it). The linear relaxation is tight that way; HiGHS solves the small graphs of the tests in a fraction of a second.

`limit` is how many placements a tensor is offered as, None for any number; without a limit a shard may also stand beside the whole and
lie on the way to it (a reduce_scatter before an all_gather).
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from hapdsl.cluster import Cluster
from hapdsl.cost.pricing import Pricer
from hapdsl.graph.program import COLLECTIVES, METHODS, Instruction, Layout, Value, conversion
from hapdsl.graph.training import Node, TrainingGraph
from hapdsl.search.choices import Choice
from hapdsl.search.conversions import Conversions
from hapdsl.search.messages import SHARED
from hapdsl.theory.placements import Placement, R, S
from hapdsl.theory.rules import Rule

Expression = dict[int, float]  # column -> coefficient
UNIT = 1e3  # the objective is of this size: HiGHS closes an absolute gap of 1e-6, which is then 1e-9 of it


def legal(graph: TrainingGraph, node: Node, rule: Rule) -> bool:
    """Shards only where there is more than one unit; optimizer state comes back as it was held."""
    sides = [*zip(node.inputs, rule.inputs, strict=True), *zip(node.outputs, rule.outputs, strict=True)]
    if any(p.kind == "S" and p.dim not in graph.shardable(t) for t, p in sides):
        return False
    placed = dict(sides)
    states = [t for t in node.inputs if graph.tensors[t].kind == "state" and t in graph.updates]
    return all(placed[t] == placed.get(graph.updates[t], placed[t]) for t in states)


@dataclass
class Rows:
    """A mixed-integer program while it is written: columns with costs, and rows `low <= row @ x <= high`."""

    costs: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    rows: list[Expression] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def column(self, cost: float = 0.0, whole: bool = False) -> int:
        self.costs.append(cost)
        self.whole.append(whole)
        return len(self.costs) - 1

    def row(self, expression: Expression, low: float, high: float) -> None:
        self.rows.append(expression)
        self.low.append(low)
        self.high.append(high)

    def at_most(self, small: Expression, large: Expression) -> None:
        """small <= large."""
        self.row(plus(small, large, -1.0), -math.inf, 0.0)

    def equal(self, one: Expression, other: Expression) -> None:
        self.row(plus(one, other, -1.0), 0.0, 0.0)

    def solve(self, seconds: float, least: float) -> np.ndarray | None:
        """The best values; None where there are none. `least` is a lower bound of their cost. Raises TimeoutError."""
        costs = np.array(self.costs)
        matrix = coo_array(
            (
                [v for row in self.rows for v in row.values()],
                ([i for i, row in enumerate(self.rows) for _ in row], [c for row in self.rows for c in row]),
            ),
            shape=(len(self.rows), len(costs)),
        )
        scale = UNIT / least if least > 0 else 1.0
        for _ in range(2):  # the second time in units of the first answer, where that was too small for HiGHS
            answer = milp(
                costs * scale,
                integrality=np.array(self.whole, dtype=int),
                bounds=Bounds(0.0, 1.0),
                constraints=LinearConstraint(matrix.tocsr(), self.low, self.high),
                options={"mip_rel_gap": 0.0, "time_limit": seconds},
            )
            if answer.status == 1:
                raise TimeoutError(f"HiGHS took more than {seconds} s")
            if answer.x is None:
                assert answer.status == 2, answer.message
                return None
            value = float(costs @ answer.x)
            if value <= 0.0 or value * scale >= UNIT * (1 - 1e-6):
                break
            scale = UNIT / value
        return np.asarray(answer.x)


def plus(one: Expression, other: Expression, times: float = 1.0) -> Expression:
    found = dict(one)
    for c, v in other.items():
        found[c] = found.get(c, 0.0) + times * v
    return found


class WholeMilp:
    """The program for one graph, layout and cluster under given prices of the devices' seconds.

    `weights[d]` multiplies what device d computes, `talk` what is communicated. `solve()` gives the least cost; `choice()` then is what
    HiGHS chose. `conversions` prices messages that tensors share (by their bytes alone); all else is priced here by the evaluator.
    `messages` are those of SHARED (of whom, and which kinds of collective) whose latency counts, once each.
    """

    def __init__(
        self, graph: TrainingGraph, layout: Layout, cluster: Cluster, conversions: Conversions, weights: np.ndarray, talk: float = 1.0,
        limit: int | None = 2, messages: tuple[str, ...] = tuple(SHARED),
    ) -> None:  # fmt: skip
        self.graph, self.cluster, self.conversions, self.weights, self.talk, self.limit = (
            graph,
            cluster,
            conversions,
            weights,
            talk,
            limit,
        )
        self.pricer, self.messages = Pricer(graph, layout, cluster), messages
        self.m = Rows()
        self.rules = [[r for r in node.rules if legal(graph, node, r)] for node in graph.nodes]
        self.chosen = [
            [self.m.column(self.compute(n, r), True) for r in rules]
            for n, rules in zip(graph.nodes, self.rules, strict=True)
        ]
        for columns in self.chosen:
            self.m.row(dict.fromkeys(columns, 1.0), 1.0, 1.0)
        self.gradients = {
            t for t, k in graph.producer.items()
            if graph.nodes[k].section != "update" and graph.readers[t] and all(graph.nodes[r].section == "update" for r in graph.readers[t])
        }  # fmt: skip
        self.params = {t.name for t in graph.of_kind("param", "frozen", "buffer")}
        self.updated = {graph.updates[t] for t in self.params if t in graph.updates}
        self.sent: dict[str, int] = {}
        self.held: dict[str, dict[Placement, int]] = {}
        self.offered: dict[str, dict[Placement, int]] = {}
        for t, tensor in graph.tensors.items():
            if graph.readers[t] and tensor.kind not in ("input", "state", "seed") and t not in self.updated:
                self.tensor(t)
        for t in self.held:
            if t in graph.updates:
                self.update(t)

    # -- prices --------------------------------------------------------------------

    def compute(self, node: Node, rule: Rule) -> float:
        line = Instruction(
            node.op, _values(node.inputs, rule.inputs), _values(node.outputs, rule.outputs), node.section, node
        )
        return float(self.pricer.price(line).seconds @ self.weights)

    def message(self, t: str, source: Placement, target: Placement) -> float:
        """Seconds of one conversion, weighted; what a message that is shared adds to it at least."""
        kind = conversion(source, target)
        if kind not in COLLECTIVES:
            return 0.0
        if t in self.gradients | self.params | self.updated:
            return self.talk * self.conversions.seconds(t, source, target)
        section = self.graph.nodes[self.graph.producer[t]].section  # in a `microbatch` block it is sent in every turn
        lines = [
            Instruction(kind, _values((t,), (source,)), _values((t,), (target,)), section, method=m)
            for m in METHODS[kind]
        ]
        return self.talk * min(float(self.pricer.price(line).seconds.max()) for line in lines)

    def flag(self, t: str, kind: str | None) -> list[int]:
        """Columns of the shared messages that a conversion of this tensor belongs to; each costs its latency."""
        owner = (
            "gradients"
            if t in self.gradients
            else "params"
            if t in self.params
            else "updated"
            if t in self.updated
            else None
        )
        names = [n for n in self.messages if SHARED[n][0] == owner and kind in SHARED[n][1]]
        for name in names:
            if name not in self.sent:
                self.sent[name] = self.m.column(self.talk * self.conversions.split.floor(name))
        return [self.sent[n] for n in names]

    # -- what a tensor is offered as --------------------------------------------------

    def given(self, t: str) -> dict[Placement, Expression]:
        """By placement: the columns whose sum says whether the tensor comes in it."""
        if t in self.params:
            self.held[t] = {p: self.m.column(0.0, True) for p in (R, *map(S, self.graph.shardable(t)))}
            self.m.row(dict.fromkeys(self.held[t].values(), 1.0), 1.0, 1.0)
            return {p: {c: 1.0} for p, c in self.held[t].items()}
        k = self.graph.producer[t]
        j = self.graph.nodes[k].outputs.index(t)
        found: dict[Placement, Expression] = defaultdict(dict)
        for rule, column in zip(self.rules[k], self.chosen[k], strict=True):
            found[rule.outputs[j]][column] = 1.0
        return found

    def tensor(self, t: str) -> None:
        """Offered placements, the way to each of them, and readers that take no others."""
        m, given = self.m, self.given(t)
        reads: dict[tuple[int, int], dict[Placement, Expression]] = {}
        for k in self.graph.readers[t]:
            for i, operand in enumerate(self.graph.nodes[k].inputs):
                if operand == t:
                    reads[k, i] = defaultdict(dict)
                    for rule, column in zip(self.rules[k], self.chosen[k], strict=True):
                        reads[k, i][rule.inputs[i]][column] = 1.0
        readable = {p for by in reads.values() for p in by}
        if self.limit is None:
            readable |= {S(d) for d in self.graph.shardable(t)}
        offered = self.offered[t] = {p: m.column(0.0, True) for p in sorted(readable | {R})}
        for by in reads.values():
            for p, columns in by.items():
                m.at_most(columns, {offered[q]: 1.0 for q in {p, R}})
        if self.limit is not None:
            m.row(dict.fromkeys(offered.values(), 1.0), 0.0, self.most(t))
            for p, c in offered.items():
                if p.kind == "S":
                    m.row({c: 1.0, offered[R]: 1.0}, 0.0, 1.0)
        self.ways(t, given, offered)

    def most(self, t: str) -> int:
        """How many placements a tensor may be offered as: one where it is read once, so that none is only on the way to another."""
        assert self.limit is not None
        return self.limit if sum(self.graph.nodes[k].inputs.count(t) for k in self.graph.readers[t]) > 1 else 1

    def ways(self, t: str, given: dict[Placement, Expression], offered: dict[Placement, int]) -> None:
        """A unit of flow to each offered placement, from what is given, over others that are offered; a conversion is paid once.

        A given placement and the same one offered are two nodes, tied by an arc that is free.
        """
        m = self.m
        several = self.limit is None or self.most(t) > 1
        arcs: dict[
            tuple[str, Placement, Placement], int | None
        ] = {}  # ("given" or "offered", from, to) -> its purchase
        for p in given:
            for q in offered:
                if p == q or conversion(p, q) is not None:
                    arcs["given", p, q] = self.purchase(t, p, q)
        for p in offered if several else ():
            for q in offered:
                # Of two that exclude each other (a shard and the whole) none lies on the way to the other; partial sums are only given.
                apart = self.limit is not None and (p.kind, q.kind) not in (("S", "S"), ("R", "P"))
                if p != q and conversion(p, q) is not None and not apart:
                    arcs["offered", p, q] = self.purchase(t, p, q)
        for sink in offered:
            flow = {arc: m.column() for arc in arcs if several or arc[2] == sink}
            for arc, column in flow.items():
                if (paid := arcs[arc]) is not None:
                    m.at_most({column: 1.0}, {paid: 1.0})
            for p, columns in given.items():
                m.at_most({c: 1.0 for arc, c in flow.items() if arc[:2] == ("given", p)}, columns)
            for q, is_offered in offered.items():
                come = {c: 1.0 for arc, c in flow.items() if arc[2] == q}
                go = {c: 1.0 for arc, c in flow.items() if arc[:2] == ("offered", q)}
                m.equal(come, {**go, is_offered: 1.0} if q == sink else go)
                if q != sink and come:
                    m.at_most(come, {is_offered: 1.0})

    def purchase(self, t: str, source: Placement, target: Placement) -> int | None:
        """The column that pays for a conversion, once for all that comes of it; None where nothing is to be paid.

        Whole by itself where at most two placements are offered: then all is, once rules and offers are; but for those that share a message,
        of which two halves would pay half a floor.
        """
        kind = None if source == target else conversion(source, target)
        if kind not in COLLECTIVES:
            return None
        flags = self.flag(t, kind)
        column = self.m.column(self.message(t, source, target), self.limit is None or bool(flags))
        for flag in flags:
            self.m.at_most({column: 1.0}, {flag: 1.0})
        return column

    def update(self, t: str) -> None:
        """What the update gives goes back to how the parameter is held, by one conversion."""
        m, new = self.m, self.graph.updates[t]
        given, held = self.given(new), self.held[t]
        moves: dict[tuple[Placement, Placement], int] = {}
        for p in given:
            for q in held:
                if p == q or conversion(p, q) is not None:
                    moves[p, q] = m.column(0.0 if p == q else self.message(new, p, q))
                    for flag in self.flag(new, conversion(p, q)) if p != q else ():
                        m.at_most({moves[p, q]: 1.0}, {flag: 1.0})
        for p, columns in given.items():
            m.equal({c: 1.0 for (a, _), c in moves.items() if a == p}, columns)
        for q, column in held.items():
            m.equal({c: 1.0 for (_, b), c in moves.items() if b == q}, {column: 1.0})

    # -- answers --------------------------------------------------------------------

    def solve(self, seconds: float = 60.0) -> float:
        """The least cost, counted anew from the whole values; inf where nothing is allowed. Raises TimeoutError."""
        x = self.m.solve(seconds, sum(min(self.m.costs[c] for c in columns) for columns in self.chosen))
        if x is None:
            return math.inf
        self.x = x
        return float(np.array(self.m.costs) @ x)

    def choice(self) -> Choice:
        """What HiGHS chose, in the search's words, without what is offered free of charge and unread.

        Without a limit it may be nothing that the search has words for.
        """
        rules = tuple(
            rules[int(np.argmax(self.x[columns]))] for rules, columns in zip(self.rules, self.chosen, strict=True)
        )
        offered = {}
        for t, by in self.offered.items():
            operands = [
                (k, i) for k in self.graph.readers[t] for i, o in enumerate(self.graph.nodes[k].inputs) if o == t
            ]
            read = {rules[k].inputs[i] for k, i in operands}
            found = tuple(p for p, c in by.items() if self.x[c] > 0.5)
            offered[t] = (R,) if R in found else tuple(p for p in found if p in read)
        held = {t: max(by, key=lambda p: self.x[by[p]]) for t, by in self.held.items()}
        return Choice(rules, offered, held)


def _values(names: tuple[str, ...], placements: tuple[Placement, ...]) -> tuple[Value, ...]:
    return tuple(Value(n, (p,)) for n, p in zip(names, placements, strict=True))
