"""One call of an operator: its index notation laid over the actual shapes (by `theory.instantiate`).

An instance says for every dim of every operand and output which indices it holds, and how
long each index is. Rules, flops, dimension classes and kernels all read it; nothing about an
operator is derived anywhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error
from hapdsl.theory.expressions import evaluate
from hapdsl.theory.ops import OpDecl

Shape = tuple[int, ...]
# The indices of one dim, major first; empty where the dim is 1 and stretches, or is a literal 1.
Dim = tuple[str, ...]


@dataclass(frozen=True)
class Given:
    """An operand as passed: the declared operand it fills, its shape and its dtype."""

    operand: str
    shape: Shape
    dtype: str


@dataclass(frozen=True)
class Instance:
    """`operands[k][d]` and `results[k][d]` are the indices of a dim; `extents` their lengths in elements.

    `stars` maps a star to the indices it stands for, `copies` an index that each operand of a variadic one has for itself to theirs;
    `sums` and `wholes` have both resolved; `linear` lists groups of operand positions.
    """

    decl: OpDecl
    given: tuple[Given, ...]
    attributes: Mapping[str, Any]
    operands: tuple[tuple[Dim, ...], ...]
    results: tuple[tuple[Dim, ...], ...]
    result_shapes: tuple[Shape, ...]
    result_dtypes: tuple[str, ...]
    extents: Mapping[str, int]
    stars: Mapping[str, tuple[str, ...]]
    sums: frozenset[str]
    wholes: frozenset[str]
    linear: tuple[tuple[int, ...], ...]
    copies: Mapping[str, tuple[str, ...]]

    def flops(self, lengths: Mapping[str, Any]) -> Any:
        """Floating-point operations where index `i` has local length `lengths[i]` (numbers or arrays over devices).

        Raises HapError HAP202 where the declaration counts with what is no number; so does `reads`.
        """
        full = {**self.extents, **lengths}
        if self.decl.notation:
            if len(self.given) == 1:
                return 0.0
            total: Any = 2.0
            for index in self.extents:
                total = total * full[index]
            return total
        if self.decl.flops is None:
            return 0.0
        return _amount(self.decl.flops, self._counted(full))

    def reads(self, lengths: Mapping[str, Any]) -> dict[int, Any]:
        """Elements that are read of operands that aren't read whole, by the operand's place in `given`; `lengths` as for `flops`."""
        if not self.decl.reads:
            return {}
        names = self._counted({**self.extents, **lengths})
        said = self.decl.reads
        return {k: _amount(said[g.operand], names) for k, g in enumerate(self.given) if g.operand in said}

    def tiled(self, lengths: Mapping[str, Any]) -> list[Any]:
        """The lengths of the dims that kernels compute in tiles, an entry per dim; `lengths` as for `flops`."""
        names = self._counted({**self.extents, **lengths}) if self.decl.tiled else {}
        return [math.prod((names[name] for name in dim.names), start=1) for dim in self.decl.tiled]

    def _counted(self, lengths: Mapping[str, Any]) -> dict[str, Any]:
        """What counts may name: attributes, lengths of indices, those of stars as products and of joined operands as sums."""
        names = {**self.attributes, **lengths}
        for star, members in self.stars.items():
            product: Any = 1
            for member in members:
                product = product * lengths[member]
            names[star] = product
        for index, members in self.copies.items():
            names[index] = sum(lengths[member] for member in members)
        return names

    @cached_property
    def indices(self) -> tuple[str, ...]:
        """All indices, in the order in which operands and outputs show them."""
        seen: dict[str, None] = {}
        for dims in self.operands + self.results:
            for dim in dims:
                seen.update(dict.fromkeys(dim))
        return tuple(seen)

    @cached_property
    def derived(self) -> dict[str, Any]:
        """What others work out of it once (`theory.rules`): equal calls of a graph share their instance."""
        return {}

    def major(self, dim: Dim) -> str:
        """The index on which a dim is cut: the first that is longer than 1. `(groups c)` of one group is cut like `c`."""
        return next((i for i in dim if self.extents[i] > 1), dim[0])

    def minor(self, dim: Dim) -> int:
        """How many elements of a dim go with one of its major index."""
        return math.prod(self.extents[i] for i in dim) // self.extents[self.major(dim)]

    @cached_property
    def cuts(self) -> tuple[tuple[tuple[str, int] | None, ...], ...]:
        """`(major, minor)` of each dim of each operand and then of each output; None of a dim that holds no index."""
        return tuple(
            tuple((self.major(dim), self.minor(dim)) if dim else None for dim in dims)
            for dims in self.operands + self.results
        )

    def majors(self, index: str) -> tuple[list[int | None], list[int | None]] | None:
        """For each operand and each output the dim whose major index is `index`, None where it is absent.

        The whole answer is None where `index` is the minor part of a merged dim, or stands twice in one tensor.
        """
        sides: list[list[int | None]] = []
        for side in (self.operands, self.results):
            dims: list[int | None] = []
            for tensor in side:
                found = [d for d, dim in enumerate(tensor) if index in dim]
                if len(found) > 1 or (found and self.major(tensor[found[0]]) != index):
                    return None
                dims.append(found[0] if found else None)
            sides.append(dims)
        return sides[0], sides[1]


def _amount(expr: nodes.Expr, names: Mapping[str, Any]) -> Any:
    """A count, as a float or an array of floats."""
    found = evaluate(expr, names)
    if isinstance(found, str | list):
        raise error("HAP202", f"a count must be a number, this is {found!r}", expr.span)
    return 1.0 * found
