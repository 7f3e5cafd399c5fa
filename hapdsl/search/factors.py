"""A factor graph: discrete variables, and costs that add up over small tables.

The search states every choice of a program as a variable and every price as a table over the few variables it depends
on; forbidden combinations cost infinity. Nothing here knows what the variables mean.

Tables are interned by content: layers that are alike share their tables, which is what lets elimination solve one of
them and reuse the answer. A *priced* factor has a leading axis of K components (the seconds of each of K devices, say)
whose weights, the prices, are only chosen when the graph is solved.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from hapdsl.search.removal import Order

Array = NDArray[np.float64]
Assignment = tuple[int, ...]  # a value per variable of a graph


@dataclass(frozen=True, slots=True)
class Variable:
    """One choice: its name (for messages only) and how many values it has; values are 0 .. size-1."""

    name: str
    size: int


class TableStore:
    """Read-only float64 arrays, numbered by content: equal arrays of one shape get one number."""

    def __init__(self) -> None:
        self.tables: list[Array] = []
        self._numbers: dict[tuple[tuple[int, ...], bytes], int] = {}
        # Arrays that nobody can write to needn't be hashed twice. Only such arrays are in here, and being held in
        # the value they can't be freed and their id given to another.
        self._seen: dict[int, tuple[Array, int]] = {}
        self._sound: set[int] = set()  # numbers of tables that were looked through

    def intern(self, table: ArrayLike, fresh: bool = False) -> int:
        """The number of this content. The array is copied unless it is known or already frozen (not writeable);
        `fresh` says that the caller made it for us and gives it away."""
        if isinstance(table, np.ndarray):
            seen = self._seen.get(id(table))
            if seen is not None:
                return seen[1]
        array = np.asarray(table, dtype=np.float64)
        own = array is table and array.base is None and array.flags.c_contiguous
        frozen = own and not array.flags.writeable
        if not (frozen or (own and fresh)):
            # Adding zero copies and also turns -0.0 into 0.0, which is the same cost but other bytes.
            array = np.asarray(np.add(array, 0.0, order="C"))
        array.flags.writeable = False
        digest = hashlib.blake2b(array.data, digest_size=16).digest() if array.size else b""
        key = (array.shape, digest)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.tables)
            self.tables.append(array)
        if frozen:
            self._seen[id(array)] = (array, number)
        return number

    def checked(self, number: int, shape: tuple[int, ...]) -> None:
        """Raises ValueError where a table has another shape, or holds what is no cost."""
        table = self.tables[number]
        if table.shape != shape:
            raise ValueError(f"a table of shape {table.shape} for variables of sizes {shape}")
        if number not in self._sound:
            if np.isnan(table).any() or np.isneginf(table).any():
                raise ValueError("a cost table holds NaN or -inf")
            self._sound.add(number)


class FactorGraph:
    """Variables and additive cost tables over them.

    `sizes[v]`, `names[v]` describe variable v; `scopes[i]`, `tables[i]` the i-th plain factor;
    `priced_scopes[i]`, `priced_tables[i]` the i-th priced one, whose table has shape `(components, *sizes of scope)`.
    `table_ids` and `priced_ids` number the tables by content. `order` is the elimination order that its maker knows to suit it, None where
    none is known.
    """

    def __init__(self) -> None:
        self.order: Order | None = None
        self.names: list[str] = []
        self.sizes: list[int] = []
        self.scopes: list[tuple[int, ...]] = []
        self.table_ids: list[int] = []
        self.priced_scopes: list[tuple[int, ...]] = []
        self.priced_ids: list[int] = []
        self.components = 0
        self.store = TableStore()

    # -- building ------------------------------------------------------------------------------------------------

    def variable(self, name: str, size: int) -> int:
        """Add a variable of `size` >= 1 values and return its number (0, 1, 2 … in order of addition)."""
        if size < 1:
            raise ValueError(f"variable {name!r} needs at least one value, not {size}")
        self.names.append(name)
        self.sizes.append(int(size))
        return len(self.sizes) - 1

    def factor(self, scope: Sequence[int], table: ArrayLike) -> None:
        """Add `table[values of scope]` to the cost. Entries are numbers or +inf (forbidden); scope may be empty.

        Several factors may have one scope. Raises ValueError where shape, scope or an entry is wrong.
        """
        numbers = self._scope(scope)
        table_id = self.store.intern(table)
        self.store.checked(table_id, tuple(self.sizes[v] for v in numbers))
        open_ = self._open(numbers)
        if len(open_) < len(numbers):
            table_id = self.store.intern(self.store.tables[table_id].reshape([self.sizes[v] for v in open_]))
        self.scopes.append(open_)
        self.table_ids.append(table_id)

    def priced_factor(self, scope: Sequence[int], tensor: ArrayLike) -> None:
        """Add `sum_k prices[k] * tensor[k, values of scope]` to the cost, the prices being given on solving.

        All priced factors of a graph have the same K. Where any component is +inf the combination is forbidden under
        every price, a price of zero included.
        """
        numbers = self._scope(scope)
        array = np.asarray(tensor, dtype=np.float64)
        count = array.shape[0] if array.ndim else 0
        if count < 1 or (self.components and count != self.components):
            raise ValueError(f"a priced factor here has {self.components or 'some'} components, not {count}")
        infinite = np.isposinf(array)
        if infinite.any():
            self.factor(numbers, np.where(infinite.any(axis=0), np.inf, 0.0))
            array = np.where(infinite, 0.0, array)
            tensor = array
        table_id = self.store.intern(tensor)
        self.store.checked(table_id, (count, *(self.sizes[v] for v in numbers)))
        open_ = self._open(numbers)
        if len(open_) < len(numbers):
            table_id = self.store.intern(self.store.tables[table_id].reshape([count, *(self.sizes[v] for v in open_)]))
        self.components = count
        self.priced_scopes.append(open_)
        self.priced_ids.append(table_id)

    def spread(
        self, sites: Sequence[tuple[tuple[int, ...], Hashable]], table: Callable[[int], Array], priced: bool
    ) -> None:
        """Add a factor (`priced`, or plain) at every site: `(scope, kind)`, where `table(n)` is that of the n-th one.

        It is asked for at the first site of each kind: those of one kind have one table, so scopes of equal sizes. What it comes
        to is the same, factor by factor, as adding them one after another; layers that are alike only cost a look-up.
        """
        add = self.priced_factor if priced else self.factor
        known: dict[Hashable, tuple[tuple[int, ...], list[int], list[int]]] = {}
        for n, (scope, kind) in enumerate(sites):
            found = known.get(kind)
            if found is None:
                plain, weighed = len(self.scopes), len(self.priced_scopes)
                add(scope, table(n))
                sizes = tuple(map(self.sizes.__getitem__, scope))
                known[kind] = (sizes, self.table_ids[plain:], self.priced_ids[weighed:])
                continue
            sizes, plain_ids, priced_ids = found
            if tuple(map(self.sizes.__getitem__, scope)) != sizes:
                raise ValueError(f"sites of one kind have variables of sizes {sizes}, not those of {scope}")
            open_ = scope if 1 not in sizes else self._open(scope)
            for ids, into, scopes in (
                (plain_ids, self.table_ids, self.scopes),
                (priced_ids, self.priced_ids, self.priced_scopes),
            ):
                for number in ids:
                    into.append(number)
                    scopes.append(open_)

    def _open(self, scope: tuple[int, ...]) -> tuple[int, ...]:
        """The variables of a scope that leave a choice: one of a single value would only add an axis to every table."""
        return tuple(v for v in scope if self.sizes[v] > 1)

    def copy(self) -> FactorGraph:
        """A graph that can be extended (pinned, say) without changing this one; tables stay shared."""
        other = FactorGraph()
        other.names, other.sizes = self.names.copy(), self.sizes.copy()
        other.scopes, other.table_ids = self.scopes.copy(), self.table_ids.copy()
        other.priced_scopes, other.priced_ids = self.priced_scopes.copy(), self.priced_ids.copy()
        other.components, other.store, other.order = self.components, self.store, self.order
        return other

    def _scope(self, scope: Sequence[int]) -> tuple[int, ...]:
        numbers = tuple(int(v) for v in scope)
        if len(set(numbers)) != len(numbers):
            raise ValueError(f"a variable stands twice in the scope {numbers}")
        for v in numbers:
            if not 0 <= v < len(self.sizes):
                raise ValueError(f"no variable {v}; there are {len(self.sizes)}")
        return numbers

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def variables(self) -> list[Variable]:
        return [Variable(name, size) for name, size in zip(self.names, self.sizes, strict=True)]

    @property
    def tables(self) -> list[Array]:
        return [self.store.tables[i] for i in self.table_ids]

    @property
    def priced_tables(self) -> list[Array]:
        return [self.store.tables[i] for i in self.priced_ids]

    def checked_prices(self, prices: ArrayLike | None) -> Array:
        """`prices` as an array of shape `(components,)`; ValueError where they don't fit this graph."""
        if prices is None:
            if self.components:
                raise ValueError(f"this graph has {self.components} priced components: give their prices")
            return np.zeros(0)
        array = np.array(prices, dtype=np.float64)
        if array.shape != (self.components,) or not np.isfinite(array).all():
            raise ValueError(f"{self.components} finite prices are needed, not {prices!r}")
        return array

    def plain(self, assignment: Sequence[int]) -> float:
        """The sum of the plain factors' entries."""
        self._values(assignment)
        tables = self.store.tables
        factors = zip(self.scopes, self.table_ids, strict=True)
        return math.fsum(float(tables[i][tuple(assignment[v] for v in scope)]) for scope, i in factors)

    def component_sums(self, assignment: Sequence[int]) -> Array:
        """The sum of the priced factors' entries, shape `(components,)`, unpriced."""
        self._values(assignment)
        total = np.zeros(self.components)
        for scope, table_id in zip(self.priced_scopes, self.priced_ids, strict=True):
            at: tuple[slice | int, ...] = (slice(None), *(assignment[v] for v in scope))
            total += self.store.tables[table_id][at]
        return total

    def cost(self, assignment: Sequence[int], prices: ArrayLike | None = None) -> float:
        """The cost of a complete assignment, entry by entry; shares nothing with how it was found."""
        weights = self.checked_prices(prices)
        return self.plain(assignment) + float(self.component_sums(assignment) @ weights)

    def _values(self, assignment: Sequence[int]) -> None:
        """Negative values would silently count from the end of a table."""
        if len(assignment) != len(self.sizes):
            raise ValueError(f"{len(assignment)} values for {len(self.sizes)} variables")
        for v, (value, size) in enumerate(zip(assignment, self.sizes, strict=True)):
            if not 0 <= value < size:
                raise ValueError(f"variable {self.names[v]!r} has values 0..{size - 1}, not {value}")
