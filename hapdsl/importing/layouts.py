"""Values, the dims they are seen by and those they are stored by, and the statements that bring one to the other."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch.fx import Node

from hapdsl.importing.atoms import Atom, Dim, Ties, leaves, root, size
from hapdsl.importing.trace import Origin, origin
from hapdsl.importing.values import (
    Declared,
    Extent,
    Layout,
    Notation,
    Sizes,
    Statement,
    Tensor,
    Value,
    flat,
    resolved,
    same_atoms,
    same_layout,
)
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.run.context import DTYPES, NAMES
from hapdsl.theory.dtypes import FLOATS


class Layouts:
    """What handlers write with: atoms, ties, statements. `here` is the operator at hand."""

    def __init__(self) -> None:
        self.ties = Ties()
        self.fresh: dict[Hashable, Atom] = {}
        self.merged: set[str] = set()  # parameters whose readers want their dims as the module has them
        self.statements: list[Statement] = []
        self.declared: dict[str, Declared] = {}
        self.here: Node | None = None
        self.measured: dict[
            Atom, tuple[list[Dim], int]
        ] = {}  # the length of a dim as a sum of those of others and a number

    # -- what is refused -------------------------------------------------------------

    @property
    def origin(self) -> Origin:
        return origin(self.here) if self.here is not None else Origin()

    def unknown(self, name: str) -> HapError:
        where = self.origin
        if name.endswith((".out", "_out")):
            return error(
                "HAP875",
                f"{name} writes into a tensor that is there" + (f" ({where})" if str(where) else ""),
                where.span,
                "write the new value to a tensor of its own; what only training changes (the vectors of spectral_norm) stays as it is in eval()",
            )
        return error(
            "HAP874",
            f"no operator of the theory stands for {name}" + (f" ({where})" if str(where) else ""),
            where.span,
            "declare an `op` for it and write this part of the model by hand, or compute it with other functions",
        )

    def refuse(self, what: str, help: str = "") -> HapError:
        """An operator that is known, but not in this form."""
        where = self.origin
        return error("HAP877", f"{what} can't be imported" + (f" ({where})" if str(where) else ""), where.span, help)

    def dtype(self, tensor: torch.Tensor) -> str:
        if tensor.dtype not in NAMES:
            where = self.origin
            raise error("HAP876", f"a tensor of {tensor.dtype}" + (f" ({where})" if str(where) else ""), where.span, f"known: {', '.join(DTYPES)}")  # fmt: skip
        return NAMES[tensor.dtype]

    # -- dims -------------------------------------------------------------------------

    def atom(self, key: Hashable, extent: int, twin: Atom | None = None) -> Atom:
        """The atom of a key, the same one in every pass."""
        if key not in self.fresh:
            self.fresh[key] = Atom(extent, twin)
        return self.fresh[key]

    def new_dim(self, key: Hashable, extent: int, side: bool = False) -> Dim:
        """A dim that the operator at hand makes; `side` of an image."""
        assert self.here is not None
        found = self.fresh.get((self.here.name, key))
        atom = found or self.fresh.setdefault((self.here.name, key), Atom(extent, side=side))
        return leaves((atom,))

    def again(self, key: Hashable, times: int, beside: set[int]) -> Dim:
        """A dim along which the operator at hand repeats a value so many times, with an index of its own: `beside` are the ids of the atoms of
        the value's other dims, to which it may be tied (each row beside each row). It is added to them."""
        found = self.new_dim(key, times) if times > 1 else ()
        found = leaves(self.second(a, f"again {key}") if id(a) in beside else a for a in found)
        if any(id(a) in beside for a in found):
            raise self.refuse("a tensor that is repeated along several dims of one length", "repeat it along one of them, or along one after another")  # fmt: skip
        beside.update(id(a) for a in found)
        return found

    def measure(self, dim: Dim, rows: Sequence[Dim], plus: int = 0) -> None:
        """Note what a new dim is as long as: together as the rows, and so many elements."""
        if len(dim) == 1 and size(dim) == sum(size(r) for r in rows) + plus:
            self.measured[dim[0]] = (list(rows), plus)

    def measured_by(self, node: Node, dims: Sequence[Dim]) -> None:
        """Note the lengths of a node's dims that another export has shown (`lengths.find`)."""
        for d, (atom, plus) in node.meta.get("lengths", {}).items():
            if leaves(dims[d]) != (atom,):
                self.measure(dims[d], [(atom,)], plus)

    def second(self, atom: Atom, use: str = "") -> Atom:
        """Another index over the same extent, for the operator at hand."""
        assert self.here is not None
        return self.atom((self.here.name, "second", use, id(root(atom))), atom.size, root(atom))

    def tie(self, a: Dim, b: Dim) -> None:
        """Two dims that the operator at hand wants equal."""
        if not self.ties.tie(a, b):
            raise self.refuse(
                f"a dim of {size(a)} that is split in two ways which don't nest",
                "split and join the dims of what is computed with one another in the same order",
            )

    # -- statements --------------------------------------------------------------------

    def emit(
        self,
        op: str,
        operands: Sequence[Value],
        dims: Layout,
        stored: Layout,
        dtype: str | None = None,
        /,
        *,
        inner: bool = False,
        called: str = "",
        **attributes: Any,
    ) -> Value:
        """Write one statement with one result."""
        if len({id(a) for a in flat(stored)}) < len(flat(stored)):
            raise self.refuse(f"{op} with one index for two dims of its result")
        result = Tensor()
        read, shapes, dtype = [v.tensor for v in operands], [v.stored for v in operands], dtype or operands[0].dtype
        statement = Statement(op, read, attributes, result, dtype, self.origin, inner, shapes, stored, called=called)
        result.statement = statement
        self.statements.append(statement)
        return Value(result, dims, stored, dtype)

    def emit_many(
        self,
        op: str,
        operands: Sequence[Value],
        made: Sequence[tuple[Layout, Layout]],
        words: tuple[str, ...],
        **attributes: Any,
    ) -> list[Value]:
        """Write one statement with several results: (dims, stored) of each, and what they are called."""
        first = self.emit(op, operands, *made[0], **attributes)
        statement = first.tensor.statement
        assert statement is not None
        statement.results = [first.tensor, *(Tensor(statement=statement) for _ in made[1:])]
        statement.words = words
        return [Value(t, dims, stored, first.dtype) for t, (dims, stored) in zip(statement.results, made, strict=True)]

    def fits(self, value: Value, layout: Layout) -> Value:
        """The value stored as `layout`, whose atoms are those stored, and repeated ones."""
        if value.tensor.name in self.declared and self.declared[value.tensor.name].kind != "input":
            self.want_whole(value, layout)
        if same_layout(value.stored, layout):
            return value
        have = {id(a) for a in value.atoms}
        missing = [a for a in flat(layout) if id(a) not in have]
        if missing:
            return self.repeated(value, layout, have)
        dims = Sizes(tuple(d for d in value.stored if len(d) > 1))
        return self.emit(
            "rearrange", [value], value.dims, layout, inner=True, spec=Notation((value.stored,), layout), sizes=dims
        )

    def want_whole(self, value: Value, layout: Layout) -> None:
        """A parameter that is read with its own dims is declared so; one whose dims are read split stays split."""
        name = value.tensor.name
        if name not in self.merged and same_layout(layout, value.dims) and not same_layout(value.stored, value.dims):
            self.merged.add(name)

    def repeated(self, value: Value, layout: Layout, have: set[int]) -> Value:
        """`value` with the atoms that it repeats laid out in full."""
        partly = any(0 < sum(id(a) in have for a in d) < len(d) for d in layout)
        full: Layout = tuple((a,) for a in flat(layout)) if partly else layout
        kept = tuple(d for d in full if not d or id(d[0]) in have)
        value = self.fits(value, kept)
        places = [k for k, d in enumerate(full) if d and id(d[0]) not in have]
        sizes = [Extent(full[k]) for k in places]
        spread = self.emit("spread", [value], value.dims, full, dims=places, sizes=sizes)
        return self.fits(spread, layout)

    def logical(self, value: Value) -> Value:
        """The value stored as the module sees it."""
        return self.fits(value, resolved(value.dims))

    def isolated(self, value: Value, dim: Dim) -> tuple[Value, int]:
        """The value with the atoms of `dim` as one stored dim, and which one that is."""
        for k, stored in enumerate(value.stored):
            if same_atoms(stored, dim):
                return value, k
        wanted = {id(a) for a in dim}
        if not wanted <= {id(a) for a in value.atoms}:
            value = self.logical(value)
            return self.isolated(value, dim)
        layout: list[Dim] = []
        for stored in value.stored:
            if not wanted & {id(a) for a in stored}:
                layout.append(stored)
            elif id(dim[0]) in {id(a) for a in stored}:
                run: list[Atom] = []
                for a in stored:
                    if a is dim[0]:
                        layout.extend([tuple(run)] if run else [])
                        layout.append(dim)
                        run = []
                    elif id(a) not in wanted:
                        run.append(a)
                layout.extend([tuple(run)] if run else [])
            else:
                rest = tuple(a for a in stored if id(a) not in wanted)
                layout.extend([rest] if rest else [])
        value = self.fits(value, tuple(layout))
        return value, next(k for k, stored in enumerate(value.stored) if same_atoms(stored, dim))

    def last(self, value: Value, dims: Sequence[Dim]) -> Value:
        """The value with the atoms of `dims` merged into the last stored dim."""
        wanted = flat(dims)
        ids = {id(a) for a in wanted}
        if not ids <= {id(a) for a in value.atoms}:
            value = self.logical(value)
        rest = tuple(r for s in value.stored if (r := tuple(a for a in s if id(a) not in ids)) or not s)
        return self.fits(value, (*rest, wanted))

    # -- pointwise ------------------------------------------------------------------------

    def broadcast(self, values: Sequence[Value]) -> tuple[list[Value], Layout]:
        """The values with the indices of their common dims, as numpy broadcasts, and these dims. Equal dims are tied.

        Where two dims of the result run over one extent (an outer product of a vector with itself), each has an index of its own.
        """
        rank = max(len(v.dims) for v in values)
        columns = [
            [v.dims[at] if (at := place - rank + len(v.dims)) >= 0 else () for v in values] for place in range(rank)
        ]
        for column in columns:
            held = [d for d in column if leaves(d)]
            for other in held[1:]:
                self.tie(held[0], other)
        out: list[Dim] = []
        used: set[int] = set()
        for place, column in enumerate(columns):
            found = [own for d in column if (own := leaves(d))]
            free = next((own for own in found if not used & {id(a) for a in own}), None)
            chosen = (
                free if free is not None else tuple(self.second(a, f"dim {place}") for a in found[0]) if found else ()
            )
            used |= {id(a) for a in chosen}
            out.append(chosen)
        return [self.renamed(v, out[rank - len(v.dims) :]) for v in values], tuple(out)

    def renamed(self, value: Value, dims: Sequence[Dim]) -> Value:
        """The value with the indices of other dims over the same extents; a dim of 1 stays one."""
        own = resolved(value.dims)
        names: dict[int, Atom] = {}
        for old, new in zip(own, dims, strict=True):
            names.update({id(a): b for a, b in zip(old, new, strict=bool(old))})
        stored = tuple(tuple(names.get(id(a), a) for a in d) for d in resolved(value.stored))
        return Value(value.tensor, tuple(tuple(names[id(a)] for a in d) for d in own), stored, value.dtype)

    def pointwise(self, op: str, values: Sequence[Value], dtype: str | None = None, **attributes: Any) -> Value:
        """A pointwise operator with broadcasting. The result is stored as its largest operand is, of several as one that is stored
        as the module sees it."""
        if dtype is None:
            values = self.promoted(values)
        values, dims = self.broadcast(values)
        needed = {id(a) for v in values for a in v.atoms}
        leader = max(values, key=lambda v: (len(v.atoms), same_layout(v.stored, v.dims), len(v.stored)))
        order = flat(dims)
        if needed <= {id(a) for a in leader.atoms}:
            layout = leader.stored
        else:
            layout = tuple(r for d in dims if (r := tuple(a for a in d if id(a) in needed)))
        if any(0 < sum(any(a is b for b in v.atoms) for a in d) < len(d) for v in values for d in layout):
            layout = tuple((a,) for a in order if id(a) in needed)
        operands = [self.stretched(v, layout) for v in values]
        made = dtype or next((v.dtype for v in values if v.dtype in FLOATS), values[0].dtype)
        return self.emit(op, operands, dims, layout, made, **attributes)

    def promoted(self, values: Sequence[Value]) -> list[Value]:
        """The values in one dtype, as torch promotes, for which scalars count less; operators of the theory don't."""
        by_rank = [[DTYPES[v.dtype] for v in values if bool(v.dims) == ranked] for ranked in (True, False)]
        kinds = [
            torch.empty((1,) * (1 - k), dtype=functools.reduce(torch.promote_types, own), device="meta")
            for k, own in enumerate(by_rank)
            if own
        ]
        wide = NAMES[torch.result_type(kinds[0], kinds[-1])]
        return [v if v.dtype == wide else self.emit("cast", [v], v.dims, v.stored, wide, to=wide) for v in values]

    def stretched(self, value: Value, layout: Layout) -> Value:
        """The value laid out to be broadcast against `layout`: dims it lacks are 1, or left out in front."""
        have = {id(a) for a in value.atoms}
        wanted = _trimmed([d if d and id(d[0]) in have else () for d in layout])
        if same_layout(_trimmed(value.stored), wanted) and len(value.stored) <= len(layout):
            return value
        return self.fits(value, wanted)


def _trimmed(layout: Sequence[Dim]) -> Layout:
    """A layout without the dims of 1 in front."""
    start = next((k for k, d in enumerate(layout) if d), len(layout))
    return tuple(layout[start:])
