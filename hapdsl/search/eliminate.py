"""Min-plus bucket elimination (Dechter's name; "dynamic programming over a tree decomposition" is another).

Variables are removed one by one. Removing v adds up all tables that mention v and minimises over v: what is left is
one new table, the *message*, over v's neighbours. After the last variable the minimum of the whole sum is known, and
the messages are an exact cost-to-go for a search that assigns the variables in the reverse order (enumeration.py).

Two things make it fast on deep models. Equal buckets (the same tables in the same relative position) are computed
once. And every message is stored with its minimum taken out, so that along a chain of equal layers, where the
messages grow by a constant per layer, they soon repeat and are found again too.

Some variables stand beside all layers: whether a kind of message is sent at all, how a shared weight is held. Along a chain messages
grow by a constant for each of *their* values, and never repeat. So the minimum is taken out for each value of such *hubs*
by itself: a message M(x, h) is m(h) + M'(x, h) with m(h) the least over x, M' repeats, and m(h), a table over hubs alone, goes to the
bucket that removes the first of them. That is the same sum in other places, so every minimum is what it was.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hapdsl.search.factors import Array, FactorGraph, TableStore
from hapdsl.search.removal import Order, width
from hapdsl.search.removal import order as greedy

# A bucket of more cells than this is minimised one value of its variable at a time, so many cells of its message at a time:
# beside the message hardly any memory is needed.
WHOLE_CELLS = 1 << 16
HUB = 48  # factors; a variable that stands in so many is beside many layers
MAX_CELLS = 5e7  # of one table; beyond it elimination is refused


class TooWide(Exception):
    """Elimination would need too large a table: `cells` in the largest, `total` in all; nothing was allocated."""

    def __init__(self, cells: int, total: int) -> None:
        super().__init__(f"the widest table would have {_rounded(cells)} cells, all tables {_rounded(total)}")
        self.cells = cells
        self.total = total


def _rounded(cells: int) -> str:
    """Of products that no float may hold, the power of ten."""
    return f"{cells:.3g}" if cells < 1e300 else f"1e{len(str(cells)) - 1}"


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
    message: int = -1  # number of the message's table, its minimum (for each value of the hubs) taken out
    constant: float = 0.0  # that minimum; inf where nothing is allowed
    # Number of what was taken out for each value of the hubs, a table that broadcasts against the message; -1 where no hub is among the others.
    apart: int = -1

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

    def least(self, kernel: Kernel) -> Array:
        """The minimum of a kernel's sum over its variable, but for a constant; shape the sizes of the others."""
        tables = self.store.tables
        return tables[kernel.message] if kernel.apart < 0 else tables[kernel.message] + tables[kernel.apart]

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
    hub: int = HUB,
) -> Elimination:
    """Minimise the graph exactly.

    `prices` are the weights of the priced components; `order` is by default the graph's own, and where it has none the greedy one. Raises
    TooWide, before any table is made, where the largest bucket has more than `max_cells` cells or all buckets together more than
    `max_total`. `memo=False` computes every bucket anew (a test compares). Variables that stand in `hub` factors or more are hubs.
    """
    weights = graph.checked_prices(prices)
    if order is None:
        order = graph.order
    if order is None:
        order = greedy(graph)
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

    uses = Counter(chain.from_iterable((*graph.scopes, *graph.priced_scopes)))
    hubs = {v for v, times in uses.items() if times >= hub}
    apart: dict[int, Counter[tuple[tuple[int, ...], int]]] = {v: Counter() for v in hubs}
    kernels: dict[tuple[object, ...], Kernel] = {}
    computed = 0
    buckets: list[Bucket] = []
    for index, v in enumerate(order.variables):
        if v in apart:
            for scope, table in _added(apart.pop(v), store):
                waiting[index].append((store.intern(table, fresh=True), scope, -1))
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
        beside = tuple(a for a, u in enumerate(others) if u in hubs) if hubs else ()
        key = (shape[0], relative, beside)
        kernel = kernels.get(key)
        if kernel is None or not memo:
            computed += 1
            kernel = _kernel(kernel.number if kernel else len(kernels), shape, relative, beside, store)
            kernels[key] = kernel
        if kernel.apart >= 0:
            scope = tuple(others[a] for a in beside)
            apart[min(scope, key=position.__getitem__)][scope, kernel.apart] += 1
        buckets.append(Bucket(v, others, kernel, tuple((i, e[2]) for i, e in enumerate(entries) if e[2] >= 0)))
        constants.append(kernel.constant)
        if others:
            put(kernel.message, others, index)
    bound = math.fsum(constants) if all(map(math.isfinite, constants)) else math.inf
    return Elimination(graph, weights, order, buckets, store, bound, computed)


def _added(
    tables: Mapping[tuple[tuple[int, ...], int], int], store: TableStore
) -> Iterator[tuple[tuple[int, ...], Array]]:
    """The sum, scope by scope, of tables over hubs: (scope, number) by how often."""
    sums: dict[tuple[int, ...], Array] = {}
    for (scope, number), times in tables.items():
        ascending = tuple(sorted(scope))
        table = np.squeeze(store.tables[number])  # no variable of a scope has one value only
        table = times * table.transpose([scope.index(v) for v in ascending])
        sums[ascending] = sums[ascending] + table if ascending in sums else table
    yield from sums.items()


def _kernel(
    number: int,
    shape: tuple[int, ...],
    relative: tuple[tuple[int, tuple[int, ...], bool], ...],
    beside: tuple[int, ...],
    store: TableStore,
) -> Kernel:
    """`beside` are the axes of the message that belong to hubs."""
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
        if beside:
            least = message_table.min(
                axis=tuple(a for a in range(message_table.ndim) if a not in beside), keepdims=True
            )
            kernel.apart = store.intern(least)
            # A value of the hubs that allows nothing says so in that table.
            message_table -= np.where(np.isinf(least), 0.0, least)
            message_table[np.broadcast_to(np.isinf(least), message_table.shape)] = 0.0
    kernel.message = store.intern(message_table, fresh=True)
    return kernel
