"""Operator declarations."""

from __future__ import annotations

from dataclasses import dataclass

from hapdsl.lang.nodes.base import Block, Node, Statement
from hapdsl.lang.nodes.expressions import Expr


@dataclass(frozen=True, slots=True)
class Index(Node):
    """One dim in index notation.

    `names` has one name for a plain dim, several for a merged dim `(h e)` (major first);
    `star` marks `*b`, which stands for any number of dims. A literal extent `3` is the
    name "3".
    """

    names: tuple[str, ...]
    star: bool = False


@dataclass(frozen=True, slots=True)
class Operand(Node):
    """`[kind] name[dims][?]`, kind one of "", buffer, state; `*name[dims]` is variadic, `name[dims] = default` may be a number."""

    name: str
    dims: tuple[Index, ...]
    kind: str = ""
    optional: bool = False
    variadic: bool = False
    default: Expr | None = None


@dataclass(frozen=True, slots=True)
class Attribute(Node):
    """`attr name [= default]`."""

    name: str
    default: Expr | None = None


@dataclass(frozen=True, slots=True)
class Result(Node):
    """An output; the name is "out" where none is written (`named` tells which)."""

    name: str
    dims: tuple[Index, ...]
    named: bool = True


@dataclass(frozen=True, slots=True)
class Sum(Statement):
    """`sum k`: an index whose pieces give partial sums."""

    indices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Whole(Statement):
    """`whole k`: an index that is never cut."""

    indices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Linear(Statement):
    """`linear x` (that operand by itself) or `linear (a, b)` (all of them together)."""

    operands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Size(Statement):
    """`size h2 = expr`: the extent of an index that only the outputs have."""

    index: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Flops(Statement):
    """`flops expr`: floating-point operations of a call, by its indices."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Rule(Node):
    """`targets = value` in a `grad`, `training`, `evaluation` or `without` statement; several targets are written `(a, b)`."""

    targets: tuple[str, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Tiled(Statement):
    """`tiled (groups c), (groups o)`: kernels compute these dims in tiles, so the last of them costs as much as a full one."""

    dims: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Grad(Statement):
    """`grad x = …, w = …`: what the backward pass computes."""

    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Training(Statement):
    """`training y = x`: what stands for an output where a model is trained."""

    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Evaluation(Statement):
    """`evaluation y = x`: what stands for an output where a model is evaluated."""

    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Without(Statement):
    """`without p : y = x`: what stands for an output where the attribute is 0."""

    attribute: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Torch(Statement):
    """`torch "torch.matmul"`: the kernel."""

    target: str


@dataclass(frozen=True, slots=True)
class Dtype(Statement):
    """`dtype y = f32` or `dtype y = an_attr`."""

    output: str
    value: str


@dataclass(frozen=True, slots=True)
class Notation(Statement):
    """`notation spec`: the index notation stands in the attribute `spec`."""

    attribute: str


@dataclass(frozen=True, slots=True)
class At(Statement):
    """`at k = dims`: the index (or star) takes the positions that an attribute lists."""

    index: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Order(Statement):
    """`order y = dims`: the output's dims are permuted by an attribute."""

    output: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Reads(Statement):
    """`reads table = b * d`: so many elements of an operand are read, not all of it."""

    operand: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Op(Block):
    """`op name(operands, attributes) -> results { body }`."""

    name: str
    operands: tuple[Operand, ...]
    attributes: tuple[Attribute, ...]
    results: tuple[Result, ...]
    body: tuple[Statement, ...]
