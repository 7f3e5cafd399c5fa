"""Expressions, values, types: what stands inside one line."""

from __future__ import annotations

from dataclasses import dataclass

from hapdsl.lang.nodes.base import Node


@dataclass(frozen=True, slots=True)
class Number(Node):
    value: int | float


@dataclass(frozen=True, slots=True)
class Quantity(Node):
    """A number with a unit, kept as written (`14 TFLOP/s`); `lang.units` converts it."""

    value: int | float
    unit: str


@dataclass(frozen=True, slots=True)
class Text(Node):
    value: str


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A dotted name. In a program a leading dot means "of this turn of the repeat"."""

    id: str


@dataclass(frozen=True, slots=True)
class Bool(Node):
    value: bool


@dataclass(frozen=True, slots=True)
class Hole(Node):
    """`?`: a choice left to the search."""


@dataclass(frozen=True, slots=True)
class Items(Node):
    """A list `[a, b]`."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """`left op right` with op one of + - * / // %."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Negate(Node):
    operand: Expr


@dataclass(frozen=True, slots=True)
class Arg(Node):
    """`name = value`, or `value` in its place."""

    name: str | None
    value: Expr


@dataclass(frozen=True, slots=True)
class Call(Node):
    """`function(args)`: of an operator, a `def` or arithmetic."""

    function: str
    args: tuple[Arg, ...]


@dataclass(frozen=True, slots=True)
class Placed(Node):
    """One axis of a placement: `R`, `S(dim)`, `P` or `?`."""

    kind: str
    dim: int | None = None


@dataclass(frozen=True, slots=True)
class Value(Node):
    """`name@placement`; several axes are written `name@(S(0), R)`."""

    name: str
    placement: tuple[Placed, ...]


Expr = Number | Quantity | Text | Name | Bool | Hole | Items | Binary | Negate | Call | Value


@dataclass(frozen=True, slots=True)
class Type(Node):
    """`f32[batch, d]`; a scalar is `f32[]`."""

    dtype: str
    dims: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Parameter(Node):
    """A parameter of a `def` or `model`, with its default."""

    name: str
    default: Expr | None = None
