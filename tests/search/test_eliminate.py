"""Elimination against the enumeration of every assignment."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hapdsl.search.eliminate as eliminate_module
from hapdsl.search.eliminate import TooWide, eliminate
from hapdsl.search.enumeration import KBest
from hapdsl.search.factors import FactorGraph, TableStore, Variable
from hapdsl.search.removal import narrowest, order, width

from .conftest import min_marginals

SEEDS = range(300)


@st.composite
def small_graphs(draw: st.DrawFn) -> FactorGraph:
    """Graphs that hypothesis can shrink; small whole numbers, so there are ties."""
    graph = FactorGraph()
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    for i, size in enumerate(sizes):
        graph.variable(f"v{i}", size)
    entry = st.one_of(st.integers(-3, 3).map(float), st.just(math.inf))
    for _ in range(draw(st.integers(0, 6))):
        scope = draw(st.lists(st.integers(0, len(sizes) - 1), max_size=3, unique=True))
        shape = tuple(sizes[v] for v in scope)
        cells = draw(st.lists(entry, min_size=math.prod(shape), max_size=math.prod(shape)))
        graph.factor(scope, np.array(cells).reshape(shape))
    return graph


@given(small_graphs())
@settings(max_examples=150, deadline=None)
def test_any_graph_equals_brute_force(graph: FactorGraph) -> None:
    every = [graph.cost(a) for a in itertools.product(*(range(s) for s in graph.sizes))]
    solved = eliminate(graph)
    assert solved.bound == min(every)
    assert solved.feasible == (min(every) < math.inf)
    if solved.feasible:
        assert graph.cost(solved.best()) == min(every)


@pytest.mark.parametrize("components", [0, 3])
def test_random_graphs_equal_brute_force(random_graph, brute_force, components: int) -> None:
    infeasible = unbounded_entries = 0
    for seed in SEEDS:
        graph = random_graph(seed, components=components, forbidden=0.45 if seed % 5 == 0 else 0.15, ties=seed % 3 == 0)
        prices = np.random.default_rng(seed).random(components) if components else None
        ranked = brute_force(graph, prices)
        solved = eliminate(graph, prices)
        unbounded_entries += any(np.isinf(table).any() for table in graph.tables)
        if not ranked:
            infeasible += 1
            assert solved.bound == math.inf and not solved.feasible
            with pytest.raises(ValueError, match="no assignment"):
                solved.best()
            continue
        assert solved.bound == pytest.approx(ranked[0][0], rel=1e-12, abs=1e-12)
        assert graph.cost(solved.best(), prices) == pytest.approx(ranked[0][0], rel=1e-12, abs=1e-12)
    assert infeasible >= 10 and unbounded_entries >= 200  # the cases are what they claim to be


def marginals_by_force(graph: FactorGraph, ranked: list[tuple[float, tuple[int, ...]]]) -> list[np.ndarray]:
    result = [np.full(size, np.inf) for size in graph.sizes]
    for cost, assignment in ranked:
        for v, value in enumerate(assignment):
            result[v][value] = min(result[v][value], cost)
    return result


@pytest.mark.parametrize("whole_cells", [eliminate_module.WHOLE_CELLS, 0], ids=["whole", "slice by slice"])
def test_min_marginals_equal_brute_force(random_graph, brute_force, monkeypatch, whole_cells: int) -> None:
    monkeypatch.setattr(eliminate_module, "WHOLE_CELLS", whole_cells)
    for seed in SEEDS:
        graph = random_graph(seed, components=2, ties=seed % 2 == 0)
        prices = np.array([0.25, 1.5])
        ranked = brute_force(graph, prices)
        solved = eliminate(graph, prices)
        assert solved.bound == pytest.approx(ranked[0][0] if ranked else math.inf, rel=1e-12, abs=1e-12)
        for v, expected in enumerate(marginals_by_force(graph, ranked)):
            np.testing.assert_allclose(min_marginals(solved)[v], expected, rtol=1e-10, atol=1e-10)


def test_any_order_gives_the_same_answer(random_graph) -> None:
    for seed in range(60):
        graph = random_graph(seed)
        rng = np.random.default_rng(seed)
        greedy = eliminate(graph)
        shuffled = eliminate(graph, order=[int(v) for v in rng.permutation(len(graph.sizes))])
        assert shuffled.bound == pytest.approx(greedy.bound, rel=1e-12, abs=1e-12)
        if greedy.feasible:
            for a, b in zip(min_marginals(greedy), min_marginals(shuffled), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def layered(layers: int, seed: int = 0, size: int = 5, different: bool = False) -> FactorGraph:
    """Equal layers in a chain, three variables each, a skip from layer to layer; or layers that all differ."""
    rng = np.random.default_rng(seed)
    graph = FactorGraph()
    tables = [rng.random((size, size)) for _ in range(4)]
    before: int | None = None
    for layer in range(layers):
        if different:
            tables = [rng.random((size, size)) for _ in range(4)]
        a, b, c = (graph.variable(f"{name}{layer}", size) for name in "abc")
        graph.factor((a, b), tables[0])
        graph.factor((b, c), tables[1])
        graph.factor((a, c), tables[2])
        if before is not None:
            graph.factor((before, a), tables[3])
        before = c
    return graph


@pytest.mark.parametrize("different", [False, True])
def test_reuse_changes_nothing(different: bool) -> None:
    graph = layered(40, different=different)
    reused, anew = eliminate(graph), eliminate(graph, memo=False)
    assert reused.bound == anew.bound
    assert reused.best() == anew.best()
    for a, b in zip(min_marginals(reused), min_marginals(anew), strict=True):
        np.testing.assert_array_equal(a, b)
    assert anew.kernels == len(graph.sizes)
    assert graph.cost(reused.best()) == pytest.approx(reused.bound, rel=1e-12)


def test_equal_layers_are_solved_once() -> None:
    """However deep, the number of buckets that are computed stays: messages are kept without their minimum."""
    assert eliminate(layered(400)).kernels == eliminate(layered(100)).kernels <= 40


def beside_all(layers: int) -> FactorGraph:
    """Equal layers in a chain, and two variables that every layer looks at: each of their values costs a layer something else."""
    graph = layered(layers)
    rng = np.random.default_rng(1)
    flag, held = graph.variable("flag", 2), graph.variable("held", 3)
    first = np.where(rng.random((2, 5)) < 0.3, np.inf, 0.02 * rng.random((2, 5)))
    both = rng.random((2, 3, 5))
    for layer in range(layers):
        graph.factor((flag, 3 * layer), first)
        graph.factor((flag, held, 3 * layer + 1), both)
    graph.factor((flag,), [0.0, 0.3])
    return graph


def test_equal_layers_beside_a_hub_are_solved_once() -> None:
    """Messages that grow by another constant for each value of a hub repeat, too; without hubs every layer is computed."""
    few, many = eliminate(beside_all(100)), eliminate(beside_all(400))
    assert few.kernels == many.kernels <= 60
    assert eliminate(beside_all(100), hub=10**6).kernels > 100
    graph = beside_all(60)
    alone = [eliminate(fixed(graph, flag, held)).bound for flag in range(2) for held in range(3)]
    solved = eliminate(graph)
    assert solved.bound == pytest.approx(min(alone), rel=1e-12)
    assert graph.cost(solved.best()) == pytest.approx(solved.bound, rel=1e-12)
    np.testing.assert_allclose(
        min_marginals(solved)[graph.names.index("held")], np.reshape(alone, (2, 3)).min(axis=0), rtol=1e-10
    )


def fixed(graph: FactorGraph, flag: int, held: int) -> FactorGraph:
    """The graph of `beside_all` with both hubs fixed."""
    other = graph.copy()
    for name, value in (("flag", flag), ("held", held)):
        v = other.names.index(name)
        other.factor((v,), [0.0 if k == value else np.inf for k in range(other.sizes[v])])
    return other


@pytest.mark.parametrize("hub", [1, 3])
def test_hubs_change_no_answer(random_graph, brute_force, hub: int) -> None:
    """On graphs of all sorts, with many variables as hubs: bound, minimiser, min-marginals and the enumeration by cost."""
    for seed in range(20):
        graph = random_graph(seed, components=2, forbidden=0.45 if seed % 5 == 0 else 0.15, ties=seed % 3 == 0)
        prices = np.array([0.25, 1.5])
        ranked = brute_force(graph, prices)
        solved = eliminate(graph, prices, hub=hub)
        assert solved.bound == pytest.approx(ranked[0][0] if ranked else math.inf, rel=1e-12, abs=1e-12)
        for v, expected in enumerate(marginals_by_force(graph, ranked)):
            np.testing.assert_allclose(min_marginals(solved)[v], expected, rtol=1e-10, atol=1e-10)
        listed = list(itertools.islice(KBest(solved), 20))
        np.testing.assert_allclose([c for c, _ in listed], [c for c, _ in ranked[:20]], rtol=1e-10, atol=1e-10)
        assert all(graph.cost(a, prices) == pytest.approx(c, rel=1e-10, abs=1e-10) for c, a in listed)


def test_width_is_known_beforehand() -> None:
    """The symbolic width is that of the tables really made, and refuses before any is."""
    graph = layered(10)
    plan = order(graph)
    solved = eliminate(graph, order=plan)
    cells = [math.prod(bucket.kernel.shape) for bucket in solved.buckets]
    assert (plan.peak, plan.total) == (max(cells), sum(cells))
    assert width(graph, plan.variables) == plan
    wide = FactorGraph()
    for i in range(40):
        wide.variable(f"v{i}", 10)
    for u, v in itertools.combinations(range(40), 2):
        wide.factor((u, v), np.zeros((10, 10)))
    started = time.process_time()
    with pytest.raises(TooWide) as caught:
        eliminate(wide)
    assert caught.value.cells == 10**40 and time.process_time() - started < 5
    with pytest.raises(TooWide):
        eliminate(graph, max_total=plan.total - 1)
    with pytest.raises(ValueError, match="once"):
        eliminate(graph, order=[0, 0, 1])


def test_the_width_of_random_graphs_is_that_of_their_tables(random_graph) -> None:
    for seed in range(100):
        graph = random_graph(seed, variables=9)
        plan = order(graph)
        cells = [math.prod(bucket.kernel.shape) for bucket in eliminate(graph, order=plan).buckets]
        assert (plan.peak, plan.total) == (max(cells), sum(cells))


def test_an_order_by_blocks(random_graph) -> None:
    """Block after block, with the width that its tables have; the answer is that of any order."""
    for seed in range(60):
        graph = random_graph(seed, variables=9)
        blocks = np.random.default_rng(seed).integers(0, 3, len(graph.sizes)).tolist()
        plan = order(graph, blocks)
        assert [blocks[v] for v in plan.variables] == sorted(blocks[v] for v in plan.variables)
        assert plan == width(graph, plan.variables)
        assert eliminate(graph, order=plan).bound == pytest.approx(eliminate(graph).bound, rel=1e-12)


def test_what_stands_beside_everything_comes_last() -> None:
    """Hubs (the flags of messages) hide from a greedy order which buckets are wide: left to the end they cost less, and change no answer."""
    rng = np.random.default_rng(8)
    ladder = FactorGraph()
    rails = [[ladder.variable(f"{side}{i}", 4) for i in range(12)] for side in "ab"]
    hubs = [ladder.variable(f"hub {i}", 2) for i in range(4)]
    for rail in rails:
        for pair in itertools.pairwise(rail):
            ladder.factor(pair, rng.random((4, 4)))
    for i, rung in enumerate(zip(*rails, strict=True)):
        ladder.factor(rung, rng.random((4, 4)))
        for v in rung[: 1 + i % 2]:
            ladder.factor((v, hubs[i % 4]), rng.random((4, 2)))
    greedy, late = order(ladder), order(ladder, last=hubs)
    assert set(late.variables[-len(hubs) :]) == set(hubs)
    assert late == width(ladder, late.variables)
    assert narrowest(ladder, [0] * len(ladder.sizes), hubs).peak <= greedy.peak
    assert eliminate(ladder, order=late).bound == pytest.approx(eliminate(ladder, order=greedy).bound, rel=1e-12)


def test_a_long_chain_of_different_tables() -> None:
    """4,000 variables of size 8: width two, and the answer of a plain forward recursion."""
    rng = np.random.default_rng(7)
    graph = FactorGraph()
    tables = [rng.random((8, 8)) for _ in range(3999)]
    for i in range(4000):
        graph.variable(f"v{i}", 8)
    for i, table in enumerate(tables):
        graph.factor((i, i + 1), table)
    forward = np.zeros(8)
    for table in tables:
        forward = (forward[:, None] + table).min(axis=0)
    started = time.process_time()
    solved = eliminate(graph)
    assert time.process_time() - started < 20  # about 0.3 s
    assert order(graph).peak == 64
    assert solved.bound == pytest.approx(forward.min(), rel=1e-12)
    assert graph.cost(solved.best()) == pytest.approx(solved.bound, rel=1e-12)
    np.testing.assert_allclose(min_marginals(solved)[3999], forward, rtol=1e-10)


def test_same_input_same_answer(random_graph) -> None:
    for seed in range(30):
        one, two = (eliminate(random_graph(seed, ties=True)) for _ in range(2))
        assert one.order == two.order and one.bound == two.bound
        assert not one.feasible or one.best() == two.best()


def test_equal_tables_are_kept_once() -> None:
    store = TableStore()
    table = np.arange(6.0).reshape(2, 3)
    first = store.intern(table)
    assert store.intern(table.copy()) == first
    assert store.intern(np.asfortranarray(table)) == first
    assert store.intern(table.reshape(3, 2)) != first
    assert store.intern(np.array(-0.0)) == store.intern(np.array(0.0))
    table[0, 0] = 9.0  # a writeable array may change under us: the content counts, not the object
    assert store.intern(table) != first and store.tables[first][0, 0] == 0.0


def test_a_copy_is_extended_alone() -> None:
    graph = layered(3)
    free = eliminate(graph)
    pinned = graph.copy()
    worst = int(np.argmax(min_marginals(free)[4]))
    pinned.factor((4,), [0.0 if value == worst else np.inf for value in range(5)])
    assert eliminate(pinned).bound == pytest.approx(min_marginals(free)[4][worst], rel=1e-12)
    assert eliminate(graph).bound == free.bound
    assert graph.variables[4] == Variable("b1", 5)


def test_infinite_components_forbid_at_every_price() -> None:
    graph = FactorGraph()
    v = graph.variable("v", 2)
    graph.priced_factor((v,), [[0.0, 5.0], [np.inf, 5.0]])
    assert eliminate(graph, [1.0, 0.0]).best() == (1,)
    assert graph.cost((0,), [1.0, 0.0]) == math.inf


def test_wrong_use_is_refused() -> None:
    graph = FactorGraph()
    v, w = graph.variable("v", 2), graph.variable("w", 3)
    with pytest.raises(ValueError, match="at least one value"):
        graph.variable("none", 0)
    with pytest.raises(ValueError, match="shape"):
        graph.factor((v, w), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="twice"):
        graph.factor((v, v), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="no variable"):
        graph.factor((7,), np.zeros(2))
    for bad in (np.nan, -np.inf):
        with pytest.raises(ValueError, match="NaN"):
            graph.factor((v,), [0.0, bad])
    graph.priced_factor((v,), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="2 components"):
        graph.priced_factor((v,), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="prices"):
        eliminate(graph)
    with pytest.raises(ValueError, match="prices"):
        eliminate(graph, [1.0])
    with pytest.raises(ValueError, match="values 0"):
        graph.cost((0, -1), [0.0, 0.0])
    with pytest.raises(ValueError, match="1 values for 2 variables"):
        graph.cost((0,), [0.0, 0.0])
    with pytest.raises(ValueError, match=r"of sizes \(2,\), not those of \(1,\)"):
        graph.spread([((v,), "alike"), ((w,), "alike")], lambda n: np.zeros(2), False)
