"""What every value of a variable costs at least, and the assignment that shows it, from tables that are there already.

An elimination's messages say what lies below each bucket. Here the other direction is added as far as it is asked for:
`above` a bucket stands the cost of everything outside its subtree. Both together are exact for every value of every
variable (Dawid 1992; Shenoy and Shafer call it propagation in a junction tree), so an answer for one tensor costs a way
from the root to its bucket, and answers for all tensors about as much as some eliminations.

What comes down is rounded to 2^-44 of the bound: so small differences of summation stay out, and equal layers are
found again. A marginal may be off by that much per layer, relatively some 1e-11 in all.
"""

from __future__ import annotations

import math

import numpy as np

from hapdsl.search.eliminate import Bucket, Elimination
from hapdsl.search.factors import Array, Assignment, TableStore

GRAIN = 2.0**-44


class Marginals:
    """Min-marginals of a solved graph, and their assignments. Raises ValueError where nothing is allowed at all."""

    def __init__(self, elimination: Elimination) -> None:
        if not elimination.feasible:
            raise ValueError("no assignment is allowed")
        self.elimination = elimination
        buckets = elimination.buckets
        self._place = {bucket.variable: k for k, bucket in enumerate(buckets)}
        # Of each bucket's message: the bucket that adds it up, and as which part.
        self._reader: dict[int, tuple[int, int]] = {}
        for k, bucket in enumerate(buckets):
            for part, child in bucket.children:
                self._reader[child] = (k, part)
        self._store = TableStore()
        self._nothing = self._store.intern(np.zeros(()))
        self._above: dict[int, int] = {}
        self._down: dict[tuple[int, int], tuple[Array, dict[int, Array]]] = {}
        self._below: dict[tuple[int, int, int], int] = {}
        self._first: dict[tuple[int, tuple[int, ...]], int] = {}
        self._grain = GRAIN * 2.0 ** math.ceil(math.log2(abs(elimination.bound) or 1.0))

    def of(self, variable: int) -> Array:
        """For each value the cost of the cheapest assignment that has it, inf where there is none; shape `(size,)`."""
        place = self._place[variable]
        marginal = self._downward(place)[0]
        return np.asarray(marginal - marginal.min() + self.elimination.bound)

    def best(self, variable: int, value: int) -> Assignment:
        """A cheapest assignment with this value; of equal ones that with the lowest values near the variable.

        Raises ValueError where there is none. Cost: the way to the root, and a look-up per variable.
        """
        place = self._place[variable]
        known = {variable: value}
        while True:
            self._settle(place, known)
            if place not in self._reader:
                break
            place = self._reader[place][0]
        buckets = self.elimination.buckets
        chosen = [-1] * len(buckets)
        for v, found in known.items():
            chosen[v] = found
        for bucket in reversed(buckets):
            if chosen[bucket.variable] < 0:
                at = tuple(chosen[u] for u in bucket.others)
                key = (bucket.kernel.number, at)
                if key not in self._first:
                    self._first[key] = int(bucket.kernel.vector(at).argmin())
                chosen[bucket.variable] = self._first[key]
        return tuple(chosen)

    def _settle(self, place: int, known: dict[int, int]) -> None:
        """Choose what is still open among a bucket's variables."""
        bucket = self.elimination.buckets[place]
        axes = (bucket.variable, *bucket.others)
        at = tuple(known.get(v, slice(None)) for v in axes)
        table = np.zeros(tuple(bucket.kernel.shape[i] for i, v in enumerate(axes) if v not in known))
        for part in bucket.kernel.parts:
            table = table + part.wide[at]
        above = np.broadcast_to(self._store.tables[self.above(place)], bucket.kernel.shape)
        table = np.asarray(table + above[at])
        if not np.isfinite(table.min()):
            raise ValueError("no assignment has this value")
        best = np.unravel_index(int(table.argmin()), table.shape)
        for v, found in zip((v for v in axes if v not in known), best, strict=True):
            known[v] = int(found)

    # -- downward ----------------------------------------------------------------------

    def above(self, place: int) -> int:
        """The number of the table, over a bucket's others, of all that is outside its subtree; known ones are kept."""
        way = [place]
        while way[-1] in self._reader and way[-1] not in self._above:
            way.append(self._reader[way[-1]][0])
        for k in reversed(way):
            if k in self._above:
                continue
            self._above[k] = self._from(k) if k in self._reader else self._nothing
        return self._above[place]

    def _downward(self, place: int) -> tuple[Array, dict[int, Array]]:
        kernel = self.elimination.buckets[place].kernel
        above = self.above(place)
        key = (kernel.number, above)
        if key not in self._down:
            self._down[key] = kernel.downward(np.broadcast_to(self._store.tables[above], kernel.shape[1:]))
        return self._down[key]

    def _from(self, child: int) -> int:
        """What the bucket that reads a child's message knows beside that message."""
        place, part = self._reader[child]
        key = (self.elimination.buckets[place].kernel.number, self._above[place], part)
        if key not in self._below:
            belief = self._downward(place)[1][part]
            self._below[key] = self._store.intern(self._without(belief, self.elimination.buckets[child]), fresh=True)
        return self._below[key]

    def _without(self, belief: Array, child: Bucket) -> Array:
        message = self.elimination.least(child.kernel)
        found = np.full(belief.shape, np.inf)
        np.subtract(belief, message, out=found, where=np.isfinite(belief))
        found -= found.min()
        return np.asarray(np.rint(found / self._grain) * self._grain)
