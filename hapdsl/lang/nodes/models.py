"""Models and `def`s."""

from __future__ import annotations

from dataclasses import dataclass

from hapdsl.lang.nodes.base import Block, Statement
from hapdsl.lang.nodes.expressions import Call, Expr, Parameter, Type


@dataclass(frozen=True, slots=True)
class Declare(Statement):
    """`kind names : type [master dtype] [init expr]`, kind one of input, param, frozen, buffer."""

    kind: str
    names: tuple[str, ...]
    type: Type
    init: Expr | None = None
    master: str | None = None


@dataclass(frozen=True, slots=True)
class Assign(Statement):
    """`targets = value [as label]`."""

    targets: tuple[str, ...]
    value: Expr
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Repeat(Block):
    """`repeat variable in count { body }` of a model."""

    variable: str
    count: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Microbatch(Block):
    """`microbatch count { body }` of a model or a program."""

    count: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Return(Statement):
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Output(Statement):
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Metric(Statement):
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Train(Statement):
    """`train loss with optimizer(...) [clip norm]`."""

    loss: str
    optimizer: Call
    clip: Expr | None = None


@dataclass(frozen=True, slots=True)
class Group(Statement):
    """`group patterns with optimizer(...)`: how the parameters of these names are updated; `*` stands for any letters."""

    patterns: tuple[str, ...]
    optimizer: Call


@dataclass(frozen=True, slots=True)
class Def(Block):
    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Model(Block):
    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Statement, ...]
