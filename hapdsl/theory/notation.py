"""Operators whose index notation stands in an attribute: einsum, rearrange, reshape.

einsum    "bsd,dhe->bhse"             one letter an index
rearrange "b s (h e) -> b h s e"      names, merged dims in parentheses
reshape   [256, -1]                   the notation follows from both shapes
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hapdsl.lang.diagnostics import error
from hapdsl.lang.nodes import Span
from hapdsl.theory.expressions import is_whole

if TYPE_CHECKING:
    from hapdsl.theory.instance import Dim, Given, Instance
    from hapdsl.theory.ops import OpDecl

Dims = tuple["Dim", ...]
# operands' dims, outputs' dims, extents that only the notation knows
Read = tuple[tuple["Dims", ...], tuple["Dims", ...], dict[str, int]]


def read(decl: OpDecl, given: Sequence[Given], attributes: Mapping[str, Any], span: Span) -> Read:
    """The indices of each operand's and each output's dims. Raises HapError HAP308 for a notation that doesn't fit."""
    spec = attributes.get(decl.notation or "")
    extents = {name: value for name, value in attributes.items() if name != decl.notation}
    many = decl.operands[0].variadic
    if isinstance(spec, list) and not many:
        _known(decl.name, extents, set(), span)
        return _reshape(given[0].shape, spec, span)
    if not isinstance(spec, str) or spec.count("->") != 1:
        example = "bsd,dhe->bhse" if many else "b s (h e) -> b h s e"
        raise error("HAP308", f'{decl.name}: expected a notation like "{example}", found {spec!r}', span)
    left, right = spec.split("->")
    operands = tuple(_term(decl.name, term, span) for term in left.split(","))
    results = (_term(decl.name, right, span),)
    _check(decl.name, spec, operands, results, given, span)
    _known(decl.name, extents, {i for dims in operands for dim in dims for i in dim}, span)
    return operands, results, extents


def _known(name: str, extents: Mapping[str, Any], indices: set[str], span: Span) -> None:
    for index in extents:
        if index not in indices:
            raise error(
                "HAP308",
                f"{name}: '{index}' is no index of the notation",
                span,
                f"it has: {', '.join(sorted(indices)) or 'none'}",
            )


def _term(name: str, term: str, span: Span) -> Dims:
    """One tensor's dims: words where blanks or parentheses part them, else one letter a dim. A `1` holds no index."""
    text = term.strip()
    if not re.search(r"[\s()]", text):
        return tuple(_dim([letter]) for letter in text)
    dims: list[Dim] = []
    for piece in re.findall(r"\([^()]*\)|[^\s()]+|[()]", text):
        if piece in "()":
            raise error("HAP308", f"{name}: unbalanced parentheses in '{text}'", span)
        dims.append(_dim(piece.strip("()").split()))
    return tuple(dims)


def _dim(names: Sequence[str]) -> Dim:
    return tuple(name for name in names if name != "1")


def _check(
    name: str, spec: str, operands: tuple[Dims, ...], results: tuple[Dims, ...], given: Sequence[Given], span: Span
) -> None:
    names = [i for dims in (*operands, *results) for dim in dims for i in dim]
    numbers = [i for i in names if i.isascii() and i.isdigit()]
    bad = next((i for i in names if not (i.isidentifier() or i in numbers) or i.startswith("_")), None)
    if bad is not None:
        raise error("HAP308", f"{name}: '{bad}' in \"{spec}\" is no index", span)
    if len(operands) != len(given):
        raise error("HAP308", f'{name}: "{spec}" is for {len(operands)} operands, found {len(given)}', span)
    terms = spec.split("->")[0].split(",")
    for term, dims, operand in zip(map(str.strip, terms), operands, given, strict=True):
        if len(dims) != len(operand.shape):
            letters = len(operand.shape) == 1 and term.isidentifier()
            help = f"a term without blanks has one letter a dim; one dim of this name is ({term})" if letters else ""
            raise error("HAP301", f'{name}: "{spec}" gives an operand {len(dims)} dims, it has {len(operand.shape)}', span, help)  # fmt: skip
        for d, dim in enumerate(dims):
            if not dim and operand.shape[d] != 1:
                raise error("HAP302", f'{name}: dim {d} is {operand.shape[d]}, which "{spec}" says is 1', span)
        flat = [i for dim in dims for i in dim]
        if len(set(flat)) < len(flat):
            raise error(
                "HAP308", f'{name}: an index stands twice in one operand of "{spec}"', span, "take the diagonal first"
            )
    read = {i for dims in operands for dim in dims for i in dim}
    made = [i for dim in results[0] for i in dim]
    if len(set(made)) < len(made) or not set(made) <= read:
        raise error("HAP308", f'{name}: each index of the output of "{spec}" must stand once, and in an operand', span)
    for k, dims in enumerate(operands):
        elsewhere = set(made) | {i for j, other in enumerate(operands) if j != k for dim in other for i in dim}
        alone = {i for dim in dims for i in dim} - elsewhere
        if alone:
            raise error("HAP308", f"{name}: index {min(alone)} of \"{spec}\" stands in one operand only", span, "sum it first: sum(x, dims = …)")  # fmt: skip


def _reshape(shape: tuple[int, ...], target: list[Any], span: Span) -> Read:
    """Row-major reshape as a notation.

    Dims are matched in groups of equal product; dims of 1 belong to none. Within a group both sides
    can be cut alike along their leading dims, in gcd(first, first) units: (12, 8) and (16, 6) share a major
    index of 4. What is left has names that start with `_` and stays whole.
    """
    total = math.prod(shape)
    fits = all(is_whole(t) and (t > 0 or t == -1) for t in target) and (holes := target.count(-1)) < 2
    known = math.prod(t for t in target if t != -1) if fits else 0
    if not fits or (total % known if holes else total != known):
        raise error("HAP304", f"reshape: {list(shape)} has {total} elements, which don't fit {target}", span)
    wanted = tuple(total // known if t == -1 else t for t in target)
    left: list[Dim] = [()] * len(shape)
    right: list[Dim] = [()] * len(wanted)
    extents: dict[str, int] = {}
    for group, (ours, theirs) in enumerate(_groups(shape, wanted)):
        major = math.gcd(shape[ours[0]], wanted[theirs[0]])
        for side, dims, sizes, mark in ((left, ours, shape, "l"), (right, theirs, wanted, "r")):
            for k, d in enumerate(dims):
                names: list[tuple[str, int]] = [(f"g{group}", major)] if k == 0 and major > 1 else []
                rest = sizes[d] // (major if names else 1)
                if rest > 1:
                    names.append((f"_{mark}{group}_{k}", rest))
                extents.update(names)
                side[d] = tuple(name for name, _ in names)
    return (tuple(left),), (tuple(right),), extents


def _groups(left: tuple[int, ...], right: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Runs of dims (not of 1) with equal products, as positions on both sides."""
    ours = [d for d, n in enumerate(left) if n > 1]
    theirs = [d for d, n in enumerate(right) if n > 1]
    groups: list[tuple[list[int], list[int]]] = []
    while ours:
        run, other = [ours.pop(0)], [theirs.pop(0)]
        a, b = left[run[0]], right[other[0]]
        while a != b:
            if a < b:
                run.append(ours.pop(0))
                a *= left[run[-1]]
            else:
                other.append(theirs.pop(0))
                b *= right[other[-1]]
        groups.append((run, other))
    return groups


def gradient(instance: Instance, position: int) -> tuple[str, list[int], dict[str, Any]]:
    """The gradient of operand `position` of a notation operator, as a call of the same family.

    Returns the operator's name, the positions of the operands to pass behind the output's gradient,
    and the attributes: d einsum("ij,jk->ik") / d(first) = einsum("ik,jk->ij", y.grad, second).
    """
    spec = instance.attributes[instance.decl.notation or ""]
    if isinstance(spec, list):
        return "reshape", [], {"shape": list(instance.given[position].shape)}
    left, right = spec.split("->")
    terms = [t.strip() for t in left.split(",")]
    others = [k for k in range(len(terms)) if k != position]
    joined = ",".join([right.strip(), *(terms[k] for k in others)])
    arrow = "->" if instance.decl.name == "einsum" else " -> "
    # Of a merged dim's parts that no other operand shows, all but the first have to be given.
    fixed = {dim[0] for k in others for dim in instance.operands[k] if len(dim) == 1}
    parts = [[i for i in dim if i not in fixed] for dims in instance.results for dim in dims]
    given = {i: instance.extents[i] for unknown in parts for i in unknown[1:] if not i.isdigit()}
    return instance.decl.name, others, {"spec": f"{joined}{arrow}{terms[position]}", **given}
