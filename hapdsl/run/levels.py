"""Collectives that know which ranks share a node: by trees, and level by level.

    all_reduce      tree            up to each node's first rank, to the first of all, and back down; point to point
    all_reduce      hierarchical    reduce_scatter within nodes, all_reduce of each part across them, all_gather within
    all_gather      hierarchical    across nodes, then within; where nodes have unlike numbers of ranks: within, then parts of each
                                    node's block across, then within
    reduce_scatter  hierarchical    the same backwards
    all_to_all      hierarchical    within nodes, so that a node's j-th rank has all that is for the j-th ranks of other nodes; across nodes,
                                    where it talks to these alone; where nodes have unlike numbers of ranks, once more within

Ranks that run on one host stand in one node; HAPDSL_NODE names a rank's node where hosts aren't what counts. On one node, or with one
rank in each, there are no levels, and the plain ways of `hapdsl.run.collectives` are taken. Each is a generator that yields what is to be
waited for before it goes on.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hapdsl.run.everybody import texts
from hapdsl.run.groups import Group

One = Generator[Any, None, Tensor]
Many = Generator[Any, None, list[Tensor]]
Gather = Callable[[Tensor, Sequence[int], Group, str], Many]
Scatter = Callable[[list[Tensor], Sequence[int], Group, str], One]
Exchange = Callable[[list[Tensor], Sequence[Sequence[int]], Group], Many]


@dataclass(frozen=True)
class Levels:
    """A group's nodes. `nodes` are places in the group, node by node; `inside` joins this rank's node, `across[j]` the j-th
    members of all nodes (this rank's one is `across[place]`, where it has one): `parts` of them, as many as the smallest node has."""

    nodes: tuple[tuple[int, ...], ...]
    mine: int
    place: int
    parts: int
    inside: Group
    across: Group | None

    @property
    def even(self) -> bool:
        return len(set(map(len, self.nodes))) == 1

    def served(self, node: int, place: int) -> tuple[int, ...]:
        """The members of a node to whom its `place`-th one hands what comes across: itself and every `parts`-th behind it."""
        return self.nodes[node][place :: self.parts] if place < self.parts else ()

    def hands_on(self, place: int, other: int) -> bool:
        """Does the `place`-th member of a node hand on to the `other`-th?"""
        return place < self.parts <= other and other % self.parts == place


def node_names() -> list[str]:
    """Where each rank runs, by rank. All ranks must call it."""
    return texts(os.environ.get("HAPDSL_NODE") or socket.gethostname())


def levels(group: Group, names: Sequence[str]) -> Levels | None:
    """A group's levels, with torch's groups for them; None where there are none. All ranks must call it for all groups, in one order.

    A rank that isn't in the group passes it with `me` -1, and gets None.
    """
    places: dict[str, list[int]] = {}
    for place, rank in enumerate(group.ranks):
        places.setdefault(names[rank], []).append(place)
    nodes = tuple(map(tuple, places.values()))
    if len(nodes) == 1 or max(map(len, nodes)) == 1:
        return None
    parts = min(map(len, nodes))
    within = [_join(group, node) for node in nodes]
    columns = [_join(group, [node[j] for node in nodes]) for j in range(parts)]
    if group.me < 0:
        return None
    mine = next(k for k, node in enumerate(nodes) if group.me in node)
    place = nodes[mine].index(group.me)
    return Levels(nodes, mine, place, parts, within[mine], columns[place] if place < parts else None)


def _join(group: Group, places: Sequence[int]) -> Group:
    ranks = tuple(group.ranks[p] for p in places)
    me = ranks.index(group.ranks[group.me]) if group.me >= 0 and group.me in places else -1
    return Group(ranks, me, dist.new_group(list(ranks)) if len(ranks) > 1 else None, backend=group.backend)


# -- all_reduce -----------------------------------------------------------------------


def tree(mine: Tensor, group: Group) -> One:
    """The sum over the group in place, by a tree within each node and one over their first ranks."""
    nodes = group.levels.nodes if group.levels else (tuple(range(group.size)),)
    own = next(node for node in nodes if group.me in node)
    heads = [node[0] for node in nodes]
    other = torch.empty_like(mine)
    rows = [own, heads] if group.me == own[0] else [own]
    for row in rows:
        yield from _up(mine, other, row, group)
    for row in reversed(rows):
        yield from _down(mine, row, group)
    return mine


def _up(mine: Tensor, other: Tensor, row: Sequence[int], group: Group) -> Generator[Any, None, None]:
    me, distance = row.index(group.me), 1
    while distance < len(row):
        if me % (2 * distance) == distance:
            yield group.backend.send(mine, group.ranks[row[me - distance]])
            return
        if me + distance < len(row):
            yield group.backend.receive(other, group.ranks[row[me + distance]])
            mine += other
        distance *= 2


def _down(mine: Tensor, row: Sequence[int], group: Group) -> Generator[Any, None, None]:
    me, distance = row.index(group.me), 1
    while distance < len(row):
        distance *= 2
    while distance > 1:
        distance //= 2
        if me % (2 * distance) == distance:
            yield group.backend.receive(mine, group.ranks[row[me - distance]])
        elif me % (2 * distance) == 0 and me + distance < len(row):
            yield group.backend.send(mine, group.ranks[row[me + distance]])


def all_reduce(mine: Tensor, found: Levels, gather: Gather, scatter: Scatter) -> One:
    """The sum over the group: every node's first `parts` ranks sum a part each across the nodes."""
    cuts = _cuts(mine.numel(), found.parts)
    lengths = [cuts[j] if j < found.parts else 0 for j in range(found.inside.size)]
    part = yield from scatter(list(mine.split(lengths)), lengths, found.inside, "padded")
    if found.across is not None and part.numel():
        part = part.contiguous()
        yield found.across.backend.all_reduce(part, found.across.handle)
    return torch.cat((yield from gather(part, lengths, found.inside, "padded")))


# -- all_gather and reduce_scatter ---------------------------------------------------------


def all_gather(mine: Tensor, lengths: Sequence[int], found: Levels, gather: Gather) -> Many:
    """Every member's buffer, by place in the group."""
    blocks: dict[int, Tensor] = {}
    if found.even:
        assert found.across is not None
        column = yield from gather(mine, [lengths[node[found.place]] for node in found.nodes], found.across, "padded")
        rows = [[lengths[node[j]] for node in found.nodes] for j in range(found.parts)]
        lines = yield from gather(torch.cat(column), [sum(r) for r in rows], found.inside, "padded")
        for j, packed in enumerate(lines):
            blocks.update(zip((node[j] for node in found.nodes), packed.split(rows[j]), strict=True))
        return [blocks[p] for p in range(len(lengths))]
    own = found.nodes[found.mine]
    near = yield from gather(mine, [lengths[p] for p in own], found.inside, "padded")
    blocks.update(zip(own, near, strict=True))
    cuts = [_cuts(sum(lengths[p] for p in node), found.parts) for node in found.nodes]
    far = [mine.new_empty(0)] * len(found.nodes)
    if found.across is not None:
        part = torch.cat(near).split(cuts[found.mine])[found.place]
        far = yield from gather(part, [c[found.place] for c in cuts], found.across, "padded")
    others = [k for k in range(len(found.nodes)) if k != found.mine]
    sizes = [[cuts[k][j] if j < found.parts else 0 for k in others] for j in range(found.inside.size)]
    sent = torch.cat([far[k] for k in others])
    lines = yield from gather(sent, [sum(s) for s in sizes], found.inside, "padded")
    arrived = [packed.split(s) for packed, s in zip(lines, sizes, strict=True)]
    for i, k in enumerate(others):
        whole = torch.cat([parts[i] for parts in arrived])
        blocks.update(zip(found.nodes[k], whole.split([lengths[p] for p in found.nodes[k]]), strict=True))
    return [blocks[p] for p in range(len(lengths))]


def reduce_scatter(parts: Sequence[Tensor], lengths: Sequence[int], found: Levels, scatter: Scatter) -> One:
    """This member's part of the sum; `parts[p]` is its contribution to the p-th member's."""
    if found.even:
        assert found.across is not None
        rows = [[lengths[node[j]] for node in found.nodes] for j in range(found.parts)]
        packed = [torch.cat([parts[node[j]] for node in found.nodes]) for j in range(found.parts)]
        column = yield from scatter(packed, [sum(r) for r in rows], found.inside, "padded")
        return (yield from scatter(list(column.split(rows[found.place])), rows[found.place], found.across, "padded"))
    own = found.nodes[found.mine]
    others = [k for k in range(len(found.nodes)) if k != found.mine]
    cuts = [_cuts(sum(lengths[p] for p in node), found.parts) for node in found.nodes]
    blocks = {k: torch.cat([parts[p] for p in found.nodes[k]]).split(cuts[k]) for k in others}
    empty = parts[0].new_empty(0)
    sent = [torch.cat([blocks[k][j] for k in others]) if j < found.parts else empty for j in range(found.inside.size)]
    held = yield from scatter(sent, [s.numel() for s in sent], found.inside, "padded")
    mine = torch.cat([parts[p] for p in own])
    if found.across is not None:
        sizes = [c[found.place] for c in cuts]
        sums = dict(zip(others, held.split([sizes[k] for k in others]), strict=True))
        sums[found.mine] = parts[0].new_zeros(sizes[found.mine])
        summed = yield from scatter([sums[k] for k in range(len(cuts))], sizes, found.across, "padded")
        start = sum(cuts[found.mine][: found.place])
        mine[start : start + summed.numel()] += summed
    lasts = [lengths[p] for p in own]
    return (yield from scatter(list(mine.split(lasts)), lasts, found.inside, "padded"))


# -- all_to_all --------------------------------------------------------------------------------


def all_to_all(parts: list[Tensor], lengths: Sequence[Sequence[int]], found: Levels, exchange: Exchange) -> Many:
    """What each member has for this one; `parts[p]` is for the p-th member, and `lengths[i][p]` what the i-th has for it."""
    own, place, empty = found.nodes[found.mine], found.place, parts[0].new_empty(0)
    others = [k for k in range(len(found.nodes)) if k != found.mine]
    far = [[t for k in others for t in found.served(k, q)] for q in range(len(own))]
    asked = [[t, *far[q]] for q, t in enumerate(own)]
    sent = [torch.cat([parts[t] for t in targets]) for targets in asked]
    parts.clear()  # they are in what is sent
    sizes = [[sum(lengths[i][t] for t in targets) for targets in asked] for i in own]
    arrived = yield from exchange(sent, sizes, found.inside)
    del sent
    blocks: dict[int, Tensor] = {}  # by source, what has come for this member
    held: dict[tuple[int, int], Tensor] = {}  # by source and target, what is on its way
    for i, packed in zip(own, arrived, strict=True):
        blocks[i], *rest = packed.split([lengths[i][t] for t in asked[place]])
        held.update({(i, t): block for t, block in zip(far[place], rest, strict=True)})
    del arrived
    if found.across is not None:
        every = range(len(found.nodes))
        ways = [[_pairs(found.nodes[a], found.served(b, place)) if a != b else [] for b in every] for a in every]
        sent = [torch.cat([held[way] for way in row]) if row else empty for row in ways[found.mine]]
        held.clear()
        sizes = [[sum(lengths[i][t] for i, t in way) for way in row] for row in ways]
        arrived = yield from exchange(sent, sizes, found.across)
        del sent
        for k in others:
            way = ways[k][found.mine]
            held.update(zip(way, arrived[k].split([lengths[i][t] for i, t in way]), strict=True))
        del arrived
    me, sources = own[place], [i for k in others for i in found.nodes[k]]
    if len(own) > found.parts:
        came = [sum(lengths[i][t] for i in sources) for t in own]
        sizes = [[n if found.hands_on(q, r) else 0 for r, n in enumerate(came)] for q in range(len(own))]
        passes = [t if found.hands_on(place, r) else None for r, t in enumerate(own)]
        sent = [empty if t is None else torch.cat([held[i, t] for i in sources]) for t in passes]
        arrived = yield from exchange(sent, sizes, found.inside)
        if place >= found.parts:
            mine = arrived[place % found.parts].split([lengths[i][me] for i in sources])
            held = {(i, me): block for i, block in zip(sources, mine, strict=True)}
    blocks.update({i: held[i, me] for i in sources})
    return [blocks[p] for p in range(len(lengths))]


def _pairs(sources: Sequence[int], targets: Sequence[int]) -> list[tuple[int, int]]:
    return [(i, t) for t in targets for i in sources]


def _cuts(length: int, parts: int) -> list[int]:
    """Lengths that add up, as equal as can be."""
    return [length // parts + (j < length % parts) for j in range(parts)]
