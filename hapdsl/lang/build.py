"""From the parser's tokens to nodes: one method per rule of `grammar/hap.lark`.

A method gets all children of its rule in order, punctuation included, so that the first and the last tell where
the node stands. What the grammar can't say (a whole number, a known placement, an escape in a text) is checked
here; findings go to `problems` and the tree goes on with a stand-in.
"""

from __future__ import annotations

from typing import Any

from lark import Token

from hapdsl.lang import nodes as n
from hapdsl.lang.build_base import Children, Names
from hapdsl.lang.build_cluster import ClusterRules
from hapdsl.lang.build_op import OpRules
from hapdsl.lang.build_program import ProgramRules
from hapdsl.lang.nodes import Span


class Builder(OpRules, ClusterRules, ProgramRules):
    """Makes the nodes of one file; `begin` resets it for the next."""

    # -- files -----------------------------------------------------------------

    def file(self, c: Children) -> n.File:
        items = self._kept(c)
        span = self._span(items[0], items[-1]) if items else Span(self._file, 1, 1, 1, 1)
        return n.File(items, span=span)

    def import_(self, c: Children) -> n.Import:
        return n.Import(self._text(c[1]), span=self._all(c))

    def def_(self, c: Children) -> n.Def:
        return n.Def(name=str(c[1]), parameters=c[2][1:], **self._braced(c))

    def model(self, c: Children) -> n.Model:
        parameters = c[2][1:] if isinstance(c[2], tuple) else ()
        return n.Model(name=str(c[1]), parameters=parameters, **self._braced(c))

    def parameters(self, c: Children) -> tuple[Any, ...]:
        return ("parameters", *self._kept(c))

    def parameter(self, c: Children) -> n.Parameter:
        return n.Parameter(str(c[0]), c[2] if len(c) == 3 else None, span=self._all(c))

    # -- models and defs -------------------------------------------------------

    def declare(self, c: Children) -> n.Declare:
        said = {str(x[0]): x[1] for x in c[4:]}
        init, master = said.get("init"), said.get("master")
        return n.Declare(
            kind=str(c[0]), names=c[1].names, type=c[3], init=init, master=master and str(master), sign=self._sign(c, 2),
            span=self._span(c[0], init or master or c[3]),
        )  # fmt: skip

    def type(self, c: Children) -> n.Type:
        return n.Type(str(c[0]), self._kept(c), span=self._all(c))

    def init(self, c: Children) -> tuple[Token, n.Expr]:
        return c[0], c[1]

    def master(self, c: Children) -> tuple[Token, Token]:
        return c[0], c[1]

    def assign(self, c: Children) -> n.Assign:
        label = c[3] if len(c) == 4 else None
        sign = self._sign(c, 1)
        return n.Assign(c[0].names, c[2], label and str(label), sign=sign, span=self._span(c[0], label or c[2]))

    def label(self, c: Children) -> Token:
        return c[1]

    def repeat(self, c: Children) -> n.Repeat:
        return n.Repeat(variable=str(c[1]), count=c[3], **self._braced(c))

    def microbatch(self, c: Children) -> n.Microbatch:
        return n.Microbatch(count=c[1], **self._braced(c))

    def return_(self, c: Children) -> n.Return:
        return n.Return(self._kept(c), span=self._all(c))

    def output(self, c: Children) -> n.Output:
        return n.Output(c[1].names, span=self._all(c))

    def metric(self, c: Children) -> n.Metric:
        return n.Metric(c[1].names, span=self._all(c))

    def train(self, c: Children) -> n.Train:
        clip = c[4] if len(c) == 5 else None
        return n.Train(str(c[1]), c[3], clip, span=self._span(c[0], clip or c[3]))

    def clip(self, c: Children) -> n.Expr:
        return c[1]

    def group(self, c: Children) -> n.Group:
        return n.Group(c[1].names, c[3], span=self._all(c))

    def patterns(self, c: Children) -> Names:
        return self.names(c)

    # -- expressions -----------------------------------------------------------

    def binary(self, c: Children) -> n.Binary:
        return n.Binary(str(c[1]), c[0], c[2], span=self._all(c))

    def negate(self, c: Children) -> n.Expr:
        """`-3` is a number."""
        operand, span = c[1], self._all(c)
        return n.Number(-operand.value, span=span) if isinstance(operand, n.Number) else n.Negate(operand, span=span)

    def number(self, c: Children) -> n.Number:
        return n.Number(self._number(c[0]), span=self._all(c))

    def text(self, c: Children) -> n.Text:
        return n.Text(self._text(c[0]), span=self._all(c))

    def true(self, c: Children) -> n.Bool:
        return n.Bool(True, span=self._all(c))

    def false(self, c: Children) -> n.Bool:
        return n.Bool(False, span=self._all(c))

    def name(self, c: Children) -> n.Name:
        return n.Name(str(c[0]), span=self._all(c))

    def list(self, c: Children) -> n.Items:
        return n.Items(self._kept(c), span=self._all(c))

    def call(self, c: Children) -> n.Call:
        return n.Call(str(c[0]), self._kept(c), span=self._all(c))

    def argument(self, c: Children) -> n.Arg:
        return n.Arg(str(c[0]) if len(c) == 3 else None, c[-1], span=self._all(c))

    line_argument = argument

    def parens(self, c: Children) -> n.Expr:
        return c[1]

    def hole(self, c: Children) -> n.Hole:
        return n.Hole(span=self._all(c))
