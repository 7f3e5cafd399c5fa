"""The rules of `op` blocks."""

from __future__ import annotations

from typing import Any

from lark import Token

from hapdsl.lang import nodes as n
from hapdsl.lang.build_base import Base, Children


class OpRules(Base):
    """An operator's head and the statements of its body."""

    def op(self, c: Children) -> n.Op:
        arrow = next(i for i, x in enumerate(c) if isinstance(x, Token) and x == "->")
        opening = next(i for i, x in enumerate(c) if isinstance(x, Token) and x == "{")
        head = self._kept(c[:arrow])
        return n.Op(
            name=str(c[1]),
            operands=tuple(x for x in head if isinstance(x, n.Operand)),
            attributes=tuple(x for x in head if isinstance(x, n.Attribute)),
            results=self._kept(c[arrow:opening]),
            **self._braced(c),
        )

    def operand(self, c: Children) -> n.Operand:
        at = next(i for i, x in enumerate(c) if isinstance(x, tuple))
        first = str(c[0]) if at == 2 else ""
        optional = isinstance(c[-1], Token)
        end = c[-1] if optional else c[at][-1]
        return n.Operand(
            name=str(c[at - 1]), dims=c[at][1:-1], kind="" if first == "*" else first,
            optional=optional, variadic=first == "*", span=self._span(c[0], end),
        )  # fmt: skip

    def operand_default(self, c: Children) -> n.Operand:
        return n.Operand(name=str(c[0]), dims=c[1][1:-1], default=c[3], span=self._all(c))

    def attribute(self, c: Children) -> n.Attribute:
        return n.Attribute(str(c[1]), c[3] if len(c) == 4 else None, span=self._all(c))

    def result(self, c: Children) -> n.Result:
        named = len(c) == 2
        opening, *dims, closing = c[-1]
        span = self._span(c[0] if named else opening, closing)
        return n.Result(str(c[0]) if named else "out", tuple(dims), named, span=span)

    def dims(self, c: Children) -> tuple[Any, ...]:
        """The indices between the two bracket tokens."""
        return (c[0], *self._kept(c), c[-1])

    def index(self, c: Children) -> n.Index:
        return n.Index((self._index_name(c[0]),), span=self._all(c))

    def star(self, c: Children) -> n.Index:
        return n.Index((str(c[1]),), star=True, span=self._all(c))

    def merged(self, c: Children) -> n.Index:
        return n.Index(tuple(self._index_name(x) for x in c[1:-1]), span=self._all(c))

    def _index_name(self, token: Token) -> str:
        return str(self._integer(token, "an extent")) if token.type == "NUMBER" else str(token)

    def sum(self, c: Children) -> n.Sum:
        return n.Sum(c[1].names, span=self._all(c))

    def whole(self, c: Children) -> n.Whole:
        return n.Whole(c[1].names, span=self._all(c))

    def linear(self, c: Children) -> n.Linear:
        operands = (str(c[1]),) if len(c) == 2 else c[2].names
        return n.Linear(operands, span=self._all(c))

    def size(self, c: Children) -> n.Size:
        return n.Size(str(c[1]), c[3], span=self._all(c))

    def flops(self, c: Children) -> n.Flops:
        return n.Flops(c[1], span=self._all(c))

    def tiled(self, c: Children) -> n.Tiled:
        return n.Tiled(self._kept(c), span=self._all(c))

    def grad(self, c: Children) -> n.Grad:
        return n.Grad(self._kept(c), span=self._all(c))

    def training(self, c: Children) -> n.Training:
        return n.Training(self._kept(c), span=self._all(c))

    def evaluation(self, c: Children) -> n.Evaluation:
        return n.Evaluation(self._kept(c), span=self._all(c))

    def without(self, c: Children) -> n.Without:
        return n.Without(str(c[1]), self._kept(c[2:]), span=self._all(c))

    def rule(self, c: Children) -> n.Rule:
        return n.Rule((str(c[0]),), c[2], span=self._all(c))

    def rule_together(self, c: Children) -> n.Rule:
        return n.Rule(c[1].names, c[4], span=self._all(c))

    def torch(self, c: Children) -> n.Torch:
        return n.Torch(self._text(c[1]), span=self._all(c))

    def dtype(self, c: Children) -> n.Dtype:
        return n.Dtype(str(c[1]), str(c[3]), span=self._all(c))

    def notation(self, c: Children) -> n.Notation:
        return n.Notation(str(c[1]), span=self._all(c))

    def at(self, c: Children) -> n.At:
        return n.At(str(c[1]), c[3], span=self._all(c))

    def order(self, c: Children) -> n.Order:
        return n.Order(str(c[1]), c[3], span=self._all(c))

    def reads(self, c: Children) -> n.Reads:
        return n.Reads(str(c[1]), c[3], span=self._all(c))
