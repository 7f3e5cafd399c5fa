"""Trees and two-level collectives on four gloo processes that stand in nodes of several shapes, against the in-process executor."""

from __future__ import annotations

import os
import random

import pytest
import torch
import torch.distributed as dist

from hapdsl.graph.program import METHODS, Layout
from hapdsl.run import collectives, levels
from hapdsl.run.distributed import Rank
from hapdsl.run.everybody import texts
from hapdsl.run.groups import Group
from hapdsl.run.inprocess import InProcess
from hapdsl.run.launch import launch
from hapdsl.run.moves import PHASED
from hapdsl.run.validate import random_layout
from hapdsl.theory.placements import P, R, S
from tests.run.helpers import SHAPES, SHARES, Case, case, inputs_of, spread

RANKS = 4
NODES = {
    "two and two": "aabb",
    "one after the other": "abab",
    "three and one": "aaab",
    "two, one, one": "abac",
    "one": "aaaa",
    "four": "abcd",
}
JOURNEYS = {"all_reduce": [P, R], "all_gather": [S(0), R], "reduce_scatter": [P, S(1)], "all_to_all": [S(0), S(1)]}


def cases() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for op, path in JOURNEYS.items():
        for method in METHODS[op]:
            for pattern, rows in SHARES.items():
                graph = inputs_of(SHAPES[:1], ["f64"])
                shares = {c: {(0,): spread(rows[int(c[-1]) % 2], u.units)} for c, u in graph.classes.items()}
                found[f"{op}, {method}, {pattern}"] = case(
                    graph, Layout((("devices", RANKS),), shares), [[(p,)] for p in path], method, 1
                )
            graph = inputs_of(SHAPES, ["f64", "f32", "f64"])
            layout = random_layout(graph, (("devices", RANKS),), random.Random(4))
            found[f"{op}, {method}, three operands"] = case(graph, layout, [[(p,)] * 3 for p in path], method, 2)
    graph = inputs_of(SHAPES[:1], ["f64"])
    layout = random_layout(graph, (("outer", 2), ("inner", 2)), random.Random(3))
    moves = [[(P, P)], [(P, R)], [(R, R)]]
    found["two axes"] = case(graph, layout, moves, "tree", 3)
    return found


CASES = cases()


def looks(one: Case) -> bool:
    """Does a program's way depend on the nodes? Others go one way on all of them, and are tried on one."""
    return any(i.method in PHASED for i in one.program.instructions)


def work(reporter, chosen):
    for nodes, letters in NODES.items():
        os.environ["HAPDSL_NODE"] = letters[int(os.environ["RANK"])]
        for name, one in chosen.items():
            if nodes != "one" and not looks(one):
                continue
            rank = Rank(one.program, keep_all=True)
            rank.held = {v: locals[rank.rank] for v, locals in one.held.items()}
            for value, local in rank.step({}).items():
                reporter.send("value", local, nodes=nodes, case=name, value=str(value))


@pytest.fixture(scope="module")
def reported():
    found: dict[tuple[str, str, str], dict[int, torch.Tensor]] = {}

    def receive(rank, header, tensor):
        found.setdefault((header["nodes"], header["case"], header["value"]), {})[rank] = tensor

    launch(work, RANKS, (CASES,), receive, method="fork")
    return found


@pytest.mark.parametrize("name", CASES)
def test_ranks_hold_what_the_inprocess_executor_holds(name, reported):
    one = CASES[name]
    executor = InProcess(one.program, keep_all=True)
    executor.held = dict(one.held)
    for value, locals in executor.step({}).items():
        for nodes in NODES if looks(one) else ["one"]:
            mine = reported[nodes, name, str(value)]
            for rank, local in enumerate(locals):
                assert mine[rank].dtype == local.dtype
                assert torch.equal(mine[rank], local), (nodes, value, rank)


def two_groups():
    """Three ranks each, along the inner axis, of which two share a node."""
    found = {}
    for op, path in JOURNEYS.items():
        graph = inputs_of(SHAPES[:1], ["f64"])
        layout = random_layout(graph, (("outer", 2), ("inner", 3)), random.Random(len(op)))
        found[op] = case(graph, layout, [[(R, p)] for p in path], "hierarchical", 5)
    return found


def in_two_groups(reporter, chosen):
    os.environ["HAPDSL_NODE"] = "aabcdd"[dist.get_rank()]
    for op, one in chosen.items():
        rank = Rank(one.program, keep_all=True)
        rank.held = {v: locals[rank.rank] for v, locals in one.held.items()}
        nodes = rank.groups[1].levels.nodes
        for value, local in rank.step({}).items():
            reporter.send("value", local, op=op, value=str(value), nodes=nodes)


def test_groups_beside_one_another_have_levels_of_their_own():
    """Every rank helps to make those of groups that it isn't in, and knows its own only."""
    chosen, found = two_groups(), {}

    def receive(rank, header, tensor):
        assert list(map(list, header["nodes"])) == ([[0, 1], [2]] if rank < 3 else [[0], [1, 2]])
        found[rank, header["op"], header["value"]] = tensor

    launch(in_two_groups, 6, (chosen,), receive, method="fork")
    for op, one in chosen.items():
        executor = InProcess(one.program, keep_all=True)
        executor.held = dict(one.held)
        for value, locals in executor.step({}).items():
            for rank, local in enumerate(locals):
                assert torch.equal(found[rank, op, str(value)], local), (op, value, rank)


SAID = ["", "häp", "a longer one", "x"]


def says(reporter):
    reporter.send("heard", texts=texts(SAID[dist.get_rank()]), nothing=texts(""))


def test_texts_of_any_length_are_known_to_all():
    heard = []
    launch(says, RANKS, (), lambda rank, header, _: heard.append((header["texts"], header["nothing"])), method="fork")
    assert heard == [(SAID, [""] * RANKS)] * RANKS


def test_levels_are_used(monkeypatch):
    """Ranks on one host have none; with two in each node a hierarchical gather goes across and then within."""
    made = []
    monkeypatch.setattr(levels.dist, "new_group", lambda ranks: made.append(tuple(ranks)))
    group = Group((0, 1, 2, 3), 2)
    assert levels.levels(group, ["host"] * 4) is None
    assert levels.levels(group, list("abcd")) is None
    assert made == []
    found = levels.levels(group, list("aabb"))
    assert found is not None and found.across is not None
    assert made == [(0, 1), (2, 3), (0, 2), (1, 3)]
    assert (found.nodes, found.mine, found.place) == (((0, 1), (2, 3)), 1, 0)
    assert (found.inside.ranks, found.across.ranks, found.across.me) == ((2, 3), (0, 2), 1)
    uneven = levels.levels(Group((0, 1, 2, 3), 2), list("aaab"))
    assert uneven is not None and uneven.across is None and not uneven.even


class Wire:
    """All_to_alls of several ranks in this process; `crossed` counts elements that go from node to node, `calls` messages of a rank within its node and
    beyond it."""

    def __init__(self, names):
        self.names, self.posted, self.crossed, self.calls = names, {}, 0, {}

    def all_to_all(self, received, sent, receives, sends, handle):
        ranks, me = handle
        own = self.posted.setdefault(ranks, [[] for _ in ranks])
        own[me].append((received, sent, receives, sends))
        turn = len(own[me]) - 1
        for place, count in enumerate(sends):
            beyond = self.names[ranks[place]] != self.names[ranks[me]]
            self.crossed += count * beyond
            key = ranks[me], beyond
            self.calls[key] = self.calls.get(key, 0) + (count > 0)
        return ranks, me, turn

    def arrived(self, ticket):
        """Has everybody sent? Then what is for this rank is laid into its buffer."""
        ranks, me, turn = ticket
        posts = [p[turn] if len(p) > turn else None for p in self.posted[ranks]]
        if None in posts:
            return False
        parts = [sent.split(sends)[me] for _, sent, _, sends in posts]
        posts[me][0].copy_(torch.cat(parts))
        return True


@pytest.mark.parametrize("letters", ["aabbcc", "abcabc", "aaabbc", "aaaab", "aaaaa"])
@pytest.mark.parametrize("even", [True, False])
def test_an_all_to_all_by_levels_brings_what_pairs_bring(letters, even, monkeypatch):
    """Every rank gets what is for it, empty parts too; between nodes go the bytes of the formula, to as many partners as there are other nodes."""
    n = len(letters)
    draw = random.Random(n)
    lengths = [[4 if even else draw.choice((0, 0, 1, 5)) for _ in range(n)] for _ in range(n)]
    parts = [[torch.arange(lengths[i][j]) + 100 * i + 1000 * j for j in range(n)] for i in range(n)]
    wire = Wire(letters)
    flights = []
    for me in range(n):
        monkeypatch.setattr(
            levels.dist, "new_group", lambda ranks, me=me: (tuple(ranks), ranks.index(me) if me in ranks else -1)
        )
        world = Group(tuple(range(n)), me, (tuple(range(n)), me), backend=wire)
        group = Group(world.ranks, me, world.handle, levels.levels(world, list(letters)), wire)
        flights.append(collectives.all_to_all(list(parts[me]), lengths, group, "hierarchical"))
    found, waiting = {}, dict.fromkeys(range(n))
    while waiting:
        moved = False
        for me, ticket in list(waiting.items()):
            if ticket is not None and not wire.arrived(ticket):
                continue
            moved = True
            try:
                waiting[me] = next(flights[me])
            except StopIteration as end:
                found[me] = end.value
                del waiting[me]
        assert moved, "everybody waits"
    for me in range(n):
        assert all(torch.equal(found[me][i], parts[i][me]) for i in range(n))
    nodes = sorted(set(letters))
    assert wire.crossed == sum(lengths[i][j] for i in range(n) for j in range(n) if letters[i] != letters[j])
    if even and n == 6 and letters != "aaabbc":
        k, g, m = 3, 2, 4 * n
        assert wire.crossed == k * (k - 1) * g * m / k  # of each node, k - 1 times g m/k
        assert all(wire.calls[me, True] == len(nodes) - 1 and wire.calls[me, False] == g - 1 for me in range(n))
