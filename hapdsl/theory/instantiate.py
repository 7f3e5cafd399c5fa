"""An operator's index notation is laid over the shapes of a call: which dim of which operand holds which index, how long each is, what follows for the outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn

from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error
from hapdsl.lang.inline import commas
from hapdsl.lang.nodes import Span
from hapdsl.theory import notation
from hapdsl.theory.dtypes import FLOATS
from hapdsl.theory.expressions import evaluate, is_whole
from hapdsl.theory.instance import Dim, Given, Instance
from hapdsl.theory.ops import OpDecl
from hapdsl.theory.patterns import deal, is_star
from hapdsl.theory.precision import check_operands, result_dtype


def instantiate(
    decl: OpDecl, given: Sequence[Given], attributes: Mapping[str, Any], span: Span = nodes.NOWHERE
) -> Instance:
    """Lay the declaration over shapes and dtypes.

    Raises HapError: HAP301 rank, HAP302 extents that differ, HAP303 an extent that nothing fixes,
    HAP304 a dim that doesn't split, HAP305 a dtype, HAP306 a size that isn't positive or out of its bounds, HAP307 dims that
    aren't there, HAP308 a notation that doesn't fit.
    """
    return _Builder(decl, tuple(given), dict(attributes), span).build()


class _Builder:
    def __init__(self, decl: OpDecl, given: tuple[Given, ...], attributes: dict[str, Any], span: Span) -> None:
        self.decl, self.given, self.attributes, self.span = decl, given, attributes, span
        self.extents: dict[str, int] = {}
        self.stars: dict[str, tuple[str, ...]] = {}
        self.copies: dict[str, list[str]] = {}

    def fail(self, code: str, message: str, help: str = "") -> NoReturn:
        raise error(code, f"{self.decl.name}: {message}", self.span, help)

    def build(self) -> Instance:
        if self.decl.notation:
            operands, results, known = notation.read(self.decl, self.given, self.attributes, self.span)
            for index, extent in known.items():
                self.set_size(index, extent)
            sums = {i for dims in operands for dim in dims for i in dim} - {
                i for dims in results for dim in dims for i in dim
            }
            wholes = {i for dims in (*operands, *results) for dim in dims for i in dim if i.startswith("_")}
        else:
            operands, sums, wholes = self.match_operands(), set(self.decl.sums), set(self.decl.wholes)
            results = ()
        for given, dims in zip(self.given, operands, strict=True):
            for d, dim in enumerate(dims):
                if len(dim) == 1:
                    self.bind(dim[0], given.shape[d], given, d)
        for given, dims in zip(self.given, operands, strict=True):
            for d, dim in enumerate(dims):
                if len(dim) > 1:
                    self.bind_merged(dim, given.shape[d], given, d)
        check_operands(self.decl, self.given, self.fail)
        if not self.decl.notation:
            operands = self.stretched(operands)
            self.bind_sizes()
            results = tuple(self.result_dims(r) for r in self.decl.results)
        shapes = tuple(tuple(math.prod(self.extents[i] for i in dim) for dim in dims) for dims in results)
        return Instance(
            decl=self.decl,
            given=self.given,
            attributes=self.attributes,
            operands=tuple(operands),
            results=tuple(results),
            result_shapes=shapes,
            result_dtypes=tuple(self.dtype(r.name) for r in self.decl.results),
            extents=dict(self.extents),
            stars=dict(self.stars),
            copies={index: tuple(names) for index, names in self.copies.items()},
            sums=frozenset(self.resolve(sums)),
            wholes=frozenset(self.resolve(wholes)),
            linear=self.linear_groups(),
        )

    # -- operands ----------------------------------------------------------------

    def match_operands(self) -> tuple[tuple[Dim, ...], ...]:
        declared = {o.name: o for o in self.decl.operands}
        matched, turn = [], 0
        for given in self.given:
            operand = declared[given.operand]
            matched.append(self.match(operand, given, turn if operand.variadic else None))
            turn += operand.variadic
        return tuple(matched)

    def match(self, operand: nodes.Operand, given: Given, copy: int | None) -> tuple[Dim, ...]:
        """The indices of each dim of one operand, stars expanded."""
        rank = len(given.shape)
        plain = sum(1 for i in operand.dims if not i.star)
        if rank < plain or (rank > plain and not any(i.star for i in operand.dims)):
            self.fail("HAP301", f"operand '{operand.name}' has {rank} dims, expected [{commas(operand.dims)}]")
        seats = self.seats(operand.dims, rank)
        dims: list[Dim | None] = [None] * rank
        for index, positions in seats.items():
            names = (
                self.star(index, len(positions), operand.name)
                if is_star(operand.dims, index)
                else (self.named(index, copy),)
            )
            for name, position in zip(names, positions, strict=True):
                dims[position] = (name,)
        free = [d for d in range(rank) if dims[d] is None]
        dealt = deal(operand.dims, seats, free)
        if dealt is None:
            others = sum(not i.star and i.names[0] not in seats for i in operand.dims)
            self.fail("HAP307", f"{rank - len(free)} of the {rank} dims of '{operand.name}' are listed, {others} are left for others")  # fmt: skip
        for entry, positions in dealt:
            if entry.star:
                for name, position in zip(
                    self.star(entry.names[0], len(positions), operand.name), positions, strict=True
                ):
                    dims[position] = (name,)
            else:
                dims[positions[0]] = tuple(self.named(n, copy) for n in entry.names)
        return tuple(d if d is not None else () for d in dims)

    def seats(self, dims: tuple[nodes.Index, ...], rank: int) -> dict[str, list[int]]:
        """Positions that `at` statements give, normalised to 0 … rank-1."""
        found = {}
        for index, expr in self.decl.at.items():
            if any(i.names[0] == index for i in dims):
                value = evaluate(expr, self.attributes)
                positions = value if isinstance(value, list) else [value]
                if not all(map(is_whole, positions)):
                    self.fail("HAP307", f"dims must be whole numbers, not {value!r}")
                if any(not -rank <= p < rank for p in positions):
                    self.fail("HAP307", f"there is no dim {value} in a tensor of {rank} dims")
                found[index] = [p % rank for p in positions]
                if len(set(found[index])) < len(positions):
                    self.fail("HAP307", f"dim listed twice in {value}")
                if len(positions) != 1 and not is_star(dims, index):
                    self.fail("HAP307", f"exactly one dim is needed here, not {value}")
        taken = [p for positions in found.values() for p in positions]
        if len(set(taken)) < len(taken):
            self.fail("HAP307", f"{', '.join(found)} can't take one dim together")
        return found

    def star(self, name: str, count: int, where: str) -> tuple[str, ...]:
        """Names for `count` dims of a star: numbered from the right, so that operands align as numpy's do."""
        members = tuple(f"{name}.{k}" for k in reversed(range(count)))
        known = self.stars.get(name)
        if known is not None and len(known) != count and name not in self.stretchable:
            self.fail("HAP301", f"'{where}' has {count} dims for *{name}, but there are {len(known)} elsewhere")
        if known is None or count >= len(known):
            self.stars[name] = members
        return members

    @cached_property
    def stretchable(self) -> frozenset[str]:
        """The stars whose dims of 1 stretch, as numpy's do. Not those of joined operands, and none that is
        summed: a loss over a stretched operand is a mistake more often than a wish."""
        stars = {i.names[0] for o in self.decl.operands for i in o.dims if i.star}
        joined = {i.names[0] for o in self.decl.operands for i in o.dims if o.variadic}
        return frozenset(stars - joined - self.decl.sums)

    def named(self, index: str, copy: int | None) -> str:
        """An index of a variadic operand that no output has is its own in each copy."""
        if copy is None or index.isdigit() or any(index in i.names for r in self.decl.results for i in r.dims):
            return index
        name = f"{index}.{copy}"
        self.copies.setdefault(index, []).append(name)
        return name

    # -- extents -----------------------------------------------------------------

    def bind(self, index: str, extent: int, given: Given, d: int) -> None:
        if index.isdigit():
            if int(index) != extent:
                self.fail("HAP302", f"dim {d} of '{given.operand}' is {extent}, expected {index}")
            self.extents[index] = extent
            return
        known = self.extents.get(index)
        if known is None or (known == 1 and self.stretches(index)):
            self.extents[index] = extent
        elif known != extent and not (extent == 1 and self.stretches(index)):
            self.fail("HAP302", f"dim {d} of '{given.operand}' is {extent}, but {known} elsewhere (index {index})")

    def stretches(self, index: str) -> bool:
        return index.rpartition(".")[0] in self.stretchable

    def bind_merged(self, dim: Dim, extent: int, given: Given, d: int) -> None:
        for index in dim:
            if index.isdigit():
                self.extents[index] = int(index)
            elif index not in self.extents and index in self.attributes:
                self.set_size(index, self.attributes[index])
        unknown = [i for i in dim if i not in self.extents]
        if len(unknown) > 1:
            self.fail("HAP303", f"can't tell how dim {d} of '{given.operand}' ({extent}) splits into {' '.join(dim)}", f"give {unknown[0]} = …")  # fmt: skip
        product = math.prod(self.extents[i] for i in dim if i in self.extents)
        if unknown and product and extent % product == 0:
            self.extents[unknown[0]] = extent // product
        elif not unknown and sum(self.extents[i] > 1 for i in dim) == 1:
            self.bind(next(i for i in dim if self.extents[i] > 1), extent, given, d)
        elif unknown or product != extent:
            self.fail(
                "HAP304",
                f"dim {d} of '{given.operand}' is {extent}, which doesn't split into {' '.join(dim)} ({product})",
            )

    def stretched(self, operands: tuple[tuple[Dim, ...], ...]) -> tuple[tuple[Dim, ...], ...]:
        """A dim of 1 under a longer star index holds no index: it is read whole by every device."""
        return tuple(
            tuple(
                () if len(dim) == 1 and given.shape[d] == 1 and self.extents[dim[0]] > 1 else dim
                for d, dim in enumerate(dims)
            )
            for given, dims in zip(self.given, operands, strict=True)
        )

    def bind_sizes(self) -> None:
        names: dict[str, Any] = {**self.attributes, **self.extents}
        for index, copies in self.copies.items():
            names[index] = sum(self.extents[c] for c in copies)
        for index, expr in self.decl.sizes.items():
            value = evaluate(expr, names, {"within": self.within})
            if any(is_star(r.dims, index) for r in self.decl.results):
                if not isinstance(value, list):
                    self.fail("HAP306", f"*{index} needs a list of extents, not {value!r}")
                for name, extent in zip(self.star(index, len(value), index), value, strict=True):
                    self.set_size(name, extent)
            else:
                self.set_size(index, value)

    def within(self, value: Any, low: Any, high: Any) -> Any:
        """A function of `size` statements: `value`, which must be a whole number from low to high."""
        if not is_whole(value) or not low <= value <= high:
            self.fail("HAP306", f"{value!r} is no whole number from {low} to {high}")
        return value

    def set_size(self, index: str, extent: Any) -> None:
        if not is_whole(extent) or extent < 1:
            self.fail("HAP306", f"index {index} would have extent {extent!r}", "extents are whole numbers from 1")
        known = self.extents.setdefault(index, extent)
        if known != extent:
            self.fail("HAP302", f"index {index} would have extent {extent}, but an operand has {known}")

    # -- results -----------------------------------------------------------------

    def result_dims(self, result: nodes.Result) -> tuple[Dim, ...]:
        count = sum(len(self.stars.get(i.names[0], ())) if i.star else 1 for i in result.dims)
        seats = self.seats(result.dims, count)
        dims: list[Dim | None] = [None] * count
        for index, positions in seats.items():
            members = self.stars.get(index, ()) if is_star(result.dims, index) else (index,)
            if len(members) != len(positions):
                self.fail("HAP307", f"{len(positions)} dims are listed for {len(members)} extents")
            for name, position in zip(members, positions, strict=True):
                dims[position] = (name,)
        rest: list[Dim] = []
        for i in result.dims:
            if i.names[0] not in seats:
                rest.extend([(n,) for n in self.stars.get(i.names[0], ())] if i.star else [i.names])
        free = iter(rest)
        laid = [d if d is not None else next(free) for d in dims]
        self.extents.update({n: int(n) for dim in laid for n in dim if n.isdigit()})
        if result.name in self.decl.order:
            laid = self.permuted(laid, evaluate(self.decl.order[result.name], self.attributes))
        return tuple(laid)

    def permuted(self, dims: list[Dim], perm: Any) -> list[Dim]:
        n = len(dims)
        fits = isinstance(perm, list) and all(is_whole(p) and -n <= p < n for p in perm)
        if not fits or sorted(p % n for p in perm) != list(range(n)):
            self.fail("HAP307", f"{perm!r} is no permutation of {n} dims")
        return [dims[p % n] for p in perm]

    def dtype(self, result: str) -> str:
        return result_dtype(self.decl, self.given, self.attributes, result, self.fail)

    def resolve(self, names: set[str]) -> set[str]:
        resolved: set[str] = set()
        for name in names:
            resolved.update(self.stars[name] if name in self.stars else self.copies.get(name, [name]))
        return resolved

    def linear_groups(self) -> tuple[tuple[int, ...], ...]:
        """Groups of operands that may be partial sums together, where the dtypes allow it: rounding to whole numbers (or to
        true and false) is not linear, whatever the declaration says of the numbers behind."""
        positions: dict[str, list[int]] = {}
        for position, given in enumerate(self.given):
            positions.setdefault(given.operand, []).append(position)
        alone = bool(self.decl.notation) and not self.decl.linear
        groups: list[tuple[int, ...]] = [(p,) for p in range(len(self.given)) if alone]
        for names in self.decl.linear:
            group = tuple(p for name in names for p in positions.get(name, []))
            if group:
                groups.append(group)
        made = [self.dtype(r.name) for r in self.decl.results]
        return tuple(
            g
            for g in groups
            if all(d in FLOATS or (d != "bool" and {self.given[p].dtype for p in g} == {d}) for d in made)
        )
