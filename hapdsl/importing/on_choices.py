"""Comparisons, choices by true and false, running sums, and the functions that are made of others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch.fx import Node

from hapdsl.importing.atoms import leaves, size
from hapdsl.importing.build import Builder
from hapdsl.importing.constants import SHAPED, Constant, is_causal
from hapdsl.importing.handlers import handles
from hapdsl.importing.on_layout import as_value, part
from hapdsl.importing.on_matrices import batched
from hapdsl.importing.on_numbers import (
    MASKED,
    Operand,
    causal,
    clamped,
    fresh,
    limited,
    made,
    number,
    power,
    reduced,
    scaled,
    shifted,
)
from hapdsl.importing.values import Value, resolved

MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


@handles(*(f"aten.{n}.{kind}" for n in MIRRORED for kind in ("Tensor", "Scalar")), constants=True)
def compare(b: Builder, node: Node, x: Operand, y: Operand) -> Value:
    op = str(node.target).split(".")[1]
    if not isinstance(x, Value):
        x, y, op = y, x, MIRRORED[op]
    n = int(y) if isinstance(y, bool) else number(y)
    x = fresh(as_value(b, x))
    if n is not None:
        return b.emit(op, [x], x.dims, x.stored, "bool", value=n)
    return b.pointwise(op, [x, fresh(as_value(b, y))], "bool")


@handles("aten.logical_not.default", "aten.bitwise_not.default")
def logical_not(b: Builder, node: Node, x: Value) -> Value:
    if x.dtype != "bool" and "bitwise" in str(node.target):
        raise b.refuse("bits of whole numbers")
    x = fresh(x)
    return b.emit("logical_not", [x], x.dims, x.stored, "bool")


@handles("aten.__or__.Tensor", "aten.bitwise_or.Tensor", "aten.logical_or.default", constants=True)
def either(b: Builder, node: Node, x: Operand, y: Operand) -> Value:
    values = [fresh(as_value(b, v)) for v in (x, y)]
    if "logical" not in str(node.target) and any(v.dtype != "bool" for v in values):
        raise b.refuse("bits of whole numbers")
    return b.pointwise("logical_or", values, "bool")


@handles("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar", constants=True)
def where(b: Builder, node: Node, condition: Operand, x: Operand, y: Operand) -> Value:
    """x where the condition holds, y elsewhere; numbers are numbers of the text, causal masks are said as such."""
    dtype = b.dtype(node.meta["val"])
    first, second = number(x), number(y)
    if isinstance(condition, Constant):
        seen = condition.tensor
        for all_of_it, chosen in ((seen.all(), x), (not seen.any(), y)):
            if bool(all_of_it) and number(chosen) is None:
                return fresh(as_value(b, chosen))
        if isinstance(x, Value) and second is not None and second <= MASKED and is_causal(seen):
            return causal(b, x)
    holds = fresh(as_value(b, condition))
    if first is not None and second is not None:
        first, second = limited(first), limited(second)
        one = b.emit("cast", [holds], holds.dims, holds.stored, dtype, to=dtype)
        return shifted(b, scaled(b, one, first - second), second)
    if second is not None:
        holds = b.emit("logical_not", [holds], holds.dims, holds.stored, "bool", inner=True)
        return b.pointwise("masked_fill", [fresh(as_value(b, x)), holds], dtype, value=limited(second))
    if first is not None:
        return b.pointwise("masked_fill", [fresh(as_value(b, y)), holds], dtype, value=limited(first))
    return b.pointwise("where", [holds, fresh(as_value(b, x)), fresh(as_value(b, y))], dtype)


@handles("aten.masked_fill.Scalar", "aten.masked_fill.Tensor", constants=True)
def masked_fill(b: Builder, node: Node, x: Operand, mask: Operand, value: Operand) -> Value:
    """Where the mask is true the value, elsewhere x; a causal mask is said as such."""
    fill = number(value)
    if isinstance(mask, Constant):
        hidden = mask.tensor
        if not bool(hidden.any()):
            return as_value(b, x)
        if fill is not None and fill <= MASKED and is_causal(~hidden):
            return causal(b, as_value(b, x))
    if fill is None:
        return b.pointwise("where", [fresh(as_value(b, v)) for v in (mask, value, x)], b.dtype(node.meta["val"]))
    x = fresh(as_value(b, x))
    return b.pointwise("masked_fill", [x, fresh(as_value(b, mask))], x.dtype, value=limited(fill))


@handles("aten.maximum.default", "aten.minimum.default", "aten.max.other", "aten.min.other", constants=True)
def larger(b: Builder, node: Node, x: Operand, y: Operand) -> Value:
    op = "maximum" if str(node.target).split(".")[1].startswith("max") else "minimum"
    if not isinstance(x, Value):
        x, y = y, x
    n = number(y)
    if n is not None:
        low, high = (n, None) if op == "maximum" else (None, n)
        return clamped(b, made(b, node, x), low, high)
    return b.pointwise(op, [fresh(as_value(b, x)), fresh(as_value(b, y))])


@handles("aten.clamp_max.default")
def clamp_max(b: Builder, node: Node, x: Value, high: float) -> Value:
    return clamped(b, made(b, node, x), None, high)


@handles("aten.clamp.Tensor", constants=True)
def clamp_by(b: Builder, node: Node, x: Value, low: Operand = None, high: Operand = None) -> Value:
    for op, limit in (("maximum", low), ("minimum", high)):
        if limit is not None:
            x = b.pointwise(op, [fresh(as_value(b, x)), fresh(as_value(b, limit))])
    return x


# -- along a dim ------------------------------------------------------------------------


def _along(b: Builder, x: Value, d: int) -> tuple[Value, int]:
    """The value with dim d as one stored dim, and which one that is."""
    x = fresh(x)
    return b.isolated(x, x.dims[d % len(x.dims)])


@handles("aten.cumsum.default")
def cumsum(b: Builder, node: Node, x: Value, d: int, **_: Any) -> Value:
    dtype = b.dtype(node.meta["val"])
    if x.dtype != dtype:
        x = b.emit("cast", [fresh(x)], resolved(x.dims), resolved(x.stored), dtype, to=dtype)
    if not x.dims or not leaves(x.dims[d]):
        return x
    x, place = _along(b, x, d)
    return b.emit("cumsum", [x], x.dims, x.stored, dim=place)


@handles("aten.flip.default")
def flip(b: Builder, node: Node, x: Value, dims: Sequence[int]) -> Value:
    for d in dims:
        if leaves(x.dims[d]):
            x, place = _along(b, x, d)
            x = b.emit("flip", [x], x.dims, x.stored, dim=place)
    return x


@handles("aten.argmax.default", "aten.argmin.default")
def argmax(b: Builder, node: Node, x: Value, d: int | None = None, keep: bool = False) -> Value:
    if d is None:
        raise b.refuse("argmax over all dims", "flatten first, and say dim = 0")
    d %= len(x.dims)
    if "argmin" in str(node.target):
        x = scaled(b, fresh(x), -1)
    x, place = _along(b, x, d)
    dims = (*x.dims[:d], *(((),) if keep else ()), *x.dims[d + 1 :])
    return b.emit("argmax", [x], dims, (*x.stored[:place], *x.stored[place + 1 :]), "i64", dim=place)


@handles("aten.max.dim", "aten.min.dim")
def extreme(b: Builder, node: Node, x: Value, d: int, keep: bool = False) -> tuple[Value, Value]:
    """The largest elements, and where they stand."""
    if ".min." in str(node.target):
        turned = scaled(b, fresh(x), -1)
        return scaled(b, reduced(b, "max", turned, [d], keep), -1), argmax(b, node, turned, d, keep)
    return reduced(b, "max", x, [d], keep), argmax(b, node, x, d, keep)


@handles("aten.amin.default", "aten.min.default")
def smallest(b: Builder, node: Node, x: Value, over: Sequence[int] | None = None, keep: bool = False) -> Value:
    return scaled(b, fresh(reduced(b, "max", scaled(b, fresh(x), -1), over, keep)), -1)


@handles("aten.max.default")
def largest(b: Builder, node: Node, x: Value) -> Value:
    return reduced(b, "max", x, None, False)


@handles("aten.logsumexp.default")
def logsumexp(b: Builder, node: Node, x: Value, over: Any, keep: bool = False) -> Value:
    """Over one dim, which is brought last."""
    over = [over] if isinstance(over, int) else list(over)
    if len(over) != 1:
        raise b.refuse("logsumexp over several dims", "flatten them first")
    d = over[0] % len(x.dims)
    x = fresh(x)
    y = b.last(x, [x.dims[d]])
    dims = (*x.dims[:d], *(((),) if keep else ()), *x.dims[d + 1 :])
    return b.emit("logsumexp", [y], dims, y.stored[:-1])


@handles(*SHAPED, "aten.zeros.default", "aten.ones.default", "aten.full.default", "aten.empty.memory_format")
def shaped(b: Builder, node: Node, x: Any, *_: Any, **__: Any) -> Constant:
    """A tensor of one number, in the shape of another or a given one: a constant, whatever the other holds."""
    b.constants.known[node] = True
    made = b.constant(node)
    if str(node.target).endswith("_like.default"):
        for own, other in zip(x.dims, made.dims, strict=True):
            b.tie(own, other)
    return b.constant(node)


# -- functions that are made of others ------------------------------------------------------


def _of_one(name: str, steps: Callable[[Builder, Value], Value]) -> None:
    def handler(b: Builder, node: Node, x: Value, **_: Any) -> Value:
        return steps(b, made(b, node, x))

    handles(f"aten.{name}.default")(handler)


def call(b: Builder, op: str, x: Value, **attributes: Any) -> Value:
    return b.emit(op, [x], x.dims, x.stored, **attributes)


def times(b: Builder, x: Value, y: Value) -> Value:
    return b.pointwise("mul", [fresh(x), fresh(y)])


def plus(b: Builder, x: Value, y: Value) -> Value:
    return b.pointwise("add", [fresh(x), fresh(y)])


def minus(b: Builder, x: Value, y: Value) -> Value:
    return b.pointwise("sub", [fresh(x), fresh(y)])


for _name, _steps in {
    "erf": lambda b, x: call(b, "erf", x),
    "log1p": lambda b, x: call(b, "log", shifted(b, x, 1)),
    "expm1": lambda b, x: shifted(b, call(b, "exp", x), -1),
    "log2": lambda b, x: scaled(b, call(b, "log", x), 1 / math.log(2)),
    "log10": lambda b, x: scaled(b, call(b, "log", x), 1 / math.log(10)),
    "exp2": lambda b, x: call(b, "exp", scaled(b, x, math.log(2))),
    "mish": lambda b, x: times(b, x, call(b, "tanh", call(b, "softplus", x))),
    "log_sigmoid": lambda b, x: scaled(b, call(b, "softplus", scaled(b, x, -1)), -1),
    "selu": lambda b, x: scaled(b, call(b, "elu", x, alpha=1.6732632423543772), 1.0507009873554805),
}.items():
    _of_one(_name, _steps)


@handles("aten.celu.default")
def celu(b: Builder, node: Node, x: Value, alpha: float = 1.0) -> Value:
    return scaled(b, call(b, "elu", scaled(b, fresh(x), 1 / alpha)), alpha)


@handles("aten.prelu.default")
def prelu(b: Builder, node: Node, x: Value, slope: Value) -> Value:
    """max(x, 0) - slope * max(-x, 0), slopes along dim 1."""
    x = fresh(x)
    if leaves(slope.dims[0]) and len(x.dims) > 1:
        b.tie(x.dims[1], slope.dims[0])
        slope = replace(fresh(slope), dims=(leaves(slope.dims[0]), *((),) * (len(x.dims) - 2)))
    below = times(b, call(b, "relu", scaled(b, fresh(x), -1)), slope)
    return b.pointwise("sub", [call(b, "relu", fresh(x)), fresh(below)])


@handles("aten.glu.default")
def glu(b: Builder, node: Node, x: Value, d: int = -1) -> Value:
    """The first half times the sigmoid of the second."""
    d %= len(x.dims)
    parts, within = b.new_dim("parts", 2), b.new_dim("within", size(x.dims[d]) // 2)
    b.tie(x.dims[d], (*parts, *within))
    x = fresh(x)
    dims = (*x.dims[:d], leaves(within), *x.dims[d + 1 :])
    left, right = (part(b, x, leaves(parts), k, k + 1, (), dims) for k in (0, 1))
    return times(b, left, call(b, "sigmoid", fresh(right)))


@handles("aten.pow.Scalar", constants=True)
def power_of(b: Builder, node: Node, base: float, x: Operand) -> Value:
    if base <= 0:
        raise b.refuse(f"{base:g} to the power of a tensor", "choose by torch.where")
    return call(b, "exp", scaled(b, fresh(as_value(b, x)), math.log(base)))


@handles("aten.pow.Tensor_Tensor", constants=True)
def power_by(b: Builder, node: Node, x: Operand, y: Operand) -> Value:
    """By logarithms, so of numbers above 0, unless base or exponent is one number."""
    if (exponent := number(y)) is not None:
        found: Value = power(b, node, as_value(b, x), exponent)
        return found
    if (base := number(x)) is not None:
        found = power_of(b, node, base, y)
        return found
    return call(b, "exp", times(b, as_value(b, y), call(b, "log", fresh(as_value(b, x)))))


@handles("aten.baddbmm.default", constants=True)
def baddbmm(
    b: Builder, node: Node, x: Operand, left: Operand, right: Operand, *, beta: float = 1, alpha: float = 1
) -> Value:
    product = scaled(b, fresh(batched(b, fresh(as_value(b, left)), fresh(as_value(b, right)))), alpha)
    return product if beta == 0 else b.pointwise("add", [fresh(product), scaled(b, fresh(as_value(b, x)), beta)])
