"""Bounds that hold beyond one space: for all shares, with several dtypes, with measured messages."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from hapdsl.cluster.hardware import Curve
from hapdsl.cost import best_method, collective_seconds
from hapdsl.graph.program import METHODS
from hapdsl.graph.training import Node
from hapdsl.search.anyshares import bound_any_shares
from hapdsl.search.astar import Limits, best_first
from hapdsl.search.eliminate import eliminate
from hapdsl.search.messages import BUCKET, MANY, SHARED, Parts, Split, _below
from hapdsl.search.planner import plan
from hapdsl.search.prices import cutting_planes
from hapdsl.search.restriction import Restriction
from hapdsl.search.schedule import Scheduler
from hapdsl.search.shares import Shares, layout_of, proportional
from hapdsl.search.space import Space
from hapdsl.search.spaces import floor
from hapdsl.search.structure import Structure
from hapdsl.theory.placements import R, S
from hapdsl.theory.rules import Rule

from .examples import clusters, example
from .small import CLUSTERS, MODELS, Tried, cluster, cuts, everything, training

TWO_DTYPES = """
model mixed(rows = 8, columns = 8, d = 64, out = 64) {
    input a : f32[rows, d]
    input b : f16[columns, d]
    param v : f32[d, out]
    param w : f16[d, out]
    y = matmul(a, v)
    z = matmul(b, w)
    output y
    output z
}
"""
CROSSED = """
cluster crossed {
    device left  { compute = { f32 = 100 MFLOP/s, f16 = 10 MFLOP/s }, memory = 1 GiB, bandwidth = 100 GB/s }
    device right { compute = { f32 = 10 MFLOP/s, f16 = 100 MFLOP/s }, memory = 1 GiB, bandwidth = 100 GB/s }
    node host = 1 * left, 1 * right over { bandwidth = 10 GB/s, latency = 0 us }
}
"""


def cheapest(tried: Tried) -> float:
    """The best true cost that a short search finds: an upper bound of the least."""
    pricing = cutting_planes(tried.space.graph)
    assert pricing.elimination is not None
    return best_first(pricing.elimination, tried.seconds, 0.0, Limits(leaves=30)).cost


def grid(units: int, devices: int) -> list[list[int]]:
    every = itertools.product(range(units + 1), repeat=devices)
    return [list(s) for s in every if sum(s) == units]


def test_each_dtype_has_its_own_fast_device() -> None:
    """What is cut for the fast device of each dtype overlaps in one stage: the sum of each at its best speed is no bound."""
    graph, made = training(TWO_DTYPES, train=False), cluster(CROSSED)
    assert {"rows", "columns"} <= set(graph.classes)
    other = {c: np.array([k.units, 0]) for c, k in graph.classes.items()}
    bound = bound_any_shares(graph, layout_of(other, 2), made)
    assert bound is not None
    costs = [
        cheapest(Tried(graph, made, {**other, "rows": np.array([r, 8 - r]), "columns": np.array([c, 8 - c])}))
        for r, c in ((8, 0), (4, 4), (7, 1), (0, 8))
    ]
    flops = 2 * 8 * 64 * 64
    assert min(costs) == pytest.approx(flops / 100e6, rel=1e-3)  # side by side
    assert 0 < bound <= min(costs)
    assert 2 * flops / 110e6 > min(costs), "this is what prices per dtype would claim"


@pytest.mark.parametrize("machines", CLUSTERS)
@pytest.mark.parametrize("model", MODELS)
def test_no_cut_is_below_the_bound_for_all_cuts(model: str, machines: str) -> None:
    graph, made = training(MODELS[model]), cluster(CLUSTERS[machines])
    every = cuts(graph, made)
    bound = bound_any_shares(graph, layout_of(every["even"], len(made)), made)
    assert bound is not None and bound > 0
    rng = np.random.default_rng(1)
    tried: list[Shares] = [every["by speed"], every["zero"]]
    tried += [
        {c: rng.multinomial(k.units, rng.dirichlet(np.ones(len(made)))) for c, k in graph.classes.items()}
        for _ in range(2)
    ]
    assert bound <= min(cheapest(Tried(graph, made, s)) for s in tried) * (1 + 1e-9)


UNEVEN = """
cluster uneven {
    device one { compute = 1 GFLOP/s, memory = 1 GiB, bandwidth = 100 GB/s }
    node host = 2 * one over { bandwidth = 1 MB/s, latency = 1 us }
    measured all_gather_grouped      { 10 B = 900 us, 10 KB = 1 ms }
    measured all_gather_grouped at 2 { 10 B = 90 us,  10 KB = 100 us }
    measured reduce_scatter_grouped      { 10 B = 900 us, 10 KB = 1 ms }
    measured reduce_scatter_grouped at 2 { 10 B = 90 us,  10 KB = 100 us }
    measured all_reduce { 10 B = 900 us, 10 KB = 1 ms }
    measured all_to_all { 10 B = 900 us, 10 KB = 1 ms }
}
"""


def test_no_cut_is_below_it_where_messages_of_uneven_shares_are_quicker() -> None:
    """As `grouped` ones may be where one device has most of a tensor; here of the product, which is cut, and gathered for the sum."""
    graph, made = training(MODELS["one product"]), cluster(UNEVEN)
    gathered = Restriction(
        lambda node, rule: {"y": rule.outputs[0] == S(0), "loss": rule.inputs[0] == R}.get(node.outputs[0], True)
    )
    every = cuts(graph, made)
    bound = bound_any_shares(graph, layout_of(every["even"], 2), made, Structure(graph, gathered, ()))
    least = min(cheapest(Tried(graph, made, s, restriction=gathered)) for s in every.values())
    assert bound is not None and 0 < bound <= least * (1 + 1e-9)


BUFFER_IN_TURNS = """
model kept(batch = 8, d = 4096, turns = 4) {
    input x : f32[batch, d]
    param w : f32[d]
    buffer b : f32[d]
    microbatch turns {
        b.new = gelu(b)
        y = mul(x, w)
        loss = sum(y, [0, 1])
    }
    train loss with sgd(lr = 0.1)
}
"""


def test_a_buffer_made_in_turns_is_sent_once() -> None:
    """At the end of the step, however often it is computed: no program is below its bound, the search beyond any gap included (HAP690)."""
    graph, made = training(BUFFER_IN_TURNS), cluster(CLUSTERS["pair"])
    sent = Restriction(
        lambda node, rule: "b.new" not in node.outputs or rule.outputs[0] == S(0),
        lambda name, placement: name != "b" or placement == R,
    )
    tried = Tried(graph, made, cuts(graph, made)["even"], restriction=sent)
    for a in itertools.islice(everything(tried.space.graph, np.random.default_rng(0)), 40):
        bound = tried.space.graph.plain(a) + tried.space.graph.component_sums(a).max()
        assert bound <= tried.seconds(a) * (1 + 1e-9)
    found = plan(graph, made, gap=-1.0, baselines=False)
    assert found.bound_s <= found.cost_s


def test_a_batch_in_turns_is_worked_through_in_all_of_them() -> None:
    """What all shares are bounded by, and what no step is shorter than, counts what is cut in each turn: as much as of the batch at once."""
    turned, made = example("accumulate"), clusters()["shared_memory"]
    whole = turned.undivided
    assert (turned.turns, whole.turns) == (2, 1)
    assert floor(turned, made) == pytest.approx(floor(whole, made), rel=0.05)
    even = layout_of(proportional(turned, np.ones(len(made))), len(made))
    in_turns, at_once = (bound_any_shares(g, even, made, Structure(g, None, ())) for g in (turned, whole))
    assert in_turns is not None and at_once is not None and in_turns > 0.95 * at_once
    assert in_turns <= plan(turned, made, baselines=False).cost_s


@pytest.mark.parametrize("seed", range(30))
def test_a_message_costs_at_least_its_floor_and_its_bytes(seed: int) -> None:
    """Curves of any shape: also those that are steep at first, flat in between, or zero below their first point."""
    rng = np.random.default_rng(seed)
    sizes = np.cumsum(rng.integers(1, 2000, rng.integers(2, 6))).astype(float)
    times = np.cumsum(rng.exponential(rng.choice([1e-6, 1e-3], len(sizes))))
    curve = Curve(tuple(zip(sizes.tolist(), times.tolist(), strict=True)))
    made = cluster(CLUSTERS["pair"])
    measured = type(made)(made.name, made.devices, made.nodes, made.network, {"all_reduce": curve})
    least = float(rng.integers(1, 3000))
    usual = float(rng.choice([1.0, least, sizes[-1], 1e5]))
    split = Split(measured, least, usual)
    floor, light = split.floor("all_reduce of gradients"), split.light.measured["all_reduce"]
    for size in (least, *np.geomspace(least, 1e6, 50), *(s for s in sizes if s >= least)):
        assert floor + light.seconds(size) <= curve.seconds(size) * (1 + 1e-9) + 1e-15
        half = size / 2  # two operands add up to one message
        assert 2 * light.seconds(half) <= light.seconds(size) * (1 + 1e-9) + 1e-18


@pytest.mark.parametrize("known", [(), ("all_reduce_ring",), ("all_reduce_tree", "all_gather_grouped")])
@pytest.mark.parametrize("machines", [CLUSTERS["network"], CLUSTERS["three"].replace("2 * slow", "4 * slow")])
def test_no_method_undercuts_a_message_s_floor_and_its_bytes(machines: str, known: tuple[str, ...]) -> None:
    """A tree is cheaper than a ring for short messages only, so the least price isn't one line of the bytes; any method counts that a line may name."""
    made = cluster(machines)
    curve = Curve(((0.0, 30e-6), (200.0, 31e-6), (1e5, 6e-3)))
    made = replace(made, measured={**made.measured, **dict.fromkeys(known, curve)})
    split, n = Split(made, 4.0, 2.0**20), len(made)
    taken = set()
    for shared, (_, kinds) in SHARED.items():
        for kind, total in itertools.product(kinds, (4, *np.geomspace(5, 1e7, 40))):
            shares = np.array([total / 2, *[total / 2 / (n - 1)] * (n - 1)])
            least = split.floor(shared) + best_method(kind, shares, total, split.light)[1]
            if kind == "all_reduce":
                steeper = split.floor(shared) + total * split.chord(2e4)
                assert total > 2e4 or steeper <= best_method(kind, shares, total, made)[1] * (1 + 1e-9)
                least = max(least, steeper) if total <= 2e4 else least
            for method in METHODS[kind]:
                assert least <= collective_seconds(kind, method, shares, total, made) * (1 + 1e-9)
            taken.add(best_method(kind, shares, total, made)[0])
    assert ("tree" in taken) == ("all_reduce_tree" in known or (not known and made.network is None))


def test_flags_are_worth_a_latency_each() -> None:
    """Choices stand for an assignment with those flags up that they need; each other one costs a latency more than that."""
    graph, made = training(MODELS["one product"]), cluster(CLUSTERS["latency"])
    tried = Tried(graph, made, cuts(graph, made)["even"])
    structure, floor = tried.space.structure, tried.space.conversions.split.floor
    assert structure.flags and set(structure.flags) <= set(SHARED)
    seen = set()
    for a in itertools.islice(everything(tried.space.graph), 200):
        choice = tried.space.choice(a)
        back = structure.assignment(choice)
        assert tried.space.choice(back) == choice
        spare = [kind for kind, v in structure.flags.items() if a[v] != back[v]]
        assert all(a[structure.flags[kind]] for kind in spare) and structure.spare(a) == bool(spare)
        more = sum(floor(kind) for kind in spare)
        assert tried.space.graph.plain(a) == pytest.approx(tried.space.graph.plain(back) + more, rel=1e-12)
        seen.add(len(spare))
    assert {0, 1, 2} <= seen


@pytest.mark.parametrize("machines", ["pair", "three"])
@pytest.mark.parametrize("model", MODELS)
def test_a_footprint_is_never_above_the_peak(model: str, machines: str) -> None:
    graph, made = training(MODELS[model].replace("sgd(lr = 0.1)", "adam(lr = 0.1)")), cluster(CLUSTERS[machines])
    rng = np.random.default_rng(3)
    for shares in cuts(graph, made).values():
        tried = Tried(graph, made, shares)
        space = Space(graph, tried.layout, made, memory=True)
        capacity = made.memories[[g[0] for g in space.groups]]
        for a in itertools.islice(everything(space.graph, rng), 8):
            least = (space.graph.component_sums(a)[space.held.start :].reshape(-1, len(space.groups)) + 1) * capacity
            peak = tried.cost(a).memory_bytes[[g[0] for g in space.groups]]
            assert (least <= peak + 1e-6 * capacity.max() * 1e-6).all()
            assert least.max() > 0


LAYERS = 20
DEEP = f"""
model deep(batch = 96, d = 12) {{
    input x : f32[batch, d]
    param {", ".join(f"w{n}" for n in range(LAYERS))} : f32[d, d]
    h0 = matmul(x, w0)
{"".join(f"    h{n} = matmul(gelu(h{n - 1}), w{n}){chr(10)}" for n in range(1, LAYERS))}
    loss = sum(mul(h{LAYERS - 1}, h{LAYERS - 1}), [0, 1])
    train loss with sgd(lr = 0.1)
}}
"""


def test_a_copy_that_the_backward_pass_does_not_take_counts_in_no_footprint() -> None:
    """Every activation is made in shards and gathered for the next layer; the backward pass takes the shards."""
    graph, made = training(DEEP), cluster(CLUSTERS["pair"])
    activations = {n for node in graph.nodes if node.op == "gelu" for n in node.outputs}

    def allow(node: Node, rule: Rule) -> bool:
        if node.section == "forward":
            return {"matmul": rule.inputs == (R, S(1)), "gelu": rule.outputs == (S(1),)}.get(node.op, True)
        return all(p == S(1) for n, p in zip(node.inputs, rule.inputs, strict=True) if n in activations)

    within = Restriction(allow)
    tried = Tried(graph, made, cuts(graph, made)["even"], restriction=within)
    space = Space(graph, tried.layout, made, memory=True, restriction=within)
    for a in itertools.islice(everything(space.graph, np.random.default_rng(3)), 5):
        held = space.graph.component_sums(a)[space.held.start :].reshape(-1, len(space.groups)) + 1
        assert (held * made.memories <= tried.cost(a).memory_bytes).all()
        gathered = [o for name, o in tried.space.choice(a).offered.items() if name in activations]
        assert len(gathered) == LAYERS - 1 and all(o == (R,) for o in gathered)


# Tables that are read whole at every look-up weigh as much as their messages.
LARGE_AND_SMALL = """
op whole_table(ids[*b], table[v, d]) -> y[*b, d] {
    sum    v
    linear table
    dtype  ids = int
    dtype  y = number
    flops  b * d
    grad   table = embedding_grad(ids, y.grad, rows = v)
    torch  "hapdsl.embedding"
}
model tables(batch = 4, rows = 3000000, d = 4, out = 2) {
    input k     : i64[batch]
    input label : i64[batch]
    param t0, t1, t2, t3 : f32[rows, d]
    param w : f32[d, out]
    param b : f32[out]
    x = add(add(whole_table(k, t0), whole_table(k, t1)), add(whole_table(k, t2), whole_table(k, t3)))
    y = add(matmul(x, w), b)
    loss = cross_entropy(y, label)
    train loss with sgd(lr = 0.1)
}
"""
SLOW_TO_START = """
cluster far {
    device a { compute = 1 GFLOP/s, memory = 8 GiB, bandwidth = 10 GB/s }
    device b { compute = 2 GFLOP/s, memory = 8 GiB, bandwidth = 10 GB/s }
    node host = 1 * a, 2 * b over { bandwidth = 10 GB/s, latency = 20 ms }
}
"""


def test_one_small_message_costs_its_whole_latency_though_large_ones_may_be_many() -> None:
    """Four tables of two buckets each make messages be counted by parts, of which small parameters pay next to nothing; flags count one in full."""
    graph, made = training(LARGE_AND_SMALL), cluster(SLOW_TO_START)
    by_parts = Structure(graph)
    assert (
        "all_reduce of gradients" not in by_parts.messages
        and by_parts.buckets.parts["all_reduce of gradients"].most > MANY
    )
    once = Structure(graph, messages=tuple(SHARED), like=by_parts)
    rng = np.random.default_rng(5)
    for shares in (cuts(graph, made)["by speed"], cuts(graph, made)["even"]):
        layout = layout_of(shares, len(made))
        spaces = [Space(graph, layout, made, structure=s) for s in (by_parts, once)]
        lower, higher = (cutting_planes(s.graph) for s in spaces)
        best = []
        for space, pricing in zip(spaces, (lower, higher), strict=True):
            scheduler = Scheduler(space.conversions)
            assert pricing.elimination is not None
            seen = list(pricing.minimisers)
            for _ in range(20):  # programs anywhere in the space, not only near its minimum
                weights = rng.dirichlet(np.ones(len(space.timed)))
                graph_of = space.graph.copy()
                v = int(rng.choice(space.structure.rule_variable))
                mask = np.full(graph_of.sizes[v], np.inf)
                mask[rng.integers(len(mask))] = 0.0
                graph_of.factor((v,), mask)
                solved = eliminate(graph_of, weights)
                if solved.feasible:
                    seen.append(solved.best())
                    seconds = scheduler.seconds(space.choice(seen[-1]), "sync")
                    assert solved.bound <= seconds * (1 + 1e-9)
            true = [scheduler.seconds(space.choice(a), "sync") for a in seen]
            best.append(min(true[: len(pricing.minimisers)]))
            assert pricing.bound <= min(true) * (1 + 1e-9)
        assert best[1] < 0.75 * best[0]  # without flags, two small messages look like one
        found = plan(graph, made, fixed=shares, baselines=False)
        assert found.gap <= 0.01 and higher.bound * (1 - 1e-9) <= found.cost_s <= best[1] * (1 + 1e-9)


def test_parts_of_a_message_never_come_to_more_than_one() -> None:
    """Whatever a message holds: tensors in any order, each as often as may be, until there is a bucket of them; and one of everything."""
    rng = np.random.default_rng(6)
    for scale in (BUCKET // 400, BUCKET // 12, BUCKET):
        for repeats in (1, 2):
            sizes = rng.integers(1, scale, 20).tolist()
            parts, whole = Parts(sizes, repeats), Parts(sizes, repeats, np.inf)
            assert sum(map(whole.part, sizes)) * repeats == pytest.approx(1)
            for _ in range(50):
                message, held = [], 0
                for i in rng.permutation(np.repeat(np.arange(len(sizes)), repeats)):
                    message.append(sizes[i])
                    held += sizes[i]
                    if held >= BUCKET:
                        break
                assert sum(map(parts.part, message)) <= 1 + 1e-12
                assert sum(map(whole.part, message)) <= 1 + 1e-12
    assert Parts([], 1).part(5) == 0.0


def test_a_line_under_a_measured_curve_counts_bytes_where_small_messages_take_alike_long() -> None:
    """Under the curve everywhere, whatever its shape; and a flat beginning, as real machines have, doesn't make bytes free."""
    rng = np.random.default_rng(9)
    for _ in range(40):
        sizes = np.sort(rng.choice(np.geomspace(1, 1e8, 60), 7, replace=False))
        curve = Curve(tuple(zip(sizes.tolist(), np.maximum.accumulate(rng.random(7)).tolist(), strict=True)))
        smallest = float(rng.choice([1.0, 40.0, 1e4]))
        start, rate = _below(curve, smallest, float(rng.choice([smallest, 2.0**20, 1e8])))
        assert start >= 0 and rate >= 0
        for b in np.geomspace(smallest, 1e10, 200):
            assert start + rate * b <= curve.seconds(float(b)) * (1 + 1e-9)
    flat = Curve(((1e3, 0.015), (4e3, 0.015), (4e6, 0.05), (1.6e7, 0.22)))
    start, rate = _below(flat, 40.0, 2.0**20)
    assert start == pytest.approx(0.015, rel=0.01) and rate == pytest.approx(0.035 / 4e6, rel=0.01)


def test_of_lines_under_a_measured_curve_one_is_high_where_messages_are_long() -> None:
    """Of 10 MB by hand: the curve has .05 + .17 / 2 = .135 s there, the steepest line from nothing that it allows (.05 s at 4 MB) .125 s; the
    line along the flat beginning, which is the highest at 1 MB, only .1025 s."""
    flat = Curve(((1e3, 0.015), (4e3, 0.015), (4e6, 0.05), (1.6e7, 0.22)))
    start, rate = _below(flat, 40.0, 1e7)
    assert start + rate * 1e7 == pytest.approx(0.125) and start == pytest.approx(0.0, abs=1e-4)
