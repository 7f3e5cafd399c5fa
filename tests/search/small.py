"""Models and clusters small enough to try everything on, as text, and how the tests read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np

from hapdsl.check.verify import Checked, verify
from hapdsl.check.write import write
from hapdsl.cluster import Cluster
from hapdsl.cluster import build as build_cluster
from hapdsl.cost.evaluate import Cost, evaluate
from hapdsl.graph.build import build, operators
from hapdsl.graph.program import Program
from hapdsl.graph.training import Node, TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text
from hapdsl.search.factors import FactorGraph
from hapdsl.search.possible import possible
from hapdsl.search.schedule import Scheduler
from hapdsl.search.shares import Shares, layout_of, proportional
from hapdsl.search.space import Space
from hapdsl.search.structure import Restriction
from hapdsl.theory.placements import Placement, R
from hapdsl.theory.rules import Rule
from tests.texts import program_in

MODELS = {
    "one product": """
model one(batch = 12, d = 6, out = 9) {
    input x : f32[batch, d]
    param w : f32[d, out]
    y = matmul(x, w)
    loss = sum(y, [0, 1])
    train loss with sgd(lr = 0.1)
}
""",
    "two products": """
model two(batch = 12, d = 6, hidden = 8) {
    input x  : f32[batch, d]
    param w1 : f32[d, hidden]
    param w2 : f32[hidden, 1]
    h = matmul(x, w1)
    y = matmul(h, w2)
    loss = sum(y, [0, 1])
    train loss with sgd(lr = 0.1)
}
""",
    "add and reduce": """
model adds(batch = 12, d = 6) {
    input x : f32[batch, d]
    param b : f32[d]
    a = add(x, b)
    s = sum(a, 1)
    r = relu(s)
    loss = sum(r, 0)
    train loss with sgd(lr = 0.1)
}
""",
    "tied weight": """
model tied(batch = 12, d = 6) {
    input x : f32[batch, d]
    param w : f32[d, d]
    h = matmul(x, w)
    y = matmul(h, w)
    loss = sum(y, [0, 1])
    train loss with sgd(lr = 0.1)
}
""",
    "read twice by one call": """
model square(batch = 12, d = 6) {
    input x : f32[batch, d]
    param b : f32[d]
    a = add(x, b)
    s = mul(a, a)
    loss = sum(s, [0, 1])
    train loss with sgd(lr = 0.1)
}
""",
    "bias": """
model bias(batch = 12, d = 6, out = 9) {
    input x : f32[batch, d]
    param w : f32[d, out]
    param b : f32[out]
    u = matmul(x, w)
    y = add(u, b)
    loss = sum(y, [0, 1])
    train loss with sgd(lr = 0.1)
}
""",
}

# Speeds are such that computing and communicating these few bytes cost about the same: then every choice matters.
DEVICES = """
    device quick { compute = 8 MFLOP/s, memory = 1 GiB, bandwidth = 100 MB/s, launch = 1 us }
    device slow  { compute = 3 MFLOP/s, memory = 1 GiB, bandwidth = 60 MB/s, launch = 2 us }
"""
CLUSTERS = {
    "alike": f"cluster alike {{ {DEVICES} node host = 2 * quick over {{ bandwidth = 20 MB/s, latency = 0 us }} }}",
    "pair": f"cluster pair {{ {DEVICES} node host = 1 * quick, 1 * slow over {{ bandwidth = 20 MB/s, latency = 0 us }} }}",
    "latency": f"cluster latency {{ {DEVICES} node host = 1 * quick, 1 * slow over {{ bandwidth = 40 MB/s, latency = 5 us }} }}",
    "three": f"cluster three {{ {DEVICES} node host = 1 * quick, 2 * slow over {{ bandwidth = 60 MB/s, latency = 1 us }} }}",
    "network": f"""cluster network {{ {DEVICES}
    node a = 1 * quick
    node b = 2 * slow over {{ bandwidth = 90 MB/s, latency = 1 us }}
    network 1 * a, 1 * b over {{ bandwidth = 10 MB/s, latency = 4 us }} }}""",
    "measured": f"""cluster measured {{ {DEVICES}
    node host = 1 * quick, 1 * slow over {{ bandwidth = 20 MB/s, latency = 3 us }}
    measured all_reduce {{ 10 B = 5 us, 100 B = 6 us, 1 KB = 40 us }}
    measured all_gather {{ 10 B = 3 us, 100 B = 4 us, 1 KB = 20 us }} }}""",
}


@cache
def parsed(text: str) -> nodes.File:
    return parse(text, "small.hap")


def training(text: str, train: bool = True, **settings: int) -> TrainingGraph:
    """The training graph of the one model in `text`."""
    file = parsed(text)
    model = next(b for b in file.items if isinstance(b, nodes.Model))
    defs = {b.name: b for b in file.items if isinstance(b, nodes.Def)}
    own = {b.name: b for b in file.items if isinstance(b, nodes.Op)}
    return build(model, defs, operators(own), settings, train)


def cluster(text: str) -> Cluster:
    """The one cluster in `text`."""
    return build_cluster(next(b for b in parsed(text).items if isinstance(b, nodes.Cluster)))


def cuts(graph: TrainingGraph, machines: Cluster) -> dict[str, Shares]:
    """Shares of several kinds: alike, by speed, lopsided, with a device that gets nothing."""
    n = len(machines)
    weights = {
        "even": [1.0] * n,
        "by speed": machines.speeds("f32").tolist(),
        "lopsided": [1.0] * (n - 1) + [5.0],
        "zero": [1.0] * (n - 1) + [0.0],
    }
    return {name: proportional(graph, w) for name, w in weights.items()}


class Tried:
    """A space with its scheduler: what tests ask about one graph on one cluster under given shares."""

    def __init__(
        self,
        graph: TrainingGraph,
        machines: Cluster,
        shares: Mapping[str, np.ndarray],
        objective: str = "sync",
        restriction: Restriction | None = None,
    ) -> None:
        self.graph, self.machines, self.objective = graph, machines, objective
        self.shares, self.restriction = shares, restriction
        self.layout = layout_of(shares, len(machines))
        self.space = Space(graph, self.layout, machines, restriction, objective)
        self.scheduler = Scheduler(self.space.conversions)

    def program(self, assignment: tuple[int, ...]) -> Program:
        return self.scheduler.program(self.space.choice(assignment))

    def cost(self, assignment: tuple[int, ...]) -> Cost:
        return evaluate(self.program(assignment), self.machines, self.space.pricer)

    def reprice(self, program: Program) -> Cost:
        """The cost of a program that has its own layout, from scratch."""
        return evaluate(program, self.machines)

    def seconds(self, assignment: tuple[int, ...]) -> float:
        cost = self.cost(assignment)
        return cost.sync_s if self.objective == "sync" else cost.overlap_s


def everything(graph: FactorGraph, rng: np.random.Generator | None = None) -> Iterator[tuple[int, ...]]:
    """Every allowed assignment, by walking the variables in order and leaving where a table forbids.

    With `rng`, the values of a variable come in random order.
    """
    complete: list[list[tuple[tuple[int, ...], np.ndarray]]] = [[] for _ in graph.sizes]
    for scope, table in zip(graph.scopes, graph.tables, strict=True):
        if scope:
            complete[max(scope)].append((scope, table))

    if not all(np.isfinite(t).all() for s, t in zip(graph.scopes, graph.tables, strict=True) if not s):
        return iter(())  # nothing is allowed at all

    def walk(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        v = len(chosen)
        if v == len(graph.sizes):
            yield chosen
            return
        for value in range(graph.sizes[v]) if rng is None else rng.permutation(graph.sizes[v]).tolist():
            longer = (*chosen, value)
            if all(np.isfinite(t[tuple(longer[i] for i in s)]) for s, t in complete[v]):
                yield from walk(longer)

    return walk(())


def spare(graph: FactorGraph, assignment: tuple[int, ...]) -> bool:
    """Does it pay for a shared message that it doesn't need? Then another assignment stands for the same program."""
    flags = [v for v, name in enumerate(graph.names) if name.startswith("message ") and assignment[v]]
    return any(np.isfinite(graph.plain((*assignment[:v], 0, *assignment[v + 1 :]))) for v in flags)


def thinned(graph: TrainingGraph, rng: np.random.Generator, keep: float) -> Restriction:
    """Some of the rules of each call, and some of the placements a parameter may be held in."""
    kept = {(id(node), k) for node in graph.nodes for k in range(len(node.rules)) if rng.random() < keep}
    for node in graph.nodes:  # every call keeps one
        able = [k for k, rule in enumerate(node.rules) if possible(graph, node, rule)]
        if not any((id(node), k) in kept for k in able):
            kept.add((id(node), able[int(rng.integers(len(able)))]))
    held = {
        (t.name, d) for t in graph.of_kind("param", "frozen") for d in range(-1, len(t.shape)) if rng.random() < keep
    }

    def allow(node: Node, rule: Rule) -> bool:
        return (id(node), node.rules.index(rule)) in kept

    def allow_held(param: str, placement: Placement) -> bool:
        return (param, placement.dim if placement.kind == "S" else -1) in held or placement == R

    return Restriction(allow, allow_held)


def text_of(program: Program) -> str:
    """The program as a person would read it."""
    return to_text(nodes.File(items=(write(program),)))


def reread(program: Program, graph: TrainingGraph, devices: int) -> Checked:
    """The program as the checker sees it once it has been written down and parsed."""
    tree = program_in(text_of(program))
    return verify(tree, graph, devices)
