"""The complete assignments of an eliminated graph, cheapest first by the additive cost: the order in which A* looks at them.

The search tree assigns the variables in the reverse of the elimination order. The messages of the elimination give the
exact cheapest completion of every prefix, so f never decreases on the way down, and one value of each variable always
costs nothing extra: walking down along those never leaves the best, and every node taken from the heap ends in a
complete assignment. The heap therefore holds whole assignments, each said as "like that earlier one, but with the
next dearer value here": taking one off puts at most three back, and only the variables whose own costs the change
touches are looked at again. (The partition is Lawler's; the heuristic makes it A*.)

The heuristic "elimination" is the messages: exact, hence admissible and consistent. "zero", as in HAP's released code,
knows nothing of what is still to come; it is admissible as well, and there to be compared with.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hapdsl.search.eliminate import Bucket, Elimination
from hapdsl.search.factors import Array, Assignment

Stop = Callable[[], str | None]  # why to stop now, None to go on
HEURISTICS = ("elimination", "zero")


class Choices(NamedTuple):
    """The allowed values of one variable, cheapest first (ties: lowest), and what each costs above the first."""

    values: tuple[int, ...]
    extra: tuple[float, ...]


def _choices(costs: Array) -> Choices:
    row = costs.tolist()
    values = sorted((v for v, c in enumerate(row) if c != math.inf), key=lambda v: (row[v], v))
    return Choices(tuple(values), tuple(row[v] - row[values[0]] for v in values))


class Enumeration(Iterator[tuple[float, Assignment]]):
    """Yields `(cost, assignment)` in nondecreasing cost. `nodes` counts prefixes looked at, `leaves` those yielded.

    `bound` holds for all that is still to come. An iterator that `stop` has ended early says why in `stopped`.
    """

    def __init__(self, elimination: Elimination, stop: Stop | None = None) -> None:
        self.elimination, self.stop = elimination, stop
        self.bound = -math.inf
        self.stopped: str | None = None
        self.nodes = 0
        self.leaves = 0
        self.buckets: list[Bucket] = elimination.buckets[::-1]  # by depth in the tree
        self._pushed = 0  # breaks ties in the heap: first come, first served


@dataclass(eq=False, slots=True)
class _Leaf:
    """A complete assignment: the parent's, with another value at `depth` and what follows from it below.

    `changed` holds, by depth, the choices that differ from the parent's and the rank taken. `own` lists the changed
    depths below `depth` that have a second value, by its extra cost.
    """

    cost: float
    parent: _Leaf | None
    depth: int
    changed: dict[int, tuple[Choices, int]]
    own: list[tuple[float, int]]
    stream: Iterator[tuple[float, int]]  # (extra, depth) of the deviations below, cheapest first


class KBest(Enumeration):
    """All allowed assignments by additive cost, with the messages as heuristic."""

    def __init__(self, elimination: Elimination, stop: Stop | None = None) -> None:
        super().__init__(elimination, stop)
        self.bound = elimination.bound
        depth_of = {bucket.variable: d for d, bucket in enumerate(self.buckets)}
        self._readers: list[list[int]] = [[] for _ in self.buckets]  # whose costs depend on the variable at a depth
        for d, bucket in enumerate(self.buckets):
            for u in bucket.others:
                self._readers[depth_of[u]].append(d)
        self._known: dict[tuple[int, Assignment], Choices] = {}
        self._heap: list[tuple[float, int, _Leaf, int, int]] = []  # f, tie, parent, depth, rank
        self._root: _Leaf | None = None
        self._best: list[int] = []  # the root's assignment

    def choices(self, depth: int, assignment: Sequence[int]) -> Choices:
        """The values of the variable at this depth, given those before it; `extra` is the growth of f."""
        bucket = self.buckets[depth]
        at = tuple(assignment[u] for u in bucket.others)
        key = (bucket.kernel.number, at)
        self.nodes += 1
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _choices(bucket.kernel.vector(at))
        return found

    def __next__(self) -> tuple[float, Assignment]:
        if self._root is None:
            if not self.elimination.feasible:
                raise StopIteration
            leaf, assignment = self._first()
        else:
            if not self._heap:
                raise StopIteration
            cost, _, parent, depth, rank = heapq.heappop(self._heap)
            leaf, assignment = self._derive(cost, parent, depth, rank)
            if rank == 1:
                self._push_next(parent)
            self._push(parent, depth, rank + 1)
        self._push_next(leaf)
        self.leaves += 1
        self.bound = leaf.cost
        return leaf.cost, tuple(assignment)

    def _push(self, parent: _Leaf, depth: int, rank: int) -> None:
        extra = self._choice_of(parent, depth)[0].extra
        if rank < len(extra):
            self._pushed += 1
            heapq.heappush(self._heap, (parent.cost + extra[rank], self._pushed, parent, depth, rank))

    def _push_next(self, leaf: _Leaf) -> None:
        for _, depth in leaf.stream:
            self._push(leaf, depth, 1)
            return

    def _first(self) -> tuple[_Leaf, list[int]]:
        assignment = [0] * len(self.buckets)
        changed = {}
        for depth, bucket in enumerate(self.buckets):
            found = self.choices(depth, assignment)
            assignment[bucket.variable] = found.values[0]
            changed[depth] = (found, 0)
        self._root = self._leaf(self.elimination.bound, None, -1, changed)
        self._best = assignment
        return self._root, assignment

    def _derive(self, cost: float, parent: _Leaf, depth: int, rank: int) -> tuple[_Leaf, list[int]]:
        assignment = self._assignment(parent)
        found = self._choice_of(parent, depth)[0]
        assignment[self.buckets[depth].variable] = found.values[rank]
        changed = {depth: (found, rank)}
        pending = self._readers[depth].copy()  # ascending, hence a heap
        while pending:
            d = heapq.heappop(pending)
            if d in changed:
                continue
            below = self.choices(d, assignment)
            changed[d] = (below, 0)
            v = self.buckets[d].variable
            if assignment[v] != below.values[0]:
                assignment[v] = below.values[0]
                for reader in self._readers[d]:
                    heapq.heappush(pending, reader)
        return self._leaf(cost, parent, depth, changed), assignment

    def _leaf(self, cost: float, parent: _Leaf | None, depth: int, changed: dict[int, tuple[Choices, int]]) -> _Leaf:
        own = sorted((c.extra[1], d) for d, (c, _) in changed.items() if d > depth and len(c.values) > 1)
        leaf = _Leaf(cost, parent, depth, changed, own, iter(()))
        sources = []
        nearer: tuple[dict[int, tuple[Choices, int]], ...] = ()
        node: _Leaf | None = leaf
        while node is not None:
            sources.append(_visible(node.own, depth, nearer))
            nearer = (*nearer, node.changed)
            node = node.parent
        leaf.stream = heapq.merge(*sources)
        return leaf

    @staticmethod
    def _choice_of(leaf: _Leaf, depth: int) -> tuple[Choices, int]:
        while depth not in leaf.changed:
            assert leaf.parent is not None, "the root has every depth"
            leaf = leaf.parent
        return leaf.changed[depth]

    def _assignment(self, leaf: _Leaf) -> list[int]:
        lineage: list[_Leaf] = []
        node = leaf
        while node.parent is not None:
            lineage.append(node)
            node = node.parent
        assignment = self._best.copy()
        for node in reversed(lineage):
            for d, (found, rank) in node.changed.items():
                assignment[self.buckets[d].variable] = found.values[rank]
        return assignment


def _visible(
    own: list[tuple[float, int]], depth: int, nearer: tuple[dict[int, tuple[Choices, int]], ...]
) -> Iterator[tuple[float, int]]:
    """The entries below a depth that no nearer relative has changed."""
    for entry in own:
        if entry[1] > depth and not any(entry[1] in changed for changed in nearer):
            yield entry


class UniformCost(Enumeration):
    """The same enumeration without a heuristic (f = cost so far), to show what the messages are worth.

    Each table's minimum is taken out, so that costs only grow. Exponential: it asks `stop` before every expansion.
    """

    def __init__(self, elimination: Elimination, stop: Stop | None = None) -> None:
        super().__init__(elimination, stop)
        graph = elimination.graph
        depth_of = {bucket.variable: d for d, bucket in enumerate(self.buckets)}
        self._factors: list[list[tuple[tuple[int, ...], Array]]] = [[] for _ in self.buckets]
        base = 0.0
        weighted = [np.tensordot(elimination.prices, table, axes=1) for table in graph.priced_tables]
        scopes = (*graph.scopes, *graph.priced_scopes)
        for scope, table in zip(scopes, (*graph.tables, *weighted), strict=True):
            least = float(table.min())
            base += least
            if scope and least != math.inf:
                last = max(scope, key=lambda v: depth_of[v])
                axes = (scope.index(last), *(i for i, v in enumerate(scope) if v != last))
                rest = tuple(v for v in scope if v != last)
                self._factors[depth_of[last]].append((rest, table.transpose(axes) - least))
        # f, tie, (the values so far as linked pairs, newest first), depth, choices at that depth, rank
        self._heap: list[tuple[float, int, tuple[object, int] | None, int, Choices, int]] = []
        self.bound = base
        if base != math.inf:
            self._expand(base, None, 0)

    def _expand(self, cost: float, path: tuple[object, int] | None, depth: int) -> None:
        """Put the cheapest child of a node on the heap, or the node itself where it is complete."""
        if depth == len(self.buckets):
            self._put(cost, path, depth, Choices((), ()), 0)
            return
        assignment = self._unlink(path)
        costs = np.zeros(self.elimination.graph.sizes[self.buckets[depth].variable])
        for rest, table in self._factors[depth]:
            at: tuple[slice | int, ...] = (slice(None), *(assignment[v] for v in rest))
            costs += table[at]
        if math.isfinite(least := float(costs.min())):
            # Here the first child is not free: its cost counts from the parent.
            found = _choices(costs)
            self._put(cost + least, path, depth, Choices(found.values, tuple(e + least for e in found.extra)), 0)

    def _put(self, f: float, path: tuple[object, int] | None, depth: int, found: Choices, rank: int) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (f, self._pushed, path, depth, found, rank))

    def _unlink(self, path: tuple[object, int] | None) -> list[int]:
        values = []
        link: object = path
        while isinstance(link, tuple):
            link, value = link
            values.append(value)
        assignment = [0] * len(self.buckets)
        for bucket, value in zip(self.buckets, reversed(values), strict=False):
            assignment[bucket.variable] = value
        return assignment

    def __next__(self) -> tuple[float, Assignment]:
        while self._heap:
            if self.stop is not None and (reason := self.stop()):
                self.stopped = reason
                break
            f, _, path, depth, found, rank = heapq.heappop(self._heap)
            self.bound = f
            if depth == len(self.buckets):
                self.leaves += 1
                return f, tuple(self._unlink(path))
            self.nodes += 1
            if rank + 1 < len(found.values):
                self._put(f - found.extra[rank] + found.extra[rank + 1], path, depth, found, rank + 1)
            self._expand(f, (path, found.values[rank]), depth + 1)
        raise StopIteration


def k_best(elimination: Elimination, heuristic: str = "elimination", stop: Stop | None = None) -> Enumeration:
    """An iterator over `(cost, assignment)`, every allowed assignment once, in nondecreasing additive cost.

    Ties come in a fixed order. `heuristic` is one of HEURISTICS; "zero" is for small graphs only, which `stop` can end.
    """
    return {"elimination": KBest, "zero": UniformCost}[heuristic](elimination, stop)
