"""Min-plus bucket elimination (Dechter's name; "dynamic programming over a tree decomposition" is another).

Variables are removed one by one. Removing v adds up all tables that mention v and minimises over v: what is left is
one new table, the *message*, over v's neighbours. After the last variable the minimum of the whole sum is known, and
the messages are an exact cost-to-go for a search that assigns the variables in the reverse order (astar.py).

Two things make it fast on deep models. Equal buckets (the same tables in the same relative position) are computed
once. And every message is stored with its minimum taken out, so that along a chain of equal layers, where the
messages grow by a constant per layer, they soon repeat and are found again too.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hapdsl.search.factors import Array, FactorGraph, TableStore

# A bucket of more cells than this is minimised one value of its variable at a time, so many cells of its message at a time:
# beside the message hardly any memory is needed.
WHOLE_CELLS = 1 << 16


class TooWide(Exception):
    """Elimination would need too large a table: `cells` in the largest, `total` in all; nothing was allocated."""

    def __init__(self, cells: int, total: int) -> None:
        super().__init__(f"the widest table would have {cells:.3g} cells, all tables {total:.3g}")
        self.cells = cells
        self.total = total


MAX_CELLS = 5e7  # of one table; beyond it elimination is refused
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


class _Part(NamedTuple):
    """One table of a kernel: its axes (0 the bucket's variable, 1.. the others), and it laid out in their order."""

    axes: tuple[int, ...]
    aligned: Array  # axes in ascending order, length 1 where absent: broadcasts against the kernel's shape
    wide: Array  # the same as a view of the kernel's full shape
    message: bool  # comes from an earlier bucket


@dataclass(eq=False, slots=True)
class Kernel:
    """What equal buckets share: the sum of `parts`, of shape `(size of v, *sizes of the others)`, and its minimum."""

    number: int
    shape: tuple[int, ...]
    parts: tuple[_Part, ...]
    message: int = -1  # number of the message's table, its minimum taken out
    constant: float = 0.0  # that minimum; inf where nothing is allowed

    def vector(self, others: tuple[int, ...]) -> Array:
        """The sum for every value of v, the others being fixed. Shape `(size of v,)`."""
        at: tuple[slice | int, ...] = (slice(None), *others)
        total = np.zeros(self.shape[0])
        for part in self.parts:
            total += part.wide[at]
        return total

    def joined(self, value: int | None = None, extra: Array | None = None) -> Array:
        """The whole sum, or its slice at one value of v; `extra` is a table over the others, added to it."""
        tables = self._tables(value)
        if extra is not None:
            tables.append(extra if value is not None else extra[None])
        return _Sum(tables, self.shape if value is None else self.shape[1:])(tables)

    def _tables(self, value: int | None) -> list[Array]:
        """What is added up, or slices of it at one value of v; each broadcasts against the sum."""
        if value is None:
            return [p.aligned for p in self.parts]
        return [p.aligned[min(value, p.aligned.shape[0] - 1)] for p in self.parts]

    def minimised(self) -> Array:
        """The sum's minimum over v, shape the sizes of the others; the caller's to change."""
        if math.prod(self.shape) <= WHOLE_CELLS:
            return np.asarray(self.joined().min(axis=0))
        rest = self.shape[1:]
        # Axes that are gone through one by one.
        whole = next((k for k in range(len(rest)) if math.prod(rest[k:]) <= WHOLE_CELLS), len(rest))
        best = np.empty(rest)
        slices = [self._tables(value) for value in range(self.shape[0])]
        add = _Sum(slices[0], rest)
        for at in np.ndindex(rest[:whole]):
            part = best[(*at, ...)]
            for value, tables in enumerate(slices):
                found = add([t[tuple(min(i, n - 1) for i, n in zip(at, t.shape, strict=False))] for t in tables], whole)
                part[...] = found if not value else np.minimum(part, found)
        return best

    def downward(self, above: Array) -> tuple[Array, dict[int, Array]]:
        """The sum plus `above`, the cost of everything outside, minimised in two ways:
        over the others (shape `(size of v,)`), and for each part that is a message over all axes but its own."""
        wanted = [(i, p.axes) for i, p in enumerate(self.parts) if p.message]
        outer = {i: tuple(a for a in range(1, len(self.shape)) if a not in axes) for i, axes in wanted}
        if math.prod(self.shape) <= WHOLE_CELLS:
            table = self.joined(extra=above)
            marginal = table.reshape(self.shape[0], -1).min(axis=1)
            beliefs = {i: table.min(axis=outer[i]) if outer[i] else table for i, _ in wanted}
        else:
            marginal = np.empty(self.shape[0])
            rows: dict[int, list[Array]] = {i: [] for i, _ in wanted}
            for value in range(self.shape[0]):
                table = self.joined(value, above)
                marginal[value] = table.min()
                for i, _ in wanted:  # v itself, axis 0, is among the axes of every message
                    rest = tuple(a - 1 for a in outer[i])
                    rows[i].append(np.asarray(table.min(axis=rest) if rest else table))
            beliefs = {i: np.stack(rows[i]) for i, _ in wanted}
        # Axes are ascending up to here; a message has its own order.
        return marginal, {i: beliefs[i].transpose(_ranks(axes)) for i, axes in wanted}


class _Sum:
    """How tables that broadcast against one shape are added up: small ones go into larger ones that cover their axes, and
    few additions then run over the full shape. The order is the same for the whole and for any part of it, to the last bit."""

    def __init__(self, tables: Sequence[Array], shape: tuple[int, ...]) -> None:
        self.shape = shape
        order = sorted(range(len(tables)), key=lambda i: tables[i].size)
        self.into: list[tuple[int, int]] = []
        self.last: list[int] = []
        for place, i in enumerate(order):
            covers = (
                j
                for j in order[place + 1 :]
                if all(a <= b for a, b in zip(tables[i].shape, tables[j].shape, strict=True))
            )
            j = next(covers, None)
            if j is None:
                self.last.append(i)
            else:
                self.into.append((i, j))

    def __call__(self, tables: Sequence[Array], fixed: int = 0) -> Array:
        """The sum of such tables, or of their parts with the first `fixed` axes taken away."""
        shape, added = self.shape[fixed:], list(tables)
        for i, j in self.into:
            added[j] = added[j] + added[i]
        if not self.last:
            return np.zeros(shape)
        total = added[self.last[0]]
        for i in self.last[1:]:
            total = total + added[i]
        return total if total.shape == shape else np.broadcast_to(total, shape)


def _ranks(axes: tuple[int, ...]) -> list[int]:
    ascending = sorted(axes)
    return [ascending.index(a) for a in axes]


@dataclass(eq=False, slots=True)
class Bucket:
    """One eliminated variable. `others` are in the order of the kernel's axes 1.. and of the message's axes."""

    variable: int
    others: tuple[int, ...]
    kernel: Kernel
    children: tuple[tuple[int, int], ...]  # (index of a part, bucket whose message it is)


@dataclass(eq=False)
class Elimination:
    """A solved graph. `buckets` are in elimination order; `bound` is the minimum, inf where nothing is allowed."""

    graph: FactorGraph
    prices: Array
    order: Order
    buckets: list[Bucket]
    store: TableStore  # the tables, messages included, by the numbers that kernels give
    bound: float
    kernels: int  # buckets that had to be computed

    @property
    def feasible(self) -> bool:
        return math.isfinite(self.bound)

    @property
    def bytes(self) -> int:
        """Of its tables."""
        return sum(table.nbytes for table in self.store.tables)

    def best(self) -> tuple[int, ...]:
        """A cheapest assignment; of equal values the lowest. ValueError where nothing is allowed.

        Goes back through the buckets and cuts each at what is already chosen: no table of choices is kept.
        """
        if not self.feasible:
            raise ValueError("no assignment is allowed")
        chosen = [0] * len(self.buckets)
        known: dict[tuple[int, tuple[int, ...]], int] = {}
        for bucket in reversed(self.buckets):
            at = tuple(chosen[u] for u in bucket.others)
            key = (bucket.kernel.number, at)
            if key not in known:
                known[key] = int(bucket.kernel.vector(at).argmin())
            chosen[bucket.variable] = known[key]
        return tuple(chosen)


def eliminate(
    graph: FactorGraph,
    prices: ArrayLike | None = None,
    order: Order | Sequence[int] | None = None,
    max_cells: float = MAX_CELLS,
    max_total: float = 5e9,
    memo: bool = True,
) -> Elimination:
    """Minimise the graph exactly.

    `prices` are the weights of the priced components; `order` defaults to the greedy one. Raises TooWide, before any
    table is made, where the largest bucket has more than `max_cells` cells or all buckets together more than
    `max_total`. `memo=False` computes every bucket anew (a test compares).
    """
    weights = graph.checked_prices(prices)
    if order is None:
        order = _greedy(graph)
    elif not isinstance(order, Order):
        order = width(graph, order)
    if order.peak > max_cells or order.total > max_total:
        raise TooWide(order.peak, order.total)

    store = TableStore()  # messages are interned beside, not in, the graph's store: they go when this goes
    position = {v: i for i, v in enumerate(order.variables)}
    waiting: list[list[tuple[int, tuple[int, ...], int]]] = [[] for _ in order.variables]
    constants: list[float] = []

    def put(number: int, scope: tuple[int, ...], source: int) -> None:
        """Give a table to the bucket that is first to remove one of its variables."""
        waiting[min(position[v] for v in scope)].append((number, scope, source))

    outer = graph.store.tables
    plain = {i: store.intern(outer[i]) for i in dict.fromkeys(graph.table_ids)}
    priced = {i: store.intern(np.tensordot(weights, outer[i], axes=1)) for i in dict.fromkeys(graph.priced_ids)}
    for numbers, scopes, ids in (
        (plain, graph.scopes, graph.table_ids),
        (priced, graph.priced_scopes, graph.priced_ids),
    ):
        for scope, table_id in zip(scopes, ids, strict=True):
            if scope:
                put(numbers[table_id], scope, -1)
            else:
                constants.append(float(store.tables[numbers[table_id]]))

    kernels: dict[tuple[object, ...], Kernel] = {}
    computed = 0
    buckets: list[Bucket] = []
    for index, v in enumerate(order.variables):
        # The order of parts, and through it the numbering of the other axes, depends on content first: so equal
        # buckets get equal keys wherever they are.
        entries = sorted(waiting[index], key=lambda e: (e[0], e[1].index(v), e[1]))
        waiting[index] = []
        axis = {v: 0}
        for _, scope, _ in entries:
            for u in scope:
                axis.setdefault(u, len(axis))
        others = tuple(axis)[1:]
        shape = tuple(graph.sizes[u] for u in axis)
        relative = tuple((number, tuple(axis[u] for u in scope), source >= 0) for number, scope, source in entries)
        key = (shape[0], relative)
        kernel = kernels.get(key)
        if kernel is None or not memo:
            computed += 1
            kernel = _kernel(kernel.number if kernel else len(kernels), shape, relative, store)
            kernels[key] = kernel
        buckets.append(Bucket(v, others, kernel, tuple((i, e[2]) for i, e in enumerate(entries) if e[2] >= 0)))
        constants.append(kernel.constant)
        if others:
            put(kernel.message, others, index)
    bound = math.fsum(constants) if all(map(math.isfinite, constants)) else math.inf
    return Elimination(graph, weights, order, buckets, store, bound, computed)


_greedy = order  # `eliminate` has a parameter of that name


def _kernel(
    number: int, shape: tuple[int, ...], relative: tuple[tuple[int, tuple[int, ...], bool], ...], store: TableStore
) -> Kernel:
    parts = []
    for table_id, axes, message in relative:
        table = store.tables[table_id]
        ascending = sorted(axes)
        aligned = table.transpose([axes.index(a) for a in ascending])
        aligned = np.expand_dims(aligned, tuple(a for a in range(len(shape)) if a not in axes))
        parts.append(_Part(axes, aligned, np.broadcast_to(aligned, shape), message))
    kernel = Kernel(number, shape, tuple(parts))
    message_table = kernel.minimised()
    kernel.constant = float(message_table.min())
    if math.isfinite(kernel.constant):
        message_table = np.asarray(message_table)
        message_table -= kernel.constant
    kernel.message = store.intern(message_table, fresh=True)
    return kernel
