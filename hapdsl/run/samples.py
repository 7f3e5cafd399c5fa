"""Calls to try an operator on: shapes derived from its declaration, attributes from the table below where it needs some."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error
from hapdsl.theory.dtypes import DTYPE_BYTES
from hapdsl.theory.expressions import evaluate
from hapdsl.theory.instance import Instance
from hapdsl.theory.ops import OpDecl

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Sample:
    """One call: (operand, shape) in order, and attributes. `below` bounds the integers of an operand.

    A `tentative` call is one that the theory allows and that the kernel may refuse: operands that stretch.
    """

    operands: tuple[tuple[str, Shape], ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    below: Mapping[str, int] = field(default_factory=dict)
    tentative: bool = False


@dataclass(frozen=True)
class Hint:
    """What a declaration doesn't say: attribute values, extents that go with them, or whole shapes."""

    attributes: Mapping[str, Any] = field(default_factory=dict)
    extents: Mapping[str, int] = field(default_factory=dict)
    shapes: tuple[tuple[str, Shape], ...] = ()


def _shaped(*shapes: Shape, name: str = "x", **attributes: Any) -> Hint:
    """Shapes of operands that are all called `name`."""
    return Hint(attributes, shapes=tuple((name, s) for s in shapes))


_IMAGE = {"h": 6, "w": 7, "kh": 3, "kw": 2, "h2": 4, "w2": 6}
_STRIDED = {"h": 6, "w": 7, "kh": 3, "kw": 2, "h2": 3, "w2": 4}

# Heads of their own, shared ones, and one that all queries share.
_HEADS = tuple(
    Hint({"causal": causal}, {"h": h, "r": r})
    for causal, h, r in ((False, 6, 1), (True, 6, 1), (True, 3, 2), (False, 1, 4))
)

HINTS: dict[str, tuple[Hint, ...]] = {
    "scale": (Hint({"by": -1.5}),),
    "shift": (Hint({"by": 0.75}),),
    "cast": (Hint({"to": "f64"}),),
    "dropout": (Hint({"p": 0.4, "key": "sample"}),),
    "drop_path": (Hint({"p": 0.4, "key": "sample"}),),
    "transpose": (_shaped((4, 6, 5), perm=[2, 0, 1]), _shaped((4, 6), perm=[-1, 0])),
    "rearrange": (
        _shaped((4, 5, 12), spec="b s (h e) -> b h s e", h=6),
        _shaped((4, 6, 5, 2), spec="b h s e -> b s (h e)"),
        _shaped((5, 4, 8), spec="c (a b) (d e) -> (d b) c (a e)", a=2, d=4),
    ),
    "reshape": (
        _shaped((12, 8), shape=[16, 6]),
        _shaped((3, 8, 5), shape=[24, -1]),
        _shaped((24, 5), shape=[1, 4, 6, 5]),
        _shaped((4, 3, 6), shape=[4, 18]),
    ),
    "concat": (
        _shaped((4, 3, 5), (4, 2, 5), (4, 6, 5), dim=1),
        _shaped((3, 5), (2, 5), dim=0),
        _shaped((4, 3), (4, 2), dim=-1),
    ),
    "slice": (_shaped((4, 6, 5), dim=1, start=2, stop=5), _shaped((4, 6), dim=-1, start=0, stop=3)),
    "unslice": (
        _shaped((4, 3, 5), name="g", dim=1, start=2, size=6),
        _shaped((4, 3), name="g", dim=-1, start=1, size=4),
    ),
    "pad": (
        _shaped((4, 6, 5), dim=1, before=2, after=1, value=-100),
        _shaped((4, 6), dim=-1, before=0, after=3, value=0.5),
    ),
    "embedding_grad": (Hint({"rows": 7}), Hint({"rows": 7, "padding": 2})),
    "embedding_bag_grad": (Hint({"rows": 7}),),
    "pick_grad": (Hint({"size": 7}, {"c": 7}),),
    "gather_grad": (Hint({"size": 7}, {"c": 7}),),
    "one_hot": (Hint({"classes": 7}, {"c": 7}),),
    "lower_triangle": (Hint({}, {"s": 5, "t": 5}),),
    "lower_triangle_grad": (Hint({"size": 5}, {"m": 10}),),
    "einsum": (
        _shaped((4, 5, 6), (6, 3, 2), spec="bsd,dhe->bhse"),
        _shaped((4, 3, 5, 2), (3, 2, 6), spec="bhse,hed->bsd"),
        _shaped((4, 5), (5, 6), (6, 3), spec="ab,bc,cd->da"),
        _shaped((4, 5), (4, 5), spec="ab,ab->a"),
    ),
    "conv2d": (
        Hint({"stride": 1, "pad": 0}, _IMAGE),
        Hint({"stride": 2, "pad": 1}, _STRIDED),
        Hint({"groups": 5, "dilation": 2}, {"h": 7, "w": 6, "kh": 3, "kw": 2, "c": 2, "o": 3}),
        Hint({"groups": 6}, {**_IMAGE, "c": 1, "o": 1}),  # depthwise
    ),
    "conv2d_input_grad": (
        Hint({"height": 6, "width": 7, "stride": 1, "pad": 0}, _IMAGE),
        Hint({"height": 6, "width": 7, "stride": 2, "pad": 1}, _STRIDED),
        Hint({"height": 6, "width": 7, "groups": 5}, {**_IMAGE, "c": 2, "o": 3}),
    ),
    "conv2d_weight_grad": (
        Hint({"kernel_height": 3, "kernel_width": 2, "stride": 1, "pad": 0}, _IMAGE),
        Hint({"kernel_height": 3, "kernel_width": 2, "stride": 2, "pad": 1}, _STRIDED),
        Hint({"kernel_height": 3, "kernel_width": 2, "groups": 5}, {**_IMAGE, "c": 2, "o": 3}),
    ),
    "conv_transpose2d": (
        Hint({}, {"h": 4, "w": 3, "kh": 3, "kw": 2}),
        Hint({"stride": 3, "pad": 1, "output_pad": 2}, {"h": 4, "w": 3, "kh": 3, "kw": 3}),
        Hint({"stride": 2, "groups": 5}, {"h": 3, "w": 4, "kh": 2, "kw": 2, "c": 2, "o": 3}),
    ),
    "max_pool2d": (
        Hint({"kernel": 2, "stride": 2}, {"h": 6, "w": 7}),
        Hint({"kernel": 3, "stride": 1}, {"h": 6, "w": 5}),
        Hint({"kernel": 3, "stride": 2, "pad": 1}, {"h": 6, "w": 7}),
    ),
    "max_pool2d_grad": (
        Hint({"kernel": 2, "stride": 2}, {"h": 6, "w": 7, "h2": 3, "w2": 3}),
        Hint({"kernel": 3, "stride": 1}, {"h": 6, "w": 5, "h2": 4, "w2": 3}),
        Hint({"kernel": 3, "stride": 2, "pad": 1}, {"h": 6, "w": 7, "h2": 3, "w2": 4}),
    ),
    "avg_pool2d": (
        Hint({"kernel": 2, "stride": 2}, {"h": 6, "w": 7}),
        Hint({"kernel": 3, "stride": 2, "pad": 1}, {"h": 6, "w": 7}),
    ),
    "avg_pool2d_grad": (
        Hint({"height": 6, "width": 7, "kernel": 2, "stride": 2}, {"h2": 3, "w2": 3}),
        Hint({"height": 6, "width": 7, "kernel": 3, "stride": 2, "pad": 1}, {"h2": 3, "w2": 4}),
    ),
    "upsample_nearest2d": (Hint(), Hint({"factor": 3})),
    "upsample_nearest2d_grad": (Hint(), Hint({"factor": 3})),
    "group_norm": (Hint({"groups": 4}, {"c": 3}), Hint({"groups": 1}, {"c": 4}), Hint({"groups": 6}, {"c": 2})),
    "group_norm_grad": (Hint({"groups": 4}, {"c": 3}), Hint({"groups": 6}, {"c": 2})),
    "adaptive_avg_pool2d": (Hint({"size": 1}, {"h": 6, "w": 5}), Hint({"size": 3}, {"h": 6, "w": 5})),
    "adaptive_avg_pool2d_grad": (
        Hint({"height": 6, "width": 5}, {"h2": 1, "w2": 1}),
        Hint({"height": 6, "width": 5}, {"h2": 3, "w2": 3}),
    ),
    "sum": (
        _shaped((4, 6, 5), dims=[0, 2]),
        _shaped((4, 6), dims=[-1]),
        _shaped((4, 6), dims=[0, 1]),
        _shaped((4, 6), dims=1),
    ),
    "mean": (_shaped((4, 6, 5), dims=[0, 2]), _shaped((4, 6), dims=[-1]), _shaped((4, 6), dims=[0, 1])),
    "max": (_shaped((4, 6, 5), dims=[0, 2]), _shaped((4, 6), dims=[-1])),
    "max_grad": (Hint({"dims": [0, 2]}, shapes=(("x", (4, 6, 5)), ("y", (6,)), ("g", (6,)))),),
    "spread": (_shaped((6,), name="g", dims=[0, 2], sizes=[4, 5]), _shaped((), name="g", dims=[0], sizes=[4])),
    "attention": _HEADS,
    "attention_grad": _HEADS,
    "rotary": (Hint({}, {"e": 3}), Hint({"base": 100.0, "direction": -1})),
    "top_k_gate": (
        Hint({"capacity": 2}),
        Hint({"k": 3, "capacity": 3, "normalize": False}),
        Hint({"k": 1, "capacity": 7}),
    ),
    "top_k_gate_grad": (Hint({}, {"c": 2}), Hint({"k": 3, "normalize": False}, {"c": 3})),
    "top_k_count": (Hint({"k": 1}), Hint({"k": 2})),
    "adam": (Hint({"weight_decay": 0.1}),),
    "eq": (Hint(), Hint({"value": 1})),
    "pow": (Hint({"exponent": 3}), Hint({"exponent": 1.5})),
    "masked_fill": (Hint({"value": -2.5}),),
    "where_grad": (Hint(), Hint({"taken": False})),
    "cumsum": (_shaped((4, 6, 5), dim=1), _shaped((4, 6), dim=-1, direction=-1)),
    "flip": (_shaped((4, 6, 5), dim=1), _shaped((4, 6), dim=-1)),
    "argmax": (_shaped((4, 6, 5), dim=1), _shaped((4, 6), dim=-1)),
    "clamp": (Hint({"min": -0.5, "max": 0.75}),),
    "clamp_grad": (Hint({"min": -0.5, "max": 0.75}),),
    "sum_squares": (Hint({"to": "f64"}),),
    "clip_factor": (Hint({"limit": 0.3}), Hint({"limit": 30.0})),
    "sgd": (Hint({"weight_decay": 0.1}),),
    "momentum": (Hint({"weight_decay": 0.1}),),
}

# Integer operands: the index whose extent bounds them.
INTEGERS: dict[str, dict[str, str]] = {
    "attention": {"mask": ""},
    "attention_grad": {"mask": ""},
    "where": {"condition": ""},
    "where_grad": {"condition": ""},
    "masked_fill": {"mask": ""},
    "eq": {"a": "", "b": ""},
    "ne": {"a": "", "b": ""},
    "le": {"a": "", "b": ""},
    "ge": {"a": "", "b": ""},
    "cross_entropy": {"label": "c"},
    "cross_entropy_grad": {"label": "c"},
    "count_labels": {"label": ""},
    "accuracy": {"label": "c"},
    "embedding": {"ids": "v"},
    "embedding_grad": {"ids": "v"},
    "pick": {"index": "c"},
    "pick_grad": {"index": "c"},
    "gather": {"index": "c"},
    "gather_grad": {"index": "c"},
    "one_hot": {"index": "c"},
    "embedding_bag": {"ids": "v"},
    "embedding_bag_grad": {"ids": "v"},
}
_EXTENTS = (4, 6, 5, 3, 7, 2, 8, 9)


def samples(decl: OpDecl) -> list[Sample]:
    """Calls that between them use each operand, each attribute of the table, and stars of different length.

    Raises HapError HAP731 for an operator whose shapes or attributes can't be guessed.
    """
    found: list[Sample] = []
    for hint in HINTS.get(decl.name, (Hint(),)):
        attributes = _attributes(decl, hint)
        if hint.shapes:
            found.append(Sample(hint.shapes, attributes, _bounds(decl, {"v": 7, "c": 5})))
            continue
        if decl.notation or decl.at:
            raise error(
                "HAP731",
                f"'{decl.name}' takes its index notation from attributes: no call of it can be guessed",
                decl.span,
            )
        for rank in _ranks(decl):
            found += _derived(decl, hint, attributes, rank)
    return found


def _attributes(decl: OpDecl, hint: Hint) -> dict[str, Any]:
    known = {d: d for d in DTYPE_BYTES} | {"path": "sample"}
    full = {n: evaluate(e, known) for n, e in decl.attributes.items() if e is not None and n not in hint.attributes}
    missing = [n for n, e in decl.attributes.items() if e is None and n not in hint.attributes]
    if missing:
        raise error("HAP731", f"no value for attribute '{missing[0]}' of '{decl.name}' can be guessed", decl.span, f"give it a default: attr {missing[0]} = …")  # fmt: skip
    return {**full, **hint.attributes}


def _ranks(decl: OpDecl) -> tuple[int, ...]:
    """How many dims stars stand for: none too, where others are left."""
    dims = [i for o in decl.operands for i in o.dims]
    if not any(i.star for i in dims):
        return (0,)
    return (1, 2) if all(i.star for i in dims) else (0, 1, 2)


def _derived(decl: OpDecl, hint: Hint, attributes: Mapping[str, Any], rank: int) -> Iterator[Sample]:
    """Shapes from the declaration's indices, stars of length `rank`."""
    pool = itertools.cycle(_EXTENTS)
    extents: dict[str, int] = {k: v for k, v in attributes.items() if isinstance(v, int)} | dict(hint.extents)
    stars: dict[str, Shape] = {}

    def dim(index: nodes.Index) -> Shape:
        if index.star:
            if index.names[0] not in stars:
                stars[index.names[0]] = tuple(next(pool) for _ in range(rank))
            return stars[index.names[0]]
        own = [int(n) if n.isdigit() else extents.setdefault(n, next(pool)) for n in index.names]
        return (math.prod(own),)

    def operand(o: nodes.Operand) -> tuple[str, Shape]:
        return o.name, tuple(n for index in o.dims for n in dim(index))

    full = [operand(o) for o in decl.operands for _ in range(2 if o.variadic else 1)]
    bounds = _bounds(decl, extents)
    yield Sample(tuple(full), attributes, bounds)
    if any(o.optional for o in decl.operands):
        needed = {o.name for o in decl.operands if not o.optional}
        yield Sample(tuple((n, s) for n, s in full if n in needed), attributes, bounds)
    yield from _stretched(decl, full, attributes, bounds)


def _stretched(
    decl: OpDecl, full: list[tuple[str, Shape]], attributes: Mapping[str, Any], bounds: Mapping[str, int]
) -> Iterator[Sample]:
    """Each of several operands that share a star stretched as numpy's are: of elementwise ones dims of 1 and dims left out, of others one dim of 1."""
    if len(full) < 2 or decl.states or any(o.variadic for o in decl.operands):
        return
    dims = {o.name: o.dims for o in decl.operands}
    if len(set(dims.values())) > 1 or not all(i.star for i in decl.operands[0].dims):
        stars = [i.names[0] for o in decl.operands for i in o.dims if i.star]
        for k, (name, shape) in enumerate(full):
            at = next((d for d, i in enumerate(dims[name]) if i.star and stars.count(i.names[0]) > 1), None)
            if at is not None and len(shape) >= len(dims[name]):
                short = (*shape[:at], 1, *shape[at + 1 :])
                yield Sample((*full[:k], (name, short), *full[k + 1 :]), attributes, bounds, tentative=True)
        return
    if decl.sums:
        return
    shape = full[0][1]
    for k, (name, _) in enumerate(full):
        for other in dict.fromkeys(((1, *shape[1:]), (*shape[:-1], 1), shape[1:], ())):
            yield Sample((*full[:k], (name, other), *full[k + 1 :]), attributes, bounds, tentative=True)


def _bounds(decl: OpDecl, extents: Mapping[str, int]) -> dict[str, int]:
    return {operand: extents.get(index, 3) for operand, index in INTEGERS.get(decl.name, {}).items()}


def of_instance(instance: Instance) -> Sample:
    """The call that an instance is, for an operator of a user's own that no sample can be made for."""
    operands = tuple((g.operand, g.shape) for g in instance.given)
    below = {g.operand: 2 for g in instance.given if g.dtype.startswith("i")}
    return Sample(operands, instance.attributes, below)
