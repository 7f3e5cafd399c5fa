"""The bound of the overlapped objective against the simulation, in every order of a program's lines, beside messages that slow computing down.

The simulation (`hapdsl.cost.overlap`) is what the objective means; nothing here asks how the bound comes about.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from hapdsl.cluster import Cluster, Interference
from hapdsl.cost.overlap import simulate
from hapdsl.graph.program import Program
from hapdsl.search.planner import plan
from hapdsl.search.prices import cutting_planes
from hapdsl.search.restriction import Restriction
from hapdsl.search.schedule import Scheduler
from hapdsl.search.serial import least_ways, passes
from hapdsl.search.shares import layout_of
from hapdsl.search.space import Space
from hapdsl.search.structure import Structure
from hapdsl.theory.placements import P, R, S

from .asked import DEEP
from .random_dags import random_case
from .small import CLUSTERS, MODELS, Tried, cluster, cuts, everything, spare, thinned, training

# Backward needs what forward makes, as the gradient of a sum alone doesn't.
CHAIN = """
model chain(batch = 12, d = 6, hidden = 8) {
    input x : f32[batch, d]
    input label : i64[batch]
    param w1 : f32[d, hidden]
    param w2 : f32[hidden, d]
    h = relu(matmul(x, w1))
    y = matmul(h, w2)
    loss = cross_entropy(y, label)
    train loss with sgd(lr = 0.1)
}
"""
TEXTS = {**MODELS, "chain": CHAIN}
NAMES = list(CLUSTERS)


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left out for graphs of few calls, because it seldom pays there, is right for them as well."""
    monkeypatch.setattr("hapdsl.search.space.FEW", 0)


ORDERS = 9  # of one program's lines


Parts = tuple[float, float]  # of computing and of a message, what they take from each other


def beside(made: Cluster, *parts: Parts) -> Cluster:
    """The cluster with devices whose interference is one of `parts`, in turn."""
    turns = [Interference(*own) for own in parts]
    return replace(
        made, devices=tuple(replace(d, interference=turns[k % len(turns)]) for k, d in enumerate(made.devices))
    )


def orders(program: Program, rng: np.random.Generator) -> Iterator[Program]:
    """The program, and its lines in other orders in which each stands behind what it reads: the next one any of those that are ready.

    Messages as soon as may be, as late as may be, and anywhere.
    """
    lines = program.instructions
    made = {value: k for k, line in reversed(list(enumerate(lines))) for value in line.outputs}
    needs = [{made[v] for v in line.inputs} for line in lines]
    yield program
    for n in range(ORDERS):
        done: list[int] = []
        left = list(range(len(lines)))
        while left:
            ready = [k for k in left if needs[k] <= set(done)]
            first = [k for k in ready if lines[k].is_collective == (n % 3 == 0)]
            done.append(int(rng.choice(first if first and n % 3 < 2 else ready)))
            left.remove(done[-1])
        yield replace(program, instructions=[lines[k] for k in done])


def bounds(tried: Tried, assignment: tuple[int, ...]) -> float:
    """The highest bound of an assignment under any prices: the bound is linear in them, so a corner has it."""
    graph = tried.space.graph
    return graph.plain(assignment) + float(graph.component_sums(assignment).max())


def check(tried: Tried, rng: np.random.Generator, most: int) -> tuple[float, float]:
    """No order of any of `most` programs is below its bound, nor below the space's. Returns that and the least seconds."""
    bound = cutting_planes(tried.space.graph, iterations=20).bound
    least = np.inf
    every = (a for a in everything(tried.space.graph, rng) if not spare(tried.space.graph, a))
    for assignment in itertools.islice(every, most):
        pricer = tried.space.pricer
        programs = orders(tried.program(assignment), rng)
        seconds = [simulate([pricer.line(i) for i in p.instructions], pricer)[1].max() for p in programs]
        seconds.append(tried.scheduler.seconds(tried.space.choice(assignment), "overlap"))  # the search's own price
        assert max(bound, bounds(tried, assignment)) <= min(seconds) * (1 + 1e-9)
        least = min(least, *seconds)
    return bound, least


PARTS = [
    ((0.0, 0.0),),
    ((0.3, 0.0), (0.0, 0.0), (0.9, 0.0)),
    ((1.0, 0.0), (0.5, 0.3)),
    ((0.2, 0.6), (0.0, 1.0), (0.3, 0.7)),
]


@pytest.mark.parametrize("parts", PARTS, ids=str)
@pytest.mark.parametrize("model", TEXTS)
def test_no_order_is_below_the_bound(model: str, parts: tuple[Parts, ...]) -> None:
    rng = np.random.default_rng([len(model), *(int(10 * p) for own in parts for p in own)])
    graph, made = training(TEXTS[model]), beside(cluster(CLUSTERS[NAMES[rng.integers(len(NAMES))]]), *parts)
    for shares in itertools.islice(cuts(graph, made).values(), 1, 3):
        check(Tried(graph, made, shares, "overlap", thinned(graph, rng, 0.5)), rng, 2)


@pytest.mark.parametrize("seed", range(12))
def test_no_order_of_random_dags_is_below_the_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    _, graph, made, shares = random_case(rng, 5, 16)
    computing = rng.choice([0.0, 0.2, 0.6, 1.0], 2)
    made = beside(made, *((c, (1 - c) * float(rng.choice([0.0, 0.5, 1.0]))) for c in computing.tolist()))
    check(Tried(graph, made, shares, "overlap", thinned(graph, rng, 0.5)), rng, 3)


@pytest.mark.parametrize("model", MODELS)
def test_it_is_reached_where_devices_do_nothing_beside_messages(model: str) -> None:
    """Interference of one, and devices alike: computing and messages take turns, and the bound is what the best program takes."""
    graph, found = training(MODELS[model]), []
    for part in ((0.0, 0.0), (1.0, 0.0), (0.4, 0.6)):
        made = beside(cluster(CLUSTERS["alike"]), part)
        tried = Tried(graph, made, cuts(graph, made)["even"], "overlap")
        pricing = cutting_planes(tried.space.graph, iterations=20)
        found.append((pricing.bound, min(map(tried.seconds, pricing.minimisers))))
    for bound, best in found[1:]:
        assert bound == pytest.approx(best, rel=1e-9)
    assert found[0][0] <= found[1][0] == pytest.approx(found[2][0], rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_apart_is_what_every_order_keeps_apart(seed: int) -> None:
    """Against paths in the graph of calls: each call of a pass comes before a message's operand is made, or needs what its reader makes."""
    rng = np.random.default_rng(seed)
    graph = training(CHAIN) if seed == 0 else random_case(rng, 8, 25)[1]
    paths = nx.DiGraph(
        [(graph.producer[n], k) for k, c in enumerate(graph.nodes) for n in c.inputs if n in graph.producer]
    )
    paths.add_nodes_from(range(len(graph.nodes)))
    before, behind = (
        {k: {k} | nx.ancestors(paths, k) for k in paths},
        {k: {k} | nx.descendants(paths, k) for k in paths},
    )
    found = passes(graph, rng.exponential(size=len(graph.nodes)).tolist())
    assert found
    for each in found:
        for name in each.behind:
            assert each.calls <= before[graph.producer[name]]
        for name, reader in each.between.items():
            made = before[graph.producer[name]] if name in graph.producer else set()
            assert reader in graph.readers[name] and each.calls <= made | behind[reader]


def test_the_cheapest_way_goes_by_any_number_of_conversions() -> None:
    prices = {
        (P, R): 9.0,
        (P, S(0)): 2.0,
        (P, S(1)): 8.0,
        (S(0), R): 3.0,
        (S(1), R): 1.0,
        (S(0), S(1)): 1.0,
        (S(1), S(0)): 1.0,
    }
    ways = least_ways((R, P, S(0), S(1)), lambda p, q: prices[p, q])
    # summed in pieces, exchanged, gathered; a piece is gathered to be a part of a sum again
    assert ways.tolist() == [[0, 0, 0, 0], [4, 0, 2, 3], [2, 2, 0, 1], [1, 1, 1, 0]]


def test_what_everything_waits_for_is_added_to_what_is_computed() -> None:
    """Nothing is cut, and the first parameter is held in shards: a step is its gather, and all calls."""
    graph, made = training(CHAIN), cluster(CLUSTERS["alike"])
    whole = Restriction(
        lambda node, rule: {*rule.inputs, *rule.outputs} == {R},
        lambda name, place: place == (S(0) if name == "w1" else R),
    )
    tried = Tried(graph, made, cuts(graph, made)["even"], "overlap", whole)
    pricing = cutting_planes(tried.space.graph, iterations=20)
    cost = tried.cost(pricing.minimisers[0])
    gather, *calls = (
        cost.per_instruction_s[k].max() for k in np.flatnonzero([s.any() for s in cost.per_instruction_s])
    )
    assert pricing.bound == pytest.approx(gather + sum(calls), rel=1e-9)
    assert pricing.bound == pytest.approx(cost.overlap_s, rel=1e-9)
    assert cutting_planes(
        Space(graph, tried.layout, made, whole, "overlap", serial=False).graph
    ).bound == pytest.approx(sum(calls))


@pytest.mark.parametrize("parts", [((0.6, 0.0),), ((0.2, 0.7), (1.0, 0.0))], ids=str)
def test_searching_past_the_optimum_breaks_no_bound(parts: tuple[Parts, ...]) -> None:
    """No gap is ever small enough, so every leaf up to the limit is priced and held against its bound (HAP690)."""
    graph, made = training(CHAIN), beside(cluster(CLUSTERS["three"]), *parts)
    for shares in itertools.islice(cuts(graph, made).values(), 1):
        found = plan(graph, made, objective="overlap", gap=-1.0, baselines=False, fixed=shares)
        assert found.bound_s <= found.cost_s


@pytest.mark.parametrize("seed", range(6))
def test_the_price_of_a_choice_is_that_of_its_lines_with_messages_right_behind_their_operands(seed: int) -> None:
    """Lines that were moved so by hand, simulated as they stand."""
    rng = np.random.default_rng(seed)
    _, graph, made, shares = random_case(rng, 5, 16)
    made = beside(made, *((c, min(1 - c, 0.4)) for c in rng.choice([0.0, 0.3, 0.9], 2).tolist()))
    tried = Tried(graph, made, shares, "overlap", thinned(graph, rng, 0.5))
    for assignment in itertools.islice(everything(tried.space.graph, rng), 4):
        lines, moved = tried.program(assignment).instructions, []
        for line in lines:
            if not line.is_collective:
                moved.append(line)
                continue
            needs = {*line.inputs}
            last = max((k for k, m in enumerate(moved) if m.is_collective or needs & {*m.outputs}), default=-1)
            moved.insert(last + 1, line)
        pricer = tried.space.pricer
        by_hand = simulate([pricer.line(i) for i in moved], pricer)[1].max()
        priced = simulate([pricer.line(i) for i in lines], pricer, early=True)[1].max()
        assert priced == pytest.approx(by_hand, rel=1e-12)


LONG = DEEP.replace("layers = 4", "layers = 14")
# Each of many products is read at once in the end: what waits for them all would tie them all together.
SIDE_BY_SIDE = """
model wide(batch = 12, d = 8, branches = 12) {
    input x : f32[batch, d]
    y = relu(x)
    repeat branch in branches {
        param w : f32[d, d]
        y = add(relu(matmul(x, w)), matmul_nt(y, matmul_tn(y, y)))
    }
    loss = sum(y, [0, 1])
    train loss with sgd(lr = 0.1)
}
"""


@pytest.mark.parametrize("model", [LONG, SIDE_BY_SIDE], ids=["long", "side by side"])
def test_what_spaces_of_one_structure_share_is_what_each_has_alone(model: str) -> None:
    """What messages may be apart from, what readers wait for, and its tables are looked for once: under other shares, and with flags."""
    graph, made = training(model), cluster(CLUSTERS["latency"])
    structure = Structure(graph, None, ())
    flagged = Structure(graph, None, ("all_reduce of gradients",), like=structure)
    for cut in ("even", "by speed"):
        layout = layout_of(cuts(graph, made)[cut], len(made))
        together = Space(graph, layout, made, None, "overlap", structure)
        spaces = [together, Space(graph, layout, made, None, "overlap", flagged, like=together)]
        for space, messages in zip(spaces, ((), ("all_reduce of gradients",)), strict=True):
            alone = Space(graph, layout, made, None, "overlap", Structure(graph, None, messages))
            found, wanted = cutting_planes(space.graph), cutting_planes(alone.graph)
            assert found.bound == pytest.approx(wanted.bound, rel=1e-9)
            scheduler = Scheduler(space.conversions)
            for a in found.minimisers:
                assert found.bound <= scheduler.seconds(space.choice(a), "overlap") * (1 + 1e-9)
