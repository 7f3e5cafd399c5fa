"""Pointwise operators, reductions and softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from hapdsl.importing.build import Builder
from hapdsl.importing.constants import Constant
from hapdsl.importing.handlers import handles
from hapdsl.importing.lengths import Length
from hapdsl.importing.on_layout import as_value
from hapdsl.importing.values import Unbiased, Value, resolved
from hapdsl.run.context import DTYPES
from hapdsl.theory.dtypes import FLOATS

Operand = Any  # Value, Constant or a number
NO_LIMIT = 1e30  # where a clamp has none
LEAST_SQUARES = 1e-36  # a sum of squares below this is taken for 0: the length of a vector without a direction
MASKED = -1e4  # what is added to a score or stands for it below this is a mask, not a number


def number(x: Operand) -> float | int | None:
    """The number that an operand is, else None."""
    if isinstance(x, Constant):
        found = x.number()
        return int(found) if isinstance(found, bool) else found
    return x if isinstance(x, int | float) and not isinstance(x, bool) else None


def limited(x: float) -> float:
    """A number that a text can say: what is infinite is very large."""
    return x if abs(x) < NO_LIMIT else math.copysign(NO_LIMIT, x)


def fresh(x: Value) -> Value:
    """The value with what its atoms stand for by now."""
    return replace(x, dims=resolved(x.dims), stored=resolved(x.stored))


def scaled(b: Builder, x: Value, by: float) -> Value:
    if abs(by) == 1 and not isinstance(by, Length):
        return x if by == 1 else b.emit("neg", [x], x.dims, x.stored)
    return b.emit("scale", [x], x.dims, x.stored, by=by)


def shifted(b: Builder, x: Value, by: float) -> Value:
    return x if by == 0 and not isinstance(by, Length) else b.emit("shift", [x], x.dims, x.stored, by=by)


def made(b: Builder, node: Node, x: Operand) -> Value:
    """An operand in the dtype of the operator's result."""
    value, dtype = fresh(as_value(b, x)), b.dtype(node.meta["val"])
    return value if value.dtype == dtype else b.emit("cast", [value], value.dims, value.stored, dtype, to=dtype)


@handles("aten.add.Tensor", "aten.add.Scalar", constants=True)
def add(b: Builder, node: Node, x: Operand, y: Operand, alpha: float = 1) -> Value:
    if not isinstance(x, Value) and alpha == 1:
        x, y = y, x
    n = number(y)
    if n is not None:
        return shifted(b, made(b, node, x), n * alpha)
    y = as_value(b, y)
    return b.pointwise("add", [fresh(as_value(b, x)), fresh(y if alpha == 1 else scaled(b, fresh(y), alpha))])


@handles("aten.sub.Tensor", "aten.sub.Scalar", "aten.subtract.Tensor", "aten.subtract.Scalar", constants=True)
def sub(b: Builder, node: Node, x: Operand, y: Operand, alpha: float = 1) -> Value:
    n = number(y)
    if n is not None:
        return shifted(b, made(b, node, x), -n * alpha)
    y = as_value(b, y)
    y = y if alpha == 1 else scaled(b, fresh(y), alpha)
    n = number(x)
    if n is not None:
        return shifted(b, scaled(b, made(b, node, y), -1), n)
    return b.pointwise("sub", [fresh(as_value(b, x)), fresh(y)])


@handles("aten.rsub.Scalar", "aten.rsub.Tensor", constants=True)
def rsub(b: Builder, node: Node, x: Operand, y: Operand, alpha: float = 1) -> Value:
    found: Value = sub(b, node, y, x, alpha)
    return found


@handles("aten.mul.Tensor", "aten.mul.Scalar", "aten.multiply.Tensor", "aten.multiply.Scalar", constants=True)
def mul(b: Builder, node: Node, x: Operand, y: Operand) -> Value:
    if not isinstance(x, Value):
        x, y = y, x
    n = number(y)
    if n is not None:
        return scaled(b, made(b, node, x), n)
    return b.pointwise("mul", [fresh(as_value(b, x)), fresh(as_value(b, y))])


@handles("aten.div.Tensor", "aten.div.Scalar", "aten.divide.Tensor", "aten.true_divide.Tensor", constants=True)
def div(b: Builder, node: Node, x: Operand, y: Operand) -> Value:
    n = number(y)
    if n is not None and isinstance(x, Value):
        if n == 0:
            raise b.refuse("division by 0", "import with an example in which this number isn't 0")
        # the quotient itself, not its rounding, where it is a short number: 1 / 8
        return scaled(b, made(b, node, x), 1 / n)
    y = made(b, node, y)
    n = number(x)
    if n is not None:
        return scaled(b, b.emit("reciprocal", [y], y.dims, y.stored), n)
    return b.pointwise("div", [made(b, node, x), y])


@handles("aten.reciprocal.default")
def reciprocal(b: Builder, node: Node, x: Value) -> Value:
    x = made(b, node, x)
    return b.emit("reciprocal", [x], x.dims, x.stored)


@handles("aten.pow.Tensor_Scalar")
def power(b: Builder, node: Node, x: Value, exponent: float) -> Value:
    x = made(b, node, x)
    if exponent == 1:
        return x
    if exponent == 2:
        return b.emit("mul", [x, x], x.dims, x.stored)
    if exponent == 3:
        return b.emit("mul", [b.emit("mul", [x, x], x.dims, x.stored), x], x.dims, x.stored)
    if exponent == 0.5:
        return b.emit("sqrt", [x], x.dims, x.stored)
    if exponent == -0.5:
        return rsqrt(b, node, x)
    if exponent == -1:
        return b.emit("reciprocal", [x], x.dims, x.stored)
    return b.emit("pow", [x], x.dims, x.stored, exponent=exponent)


@handles("aten.rsqrt.default")
def rsqrt(b: Builder, node: Node, x: Value) -> Value:
    x = made(b, node, x)
    root = b.emit("sqrt", [x], x.dims, x.stored, inner=True)
    return b.emit("reciprocal", [root], x.dims, x.stored)


def _plain(name: str, op: str) -> None:
    def handler(b: Builder, node: Node, x: Value, **_: Any) -> Value:
        x = made(b, node, x)
        return b.emit(op, [x], x.dims, x.stored)

    handles(name)(handler)


for _op in (
    "neg",
    "exp",
    "log",
    "sqrt",
    "relu",
    "tanh",
    "sigmoid",
    "silu",
    "abs",
    "sin",
    "cos",
    "hardswish",
    "hardsigmoid",
    "sign",
):
    _plain(f"aten.{_op}.default", _op)


@handles("aten.square.default")
def square(b: Builder, node: Node, x: Value) -> Value:
    x = fresh(x)
    return b.emit("mul", [x, x], x.dims, x.stored)


@handles("aten.clamp.default", "aten.hardtanh.default", "aten.relu6.default", "aten.clamp_min.default")
def clamp(
    b: Builder, node: Node, x: Value, low: float | None = None, high: float | None = None, **limits: Any
) -> Value:
    op = str(node.target).split(".")[1].rstrip("_")
    low, high = limits.get("min", low), limits.get("max", high)
    if op == "hardtanh":
        low, high = (-1.0 if low is None else low), (1.0 if high is None else high)
    low, high = (0, 6) if op == "relu6" else (low, high)
    return clamped(b, made(b, node, x), low, high)


def clamped(b: Builder, x: Value, low: float | None = None, high: float | None = None) -> Value:
    """x between two limits; one that isn't given is beyond all numbers, of whole ones the largest of their dtype."""
    none = NO_LIMIT if x.dtype in FLOATS else torch.iinfo(DTYPES[x.dtype]).max
    limits: dict[str, Any] = {
        "min": -none if low is None else limited(low), "max": none if high is None else limited(high),
    }  # fmt: skip
    return b.emit("clamp", [x], x.dims, x.stored, **limits)


@handles("aten.leaky_relu.default")
def leaky_relu(b: Builder, node: Node, x: Value, slope: float = 0.01) -> Value:
    x = fresh(x)
    return b.emit("leaky_relu", [x], x.dims, x.stored, slope=slope)


@handles("aten.elu.default")
def elu(b: Builder, node: Node, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    if scale != 1 or input_scale != 1:
        raise b.refuse("elu with scales (selu)", "write it with elu and a factor")
    x = fresh(x)
    return b.emit("elu", [x], x.dims, x.stored, alpha=alpha)


@handles("aten.softplus.default")
def softplus(b: Builder, node: Node, x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    if threshold < 20:  # above it torch takes x itself, from there on the same number in f32
        raise b.refuse(f"softplus with a threshold of {threshold:g}", "leave it at 20")
    x = fresh(x)
    y = scaled(b, x, beta)
    return scaled(b, b.emit("softplus", [y], x.dims, y.stored), 1 / beta)


@handles("aten.addcmul.default")
def addcmul(b: Builder, node: Node, x: Value, y: Value, z: Value, value: float = 1.0) -> Value:
    product = b.pointwise("mul", [fresh(y), fresh(z)])
    return b.pointwise("add", [fresh(x), fresh(scaled(b, fresh(product), value))])


@handles("aten.gelu.default")
def gelu(b: Builder, node: Node, x: Value, approximate: str = "none") -> Value:
    x = fresh(x)
    return b.emit("gelu" if approximate == "none" else "gelu_tanh", [x], x.dims, x.stored)


@handles("aten.dropout.default")
def dropout(b: Builder, node: Node, x: Value, p: float, train: bool = True) -> Value:
    x = fresh(x)
    return x if p == 0 or not train else b.emit("dropout", [x], x.dims, x.stored, p=p)


# -- reductions ------------------------------------------------------------------------


def reduced(b: Builder, op: str, x: Value, over: Sequence[int] | None, keep: bool) -> Value:
    x = fresh(x)
    if not x.dims:
        return x
    places = sorted({d % len(x.dims) for d in over}) if over else list(range(len(x.dims)))
    gone = {id(a) for d in places for a in x.dims[d]}
    if not gone <= {id(a) for a in x.atoms}:
        x = b.logical(x)
    if any(0 < sum(id(a) in gone for a in s) < len(s) for s in x.stored):
        x = b.logical(x)
    out = tuple(() if k in places else d for k, d in enumerate(x.dims) if keep or k not in places)
    ones = [k for k, s in enumerate(x.stored) if not s]
    # The result has no dims of 1 that the module doesn't see.
    surplus = ones[: max(0, len(ones) - sum(not d for d in out))]
    dims = [k for k, s in enumerate(x.stored) if (s and id(s[0]) in gone) or k in surplus]
    stored = tuple(s for k, s in enumerate(x.stored) if k not in dims)
    if not dims:
        return replace(x, dims=out)
    return b.emit(op, [x], out, stored, dims=dims if len(dims) > 1 else dims[0])


@handles("aten.mean.dim", "aten.mean.default", "aten.sum.dim_IntList", "aten.sum.default", "aten.amax.default")
def reduction(
    b: Builder, node: Node, x: Value, over: Sequence[int] | None = None, keep: bool = False, **_: Any
) -> Value:
    """In the dtype that it is asked for; a sum of true and false counts."""
    op = {"mean": "mean", "sum": "sum", "amax": "max"}[str(node.target).split(".")[1]]
    return reduced(b, op, made(b, node, x), over, keep)


@handles(
    "aten.var.dim", "aten.var.correction", "aten.std.dim", "aten.std.correction", "aten.var.default", "aten.std.default"
)
def variance(
    b: Builder,
    node: Node,
    x: Value,
    over: Any = None,
    unbiased: bool = True,
    keep: bool = False,
    *,
    correction: float = 1,
    keepdim: bool = False,
) -> Value:
    """The mean square of the distance to the mean, times n / (n - 1)."""
    name = str(node.target)
    if name.endswith("default") and isinstance(over, bool):
        over, unbiased = None, over
    if name.endswith("correction"):
        unbiased, keep = correction == 1, keepdim
        if correction not in (0, 1):
            raise b.refuse(f"a variance with correction {correction}")
    over = [over] if isinstance(over, int) else over
    x = fresh(x)
    places = sorted({d % len(x.dims) for d in over}) if over else list(range(len(x.dims)))
    away = b.pointwise("sub", [x, fresh(reduced(b, "mean", x, places, True))])
    found = reduced(b, "mean", b.emit("mul", [away, away], away.dims, away.stored), places, keep)
    if unbiased:
        counted = tuple(a for d in places for a in x.dims[d])
        found = b.emit("scale", [found], found.dims, found.stored, by=Unbiased(1.0, counted))
    return found if ".var." in name else b.emit("sqrt", [found], found.dims, found.stored)


@handles("aten.linalg_vector_norm.default")
def vector_norm(
    b: Builder, node: Node, x: Value, order: float = 2, over: Sequence[int] | None = None, keep: bool = False, **_: Any
) -> Value:
    x = fresh(x)
    if order in (1, float("inf")):
        return reduced(b, "sum" if order == 1 else "max", b.emit("abs", [x], x.dims, x.stored), over, keep)
    if order != 2:
        raise b.refuse(f"a norm of order {order}")
    return length(b, reduced(b, "sum", b.emit("mul", [x, x], x.dims, x.stored), over, keep))


def length(b: Builder, squares: Value) -> Value:
    """The root of a sum of squares, whose gradient is 0 where they are all 0, as torch's norms have it."""
    squares = clamped(b, fresh(squares), LEAST_SQUARES)
    return b.emit("sqrt", [squares], squares.dims, squares.stored)


@handles("aten.softmax.int", "aten._softmax.default", "aten.log_softmax.int", "aten._log_softmax.default")
def softmax(b: Builder, node: Node, x: Value, d: int, *_: Any, **__: Any) -> Value:
    x = made(b, node, x)
    dims = x.dims
    x = b.last(x, [x.dims[d]])
    return b.emit("log_softmax" if "log" in str(node.target) else "softmax", [x], dims, x.stored)


@handles("aten._weight_norm.default")
def weight_norm(b: Builder, node: Node, v: Value, g: Value, dim: int = 0) -> Value:
    """v in the length g: lengths are over all dims but one, or (dim -1) over all."""
    v = fresh(v)
    over = [d for d in range(len(v.dims)) if d != dim] if dim != -1 else None
    square = b.emit("mul", [v, v], v.dims, v.stored, inner=True)
    if over == []:  # a vector, each element by itself
        lengths = b.emit("abs", [v], v.dims, v.stored, called="length")
    else:
        found = fresh(reduced(b, "sum", square, over, dim != -1))
        lengths = b.emit("sqrt", [found], found.dims, found.stored, called="length")
    return b.pointwise("mul", [v, fresh(b.pointwise("div", [fresh(g), lengths]))])


# -- masks ---------------------------------------------------------------------------------


def causal(b: Builder, x: Value) -> Value:
    """-inf where the column, the last dim, is after the row, the one before it."""
    x = fresh(x)
    last = (x.dims[-2], x.dims[-1])
    ids = {id(a) for d in last for a in d}
    rest = tuple(r for s in x.stored if (r := tuple(a for a in s if id(a) not in ids)) or not s)
    x = b.fits(x, (*rest, *last))
    return b.emit("causal_mask", [x], x.dims, x.stored)
