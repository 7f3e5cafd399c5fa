"""Links, cards and switches: what a group of devices meets, and the prices on it against schedules laid out flow by flow."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hapdsl.cluster import Cluster, Device, Hop, Host, Link, Wiring
from hapdsl.cost import best_method, collective_seconds, wired_seconds
from hapdsl.graph.program import METHODS
from tests.cost import schedules


def hall(
    counts: list[int], links: list[Link], network: Link | None, uplinks: list[float | None] | None = None
) -> Cluster:
    """Nodes with so many devices each, their links, the network, and the nodes' cards."""
    hosts, first = [], 0
    for k, (count, link) in enumerate(zip(counts, links, strict=True)):
        members = tuple(range(first, first + count))
        hosts.append(Host(f"n{k}", members, link if count > 1 else None, uplinks[k] if uplinks else None))
        first += count
    devices = tuple(Device(f"d{k}", "d", {"f32": 1.0}, 1.0, 1.0) for k in range(first))
    return Cluster("hall", devices, tuple(hosts), network)


@st.composite
def halls(draw: st.DrawFn, most: int = 4) -> Cluster:
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=most).filter(lambda c: sum(c) > 1))
    speed, wait = st.sampled_from([1.0, 3.0, 10.0, 40.0]), st.sampled_from([0.0, 0.5, 2.0])
    link = st.builds(Link, speed, wait, st.sampled_from([2.0, 15.0, math.inf]))
    links = [draw(link) for _ in counts]
    uplinks = [draw(st.none() | speed) for _ in counts]
    return hall(counts, links, draw(link) if len(counts) > 1 else None, uplinks)


# -- by hand --------------------------------------------------------------------------------


def test_a_switch_is_shared_by_all_that_flows() -> None:
    """Four devices of 10 bytes/s behind a switch of 20: a ring's flows get 5 each, two devices alone their 10."""
    cluster = hall([4], [Link(10, 0, switch=20)], None)
    assert cluster.link(range(4)).ring == Hop(5, 0)
    assert cluster.link([0, 1]).ring == Hop(10, 0)
    assert [w.ring.bandwidth for w in cluster.links([[0, 1], [2, 3]])] == [5, 5]
    assert cluster.link(range(4)).exchange == pytest.approx(3 / 20)  # 4 devices send 3/4 of a byte each


def test_a_network_switch_is_shared_by_the_nodes() -> None:
    """Three nodes with cards of 10 bytes/s; the switch lets 12 through, a ring sends three flows."""
    cluster = hall([1, 1, 1], [Link(1, 0)] * 3, Link(10, 1, switch=12))
    assert cluster.link([0, 1, 2]).ring == Hop(4, 1)
    assert cluster.link([0, 1]).ring == Hop(6, 1)


def test_the_slowest_uplink_slows_the_groups_that_use_it() -> None:
    cluster = hall([2, 2, 1], [Link(100, 0)] * 3, Link(10, 1), [None, 4, 25])
    assert cluster.link(range(5)).ring == Hop(4, 1)
    assert cluster.link([0, 1, 4]).ring == Hop(10, 1)
    assert cluster.link([0, 4]).across == Hop(10, 1)
    assert [w.ring.bandwidth for w in cluster.links([[0, 2], [1, 3]])] == [2, 2]  # two groups share both cards


def test_the_levels_of_a_group() -> None:
    cluster = hall([3, 2, 1], [Link(100, 1), Link(50, 2), Link(1, 9)], Link(10, 5))
    wiring = cluster.link(range(6))
    assert (wiring.nodes, wiring.most, wiring.least) == (3, 3, 1)
    assert (wiring.inside, wiring.across, wiring.ring) == (Hop(50, 2), Hop(10, 5), Hop(10, 5))
    assert cluster.link([3, 4]) == Wiring.uniform(2, 50, 2)


def test_one_card_carries_what_all_devices_of_a_node_exchange() -> None:
    """Two nodes of two: each card sends 2 × 2 quarters of a byte, while a device sends three quarters."""
    cluster = hall([2, 2], [Link(100, 0)] * 2, Link(10, 0))
    assert cluster.link(range(4)).exchange == pytest.approx(1 / 10)
    assert replace(cluster, network=Link(1000, 0)).link(range(4)).exchange == pytest.approx(3 / 4 / 100)


# -- flow by flow ---------------------------------------------------------------------------


@given(halls(), st.sampled_from([0.0, 1.0, 37.0]))
@settings(deadline=None, max_examples=150)
def test_prices_are_those_of_the_schedules(cluster: Cluster, size: float) -> None:
    n = len(cluster)
    shape = schedules.Hall(cluster, range(n))

    def price(kind: str, method: str) -> float:
        return collective_seconds(kind, method, [size] * n, size * n, cluster)

    even = len(set(map(len, shape.nodes))) == 1
    levels = len(shape.nodes) > 1 and max(map(len, shape.nodes)) > 1

    unlike = len({(h.link, h.uplink) for h in cluster.nodes}) > 1
    switched = any(math.isfinite(link.switch) for link in (cluster.network, *(h.link for h in cluster.nodes)) if link)

    def agree(kind: str, method: str, expected: float) -> None:
        """Where nodes have unlike numbers of devices, a price by levels takes the most for all of them; a tree's share of a
        switch is priced as a ring's, and all its steps as the one over the slowest hop, which only some of them cross."""
        if method in ("ring", "padded") or (even and not (method == "tree" and (switched or unlike))):
            assert price(kind, method) == pytest.approx(expected)
        else:
            assert expected * (1 - 1e-9) <= price(kind, method)

    for method in ("ring", "tree", "hierarchical") if levels else ("ring", "tree"):
        agree("all_reduce", method, schedules.all_reduce(shape, method, size * n))
    for method in ("padded", "hierarchical") if levels else ("padded",):
        for kind in ("all_gather", "reduce_scatter"):
            agree(kind, method, schedules.all_gather(shape, method, size))
    assert price("all_to_all", "pairwise") == pytest.approx(schedules.all_to_all(shape, size))
    if levels:
        agree("all_to_all", "hierarchical", schedules.all_to_all_by_levels(shape, size))


def test_an_all_to_all_by_levels_by_hand() -> None:
    """Two nodes of two, 80 bytes each: half of it to the other one at 10 bytes/s after 1 s, then 2 x 40 bytes from a node through its card of 4 bytes/s
    after 5 s. Pairwise the card carries as much, but every device waits three times for the network."""
    cluster = hall([2, 2], [Link(10, 1)] * 2, Link(4, 5))
    prices = {m: collective_seconds("all_to_all", m, [80] * 4, 320, cluster) for m in METHODS["all_to_all"]}
    assert prices == {
        "hierarchical": pytest.approx(40 / 10 + 1 + 80 / 4 + 5),
        "pairwise": pytest.approx(80 / 4 + 3 * 5),
    }
    assert best_method("all_to_all", [80] * 4, 320, cluster)[0] == "hierarchical"
    assert best_method("all_to_all", [800] * 4, 3200, cluster)[0] == "pairwise"


# -- prices against each other -----------------------------------------------------------------


@given(halls(), st.data())
@settings(deadline=None, max_examples=150)
def test_prices_hang_together(cluster: Cluster, data: st.DataObject) -> None:
    """More bytes never cost less; one message never more than two; all_reduce never more than reduce_scatter and all_gather."""
    n = len(cluster)
    sizes = st.lists(st.integers(0, 100), min_size=n, max_size=n)
    a, b = data.draw(sizes), data.draw(sizes)
    both = [x + y for x, y in zip(a, b, strict=True)]
    slack = 1 + 1e-9

    def best(kind: str, held: list[int]) -> float:
        return best_method(kind, held, sum(held), cluster)[1]

    for kind, methods in METHODS.items():
        for method in methods:
            one, two, together = (collective_seconds(kind, method, s, sum(s), cluster) for s in (a, b, both))
            assert max(one, two) <= together * slack
            assert together <= (one + two) * slack
    assert best("all_reduce", a) <= (best("reduce_scatter", a) + best("all_gather", a)) * slack
    assert best("all_gather", a) == best("reduce_scatter", a)


@given(st.integers(1, 4), st.integers(1, 4), st.data())
@settings(deadline=None, max_examples=150)
def test_an_all_gather_never_costs_more_than_doing_it_in_two_steps(nodes: int, each: int, data: st.DataObject) -> None:
    """Across the nodes and then within them, or the other way round, all groups of a step at once, each by its cheapest
    method; where a node's devices have links that together carry what its card does, and equal shares: padding on two levels counts the
    largest share twice."""
    link = Link(data.draw(st.sampled_from([10.0, 40.0])), data.draw(st.sampled_from([0.0, 0.5])))
    network = Link(data.draw(st.sampled_from([1.0, 3.0, 10.0])), data.draw(st.sampled_from([0.5, 2.0])))
    cluster = hall([each] * nodes, [link] * nodes, network if nodes > 1 else None)
    held = [data.draw(st.integers(0, 50))] * (nodes * each)
    rows = [list(h.devices) for h in cluster.nodes]
    columns = [list(c) for c in zip(*rows, strict=True)]
    at_once = best_method("all_gather", held, sum(held), cluster)[1]
    for first, then in ((rows, columns), (columns, rows)):
        seconds = step(cluster, first, held)
        gathered = [0] * len(held)
        for group in first:
            for d in group:
                gathered[d] = sum(held[e] for e in group)
        assert at_once <= (seconds + step(cluster, then, gathered)) * (1 + 1e-9)


def step(cluster: Cluster, groups: list[list[int]], held: list[int]) -> float:
    prices = []
    for group, wiring in zip(groups, cluster.links(groups), strict=True):
        mine = [held[d] for d in group]
        prices.append(best_method("all_gather", mine, sum(mine), cluster, group, wiring)[1])
    return max(prices)


@given(halls())
@settings(deadline=None)
def test_a_better_cluster_is_never_slower(cluster: Cluster) -> None:
    """Without switches, and with cards as fast as the network's."""
    hosts = tuple(replace(h, link=h.link and replace(h.link, switch=math.inf), uplink=1e9) for h in cluster.nodes)
    freed = replace(
        cluster, nodes=hosts, network=cluster.network and replace(cluster.network, switch=math.inf, bandwidth=1e9)
    )
    for kind, methods in METHODS.items():
        for method in methods:
            slow, fast = (collective_seconds(kind, method, [7] * len(c), 7 * len(c), c) for c in (cluster, freed))
            assert fast <= slow * (1 + 1e-9)


def test_what_does_not_exist_has_no_price() -> None:
    with pytest.raises(ValueError, match="unknown collective"):
        wired_seconds("all_reduce", "padded", 1, 1, Wiring.uniform(4, 1, 1))
