"""In which order elimination removes variables, and how wide its tables get: worked out on scopes alone, before any table is made."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from hapdsl.search.factors import FactorGraph

WIDE = 1e7  # cells of all tables from which it is worth trying more orders


class Order(NamedTuple):
    """An elimination order and its width: cells of the largest bucket and of all buckets (without reuse)."""

    variables: tuple[int, ...]
    peak: int
    total: int


def _adjacency(graph: FactorGraph) -> list[set[int]]:
    neighbours: list[set[int]] = [set() for _ in graph.sizes]
    for scope in {frozenset(scope) for scope in (*graph.scopes, *graph.priced_scopes)}:
        for v in scope:
            neighbours[v] |= scope
    for v, others in enumerate(neighbours):
        others.discard(v)
    return neighbours


def order(graph: FactorGraph, blocks: Sequence[int] | None = None, last: Collection[int] = ()) -> Order:
    """Greedy: next comes the variable whose bucket is smallest; equal ones by number. Makes no table.

    With `blocks` (a number per variable), block after block, greedily within each. Variables that are `last` come in the end, and until
    then count for nothing: those that stand beside many others widen every bucket alike, so what they add doesn't tell buckets apart.
    """
    block = list(blocks) if blocks is not None else [0] * len(graph.sizes)
    neighbours = _adjacency(graph)
    sizes = graph.sizes.copy()
    for v in last:
        block[v], sizes[v] = len(graph.sizes), 1

    current = [size * math.prod(map(sizes.__getitem__, neighbours[v])) for v, size in enumerate(sizes)]
    heap = [(block[v], c, v) for v, c in enumerate(current)]
    heapq.heapify(heap)
    done = [False] * len(sizes)
    variables: list[int] = []
    peak = total = 0
    while heap:
        _, c, v = heapq.heappop(heap)
        if done[v] or c != current[v]:  # an entry that a later one replaced
            continue
        done[v] = True
        variables.append(v)
        peak, total = max(peak, c), total + c
        around = neighbours[v]
        for u in around:
            added = around - neighbours[u]
            added.discard(u)
            neighbours[u] |= added
            neighbours[u].discard(v)
            new = current[u] // sizes[v] * math.prod(map(sizes.__getitem__, added))
            if new != current[u]:
                current[u] = new
                heapq.heappush(heap, (block[u], new, u))
        neighbours[v] = set()
    return width(graph, variables) if last else Order(tuple(variables), peak, total)


def narrowest(graph: FactorGraph, blocks: Sequence[int], last: Collection[int] = ()) -> Order:
    """Of the greedy order and that by blocks the narrower one; where both are WIDE also those with some variables in the end."""
    found = [order(graph), order(graph, blocks)]
    if last and min(o.total for o in found) > WIDE:
        found += [order(graph, last=last), order(graph, blocks, last)]
    return min(found, key=lambda o: (o.peak, o.total))


def width(graph: FactorGraph, variables: Sequence[int]) -> Order:
    """The given order with its width. ValueError unless it names every variable once."""
    if sorted(variables) != list(range(len(graph.sizes))):
        raise ValueError("an elimination order names every variable once")
    neighbours = _adjacency(graph)
    peak = total = 0
    for v in variables:
        around = neighbours[v]
        cells = graph.sizes[v] * math.prod(graph.sizes[u] for u in around)
        peak, total = max(peak, cells), total + cells
        for u in around:
            neighbours[u] |= around
            neighbours[u] -= {u, v}
    return Order(tuple(variables), peak, total)
