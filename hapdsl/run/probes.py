"""Calls of operators to measure: shapes that grow with a number of rows, made from an operator's declaration or from the table below."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hapdsl.graph.training import Node
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError
from hapdsl.run.call import Call, prepare
from hapdsl.run.context import DTYPES, Clock, whole
from hapdsl.run.samples import HINTS, INTEGERS
from hapdsl.theory.dtypes import DTYPE_BYTES
from hapdsl.theory.expressions import evaluate
from hapdsl.theory.instance import Given
from hapdsl.theory.instantiate import instantiate
from hapdsl.theory.ops import OpDecl

Shape = tuple[int, ...]
WIDTH = 256  # elements of a row
DENSE = 8.0  # FLOP per byte from which an operator is measured by FLOP
SPREAD = 16 * 2**20  # bytes of operands that calls take turns with, so that not all of them lie in the nearest cache
MOST_TURNS = 8
LEAST = 8192.0  # bytes that the smallest call moves

_IMAGE = {"n": 1, "c": 32, "o": 32, "h": 16, "w": 16, "kh": 3, "kw": 3, "h2": 16, "w2": 16, "groups": 1}
_POOL = {"c": 16, "h": 16, "w": 16, "h2": 8, "w2": 8, "groups": 4}
_HEADS = {"h": 4, "r": 1, "s": 32, "t": 32, "e": 32, "f": 32}
_GATE = {"s": 32, "e": 4, "c": 16}
# By operator: extents of indices, and attributes where samples' don't go with them.
_EXTENTS: Mapping[str, tuple[Mapping[str, int], Mapping[str, Any]]] = {
    "conv2d": (_IMAGE, {"stride": 1, "pad": 1}),
    "conv2d_input_grad": (_IMAGE, {"height": 16, "width": 16, "stride": 1, "pad": 1}),
    "conv2d_weight_grad": (_IMAGE, {"kernel_height": 3, "kernel_width": 3, "stride": 1, "pad": 1}),
    "conv_transpose2d": ({**_IMAGE, "kh": 2, "kw": 2}, {"stride": 2}),
    "upsample_nearest2d": ({**_POOL, "factor": 2}, {"factor": 2}),
    "upsample_nearest2d_grad": ({**_POOL, "factor": 2}, {"factor": 2}),
    "max_pool2d": (_POOL, {"kernel": 2, "stride": 2}),
    "max_pool2d_grad": (_POOL, {"kernel": 2, "stride": 2}),
    "avg_pool2d": (_POOL, {"kernel": 2, "stride": 2}),
    "avg_pool2d_grad": (_POOL, {"height": 16, "width": 16, "kernel": 2, "stride": 2}),
    # To windows in general: a single one is a mean, which takes a tenth and hardly counts.
    "adaptive_avg_pool2d": ({**_POOL, "h": 4, "w": 4}, {"size": 2}),
    "adaptive_avg_pool2d_grad": ({**_POOL, "h2": 2, "w2": 2}, {"height": 4, "width": 4}),
    "attention": (_HEADS, {}),
    "attention_grad": (_HEADS, {}),
    "rotary": ({"s": 32, "e": 16}, {}),
    "causal_mask": ({"s": 32, "t": 32}, {}),
    "causal_mask_grad": ({"s": 32, "t": 32}, {}),
    "lower_triangle": ({"s": 64, "t": 64}, {}),
    "lower_triangle_grad": ({"m": 64 * 63 // 2}, {"size": 64}),
    "embedding": ({"v": 1024, "d": 64}, {}),
    "embedding_grad": ({"v": 1024, "d": 64}, {"rows": 1024}),
    "embedding_bag": ({"v": 1024, "d": 64, "k": 4}, {}),
    "embedding_bag_grad": ({"v": 1024, "d": 64, "k": 4}, {"rows": 1024}),
    "pick_grad": ({"c": WIDTH}, {"size": WIDTH}),
    "top_k_gate": (_GATE, {"k": 2, "capacity": 16}),
    "top_k_gate_grad": (_GATE, {"k": 2}),
    "top_k_count": (_GATE, {"k": 2}),
    "batch_norm": ({"c": 16}, {}),
    "batch_norm_grad": ({"c": 16}, {}),
    "batch_norm_stats": ({"c": 16}, {}),
    "batch_norm_stats_grad": ({"c": 16}, {}),
    "group_norm": (_POOL, {"groups": 4}),
    "group_norm_grad": (_POOL, {"groups": 4}),
}  # fmt: skip


def _shaped(name: str, rows: int) -> tuple[tuple[Shape, ...], Mapping[str, Any]] | None:
    """Operators that take their dims from attributes."""
    match name:
        case "transpose":
            return ((rows, WIDTH),), {"perm": [1, 0]}
        case "rearrange":
            return ((rows, 8, WIDTH),), {"spec": "b s (h e) -> b h s e", "h": 4}
        case "reshape":
            return ((rows, WIDTH),), {"shape": [rows * 4, WIDTH // 4]}
        case "concat":
            return ((rows, WIDTH), (rows, WIDTH)), {"dim": 1}
        case "slice":
            return ((rows, WIDTH),), {"dim": 1, "start": 0, "stop": WIDTH // 2}
        case "unslice":
            return ((rows, WIDTH // 2),), {"dim": 1, "start": 0, "size": WIDTH}
        case "pad":
            return ((rows, WIDTH),), {"dim": 0, "before": 1, "after": 1, "value": 0.0}
        case "sum" | "mean" | "max":
            return ((rows, WIDTH),), {"dims": [0]}
        case "spread":
            return ((WIDTH,),), {"dims": [0], "sizes": [rows]}
        case "einsum":
            return ((rows, 8, WIDTH), (WIDTH, 4, 64)), {"spec": "bsd,dhe->bhse"}
    return None


@dataclass(frozen=True)
class Probe:
    """A call that can be measured. `table` is the name of its curve; `moved` are bytes of operands and outputs, `tiled` the lengths of
    the dims that are computed in tiles."""

    table: str
    by_flop: bool
    flops: float
    moved: float
    call: Call
    given: tuple[Given, ...]
    tiled: tuple[int, ...]
    below: Mapping[str, int]

    def operands(self, device: torch.device) -> list[list[Tensor]]:
        """Several sets of operands, to be taken in turns."""
        held = sum(math.prod(g.shape) * DTYPE_BYTES[g.dtype] for g in self.given)
        return [
            [self._tensor(g, device) for g in self.given]
            for _ in range(max(1, min(MOST_TURNS, int(SPREAD // max(held, 1)))))
        ]

    def _tensor(self, given: Given, device: torch.device) -> Tensor:
        dtype = DTYPES[given.dtype]
        if not dtype.is_floating_point:
            return torch.randint(self.below.get(given.operand, 2), given.shape, device=device).to(dtype)
        return (torch.rand(given.shape, device=device) + 0.5).to(dtype)


def probe(decl: OpDecl, rows: int, dtype: str = "f32", like: Mapping[str, int] | None = None) -> Probe | None:
    """A call of `rows` rows (of images, sentences, …), None where none can be made up. `like` are extents of other lengths than usual."""
    shaped = _shaped(decl.name, rows)
    if shaped is not None:
        shapes, own = shaped
        names = [decl.operands[0].name] * len(shapes)
        return _made(decl, list(zip(names, shapes, strict=True)), {**_defaults(decl), **own}, dtype, {})
    if decl.notation or decl.at:
        along = {"dim": 1} if "dim" in decl.attributes else {"dims": [1]}
        operands: list[tuple[str, Shape]] = [
            (o.name, (rows, WIDTH)) for o in decl.operands if not o.optional and o.default is None
        ]
        return (
            _made(decl, operands, {**_defaults(decl), **along}, dtype, {})
            if along.keys() <= decl.attributes.keys()
            else None
        )
    extents, own = _EXTENTS.get(decl.name, ({}, {}))
    hinted = next((h.attributes for h in HINTS.get(decl.name, ()) if not h.shapes), {})
    attributes = {**_defaults(decl), **(own or hinted)}
    known = {**extents, **(like or {})}
    operands = [(o.name, _dims(decl, o, rows, known)) for o in decl.operands if not o.optional and o.default is None]
    return _made(decl, operands, attributes, dtype, known)


def product(decl: OpDecl, m: int, k: int, n: int, dtype: str = "f32", by_flop: bool = True) -> Probe | None:
    """A matrix product of the given extents (of matmul and bmm, and of their gradients)."""
    known = {"m": m, "k": k, "n": n}
    stars = [o for o in decl.operands if o.dims and o.dims[0].star]
    lead: Shape = (4,) if decl.name.startswith("bmm") else ()
    operands = [
        (o.name, (lead if o in stars else ()) + tuple(known[i.names[0]] for i in o.dims if not i.star))
        for o in decl.operands
    ]
    return _made(decl, operands, _defaults(decl), dtype, {}, by_flop)


def _dims(decl: OpDecl, operand: nodes.Operand, rows: int, known: dict[str, int]) -> Shape:
    found: list[int] = []
    for index in operand.dims:
        if index.star:
            alone = all(i.star for i in operand.dims) and not _joined(decl, index.names[0])
            found += [rows, WIDTH] if alone else [16] if index.names[0] == "s" and "c" in known else [rows]
            continue
        first = (
            index is operand.dims[0]
            and len(index.names) == 1
            and not any(i.star for o in decl.operands for i in o.dims[:1])
        )
        for name in index.names:
            if not name.isdigit():
                known.setdefault(name, rows if first and name in ("b", "n") else WIDTH)
            if first and name in ("b", "n"):
                known[name] = rows
        found.append(math.prod(int(n) if n.isdigit() else known[n] for n in index.names))
    return tuple(found)


def _joined(decl: OpDecl, star: str) -> bool:
    """Does an operand have this star beside other dims? Then it stands for the rows alone."""
    sides: tuple[nodes.Operand | nodes.Result, ...] = (*decl.operands, *decl.results)
    return any(any(i.star and i.names[0] == star for i in o.dims) and any(not i.star for i in o.dims) for o in sides)


def _defaults(decl: OpDecl) -> dict[str, Any]:
    known = {d: d for d in DTYPE_BYTES} | {"path": "profile"}
    return {n: evaluate(e, known) for n, e in decl.attributes.items() if e is not None}


def _made(
    decl: OpDecl,
    operands: Sequence[tuple[str, Shape]],
    attributes: Mapping[str, Any],
    dtype: str,
    known: Mapping[str, int],
    by_flop: bool | None = None,
) -> Probe | None:
    integers = INTEGERS.get(decl.name, {})
    given = tuple(Given(name, shape, "i64" if name in integers else dtype) for name, shape in operands)
    try:
        instance = instantiate(decl, given, attributes)
    except HapError:
        return None
    inputs, outputs = (
        tuple(f"x{k}" for k in range(len(given))),
        tuple(f"y{k}" for k in range(len(instance.result_shapes))),
    )
    node = Node(instance, inputs, outputs, "forward", "profile")
    try:
        call = prepare(
            node, [whole(g.shape) for g in given], [whole(s) for s in instance.result_shapes], Clock(), DTYPES
        )
    except HapError:
        return None
    results = zip(instance.result_shapes, instance.result_dtypes, strict=True)
    moved = float(sum(math.prod(s) * DTYPE_BYTES[t] for s, t in (*((g.shape, g.dtype) for g in given), *results)))
    flops = float(instance.flops({}))
    below = {name: known.get(index, instance.extents.get(index, 2)) for name, index in integers.items()}
    dense = flops / max(moved, 1.0) > DENSE if by_flop is None else by_flop
    table = decl.name if dtype == "f32" else f"{decl.name}.{dtype}"
    return Probe(table, dense, flops, moved, call, given, tuple(instance.tiled({})), below)


PRODUCTS = ("matmul", "matmul_nt", "matmul_tn", "bmm", "bmm_nt", "bmm_tn")
# Whose time is FLOP, so that each dtype has a speed of its own.
HEAVY = (*PRODUCTS, "einsum", "conv2d", "conv2d_input_grad", "conv2d_weight_grad", "attention", "attention_grad")
# What most models spend their time on, for a quick look.
ESSENTIAL = (
    "matmul", "matmul_nt", "matmul_tn", "bmm", "bmm_nt", "bmm_tn", "conv2d", "conv2d_input_grad", "conv2d_weight_grad", "attention",
    "attention_grad", "embedding", "embedding_grad", "add", "mul", "scale", "relu", "relu_grad", "gelu", "gelu_grad", "softmax", "softmax_grad",
    "layer_norm", "layer_norm_grad", "cross_entropy", "cross_entropy_grad", "sum", "mean", "adam", "adamw", "sgd", "max_pool2d",
    "max_pool2d_grad", "rearrange", "dropout",
)  # fmt: skip
NARROW = (4, 8, 16, 32, 48)  # lengths of a dim that tell in tiles of what length it is computed,
WIDE, FEW_ROWS = 64, 64  # where the others are so long, and rows so many
SPEEDS = ("f32", "f64", "bf16", "f16")  # dtypes that devices compute in


def ladder(decl: OpDecl, most: float, per_size: float, dtype: str = "f32") -> Iterator[Probe]:
    """Probes of one operator from small to large: up to `most` bytes moved, each `per_size` times as large as the one before.

    None at all where already one row moves far more than that: a rank has no memory for it.
    """
    if decl.name in PRODUCTS:
        yield from _products(decl, most, per_size, dtype)
        return
    one, two = probe(decl, 1, dtype), probe(decl, 2, dtype)
    if one is None or two is None or two.moved <= one.moved:
        return
    wanted, last = LEAST, 0
    while wanted <= most or last == 0:
        rows = max(1, round((wanted - one.moved) / (two.moved - one.moved)))
        if rows != last and (found := probe(decl, rows, dtype)) is not None and found.moved <= 2 * most:
            yield found
        wanted, last = wanted * per_size, rows


def narrow(decl: OpDecl) -> Iterator[Probe]:
    """Probes in which one of the dims that may be computed in tiles is short, the others long: none where an operator has no such dims."""
    for dim in decl.tiled:
        wide = {other.names[-1]: WIDE for other in decl.tiled}
        for length in NARROW:
            found = probe(decl, FEW_ROWS, like={**wide, dim.names[-1]: length})
            assert found is not None, decl.name
            yield found


def _products(decl: OpDecl, most: float, per_size: float, dtype: str) -> Iterator[Probe]:
    """Cubes, whose time is FLOP, and thin ones, whose time is reading a matrix."""
    step = math.sqrt(per_size)
    for thin in (False, True):
        size = 32.0
        while True:
            n = 8 * round(size / 8)
            found = product(decl, 4 if thin else n, n, n, dtype, by_flop=not thin)
            if found is None or found.moved > most:
                break
            yield found
            size *= step
