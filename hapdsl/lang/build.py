"""From the parser's tokens to nodes: one method per rule of `grammar/hap.lark`.

A method gets all children of its rule in order, punctuation included, so that the first and the last tell where
the node stands. What the grammar can't say (a whole number, a known placement, an escape in a text) is checked
here; findings go to `problems` and the tree goes on with a stand-in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lark import Token

from hapdsl.lang import nodes as n
from hapdsl.lang.diagnostics import Report
from hapdsl.lang.nodes import Span

Children = list[Any]

LARGEST = 2**63 - 1
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True, slots=True)
class Names(n.Node):
    """`a, b, c`: only on its way to a statement."""

    names: tuple[str, ...]


class Builder:
    """Makes the nodes of one file; `begin` resets it for the next."""

    def __init__(self) -> None:
        self.begin("")

    def begin(self, file: str) -> None:
        self._file = file
        self.problems = Report()
        # Where each block's `{` stands, by where the block starts: comments are shared out by it.
        self.braces: dict[tuple[int, int], tuple[int, int]] = {}

    # -- helpers ---------------------------------------------------------------

    def _span(self, first: Any, last: Any) -> Span:
        if isinstance(first, Token):
            line, column = first.line or 0, first.column or 0
        else:
            line, column = first.span.line, first.span.column
        if isinstance(last, Token):
            return Span(self._file, line, column, last.end_line or 0, last.end_column or 0)
        return Span(self._file, line, column, last.span.end_line, last.span.end_column)

    def _all(self, c: Children) -> Span:
        return self._span(c[0], c[-1])

    def _integer(self, token: Token, what: str) -> int:
        if not token.isdigit():
            self.problems.add("HAP110", f"{what} must be a whole number, found {token}", self._span(token, token))
            return 1
        return int(self._number(token))

    def _number(self, token: Token) -> int | float:
        if token.isdigit():
            # Counted by digits first: int() refuses thousands of them.
            if len(token.lstrip("0")) <= 19 and (value := int(token)) <= LARGEST:
                return value
        elif (real := float(token)) != float("inf"):
            return real
        shown = token if len(token) <= 24 else token[:24] + "…"
        self.problems.add("HAP111", f"the number {shown} is too large", self._span(token, token), "whole numbers go up to 2^63 - 1, others to about 1.8e308")  # fmt: skip
        return 1

    def _text(self, token: Token) -> str:
        body = str(token[1:-1])
        if "\\" not in body:
            return body
        parts, escaped = [], False
        for offset, char in enumerate(body):
            if escaped:
                if char not in _ESCAPES:
                    column = (token.column or 0) + offset
                    where = Span(self._file, token.line or 0, column, token.line or 0, column + 2)
                    self.problems.add("HAP112", f"unknown escape \\{char} in a text", where, 'known: \\" \\\\ \\n \\t \\r; a backslash is written \\\\')  # fmt: skip
                parts.append(_ESCAPES.get(char, char))
                escaped = False
            elif char == "\\":
                escaped = True
            else:
                parts.append(char)
        return "".join(parts)

    @staticmethod
    def _kept(c: Children) -> tuple[Any, ...]:
        """The children that are no tokens."""
        return tuple(x for x in c if not isinstance(x, Token))

    def _braced(self, c: Children) -> dict[str, Any]:
        """The fields that every block has, and its body: what stands from the first `{` token on."""
        at = next(i for i, x in enumerate(c) if isinstance(x, Token) and x == "{")
        brace, span = c[at], self._all(c)
        self.braces[span.line, span.column] = (brace.line, brace.column)
        return {"body": self._kept(c[at:]), "span": span, "inline": brace.line == span.end_line}

    @staticmethod
    def _sign(c: Children, at: int) -> int:
        """How far behind the statement's start its sign stands; 0 on another line."""
        first, sign = c[0], c[at]
        line, column = (first.line, first.column) if isinstance(first, Token) else (first.span.line, first.span.column)
        return sign.column - column if sign.line == line else 0

    # -- files and blocks ------------------------------------------------------

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

    def cluster(self, c: Children) -> n.Cluster:
        return n.Cluster(name=str(c[1]), **self._braced(c))

    def program(self, c: Children) -> n.Program:
        header = {x[0]: x[1] for x in c[4:6] if isinstance(x, tuple)}
        return n.Program(
            name=str(c[1]), model=str(c[3]), args=header.get("args", ()), cluster=header.get("on"), **self._braced(c)
        )

    def model_arguments(self, c: Children) -> tuple[str, tuple[n.Arg, ...]]:
        return "args", self._kept(c)

    def on(self, c: Children) -> tuple[str, str]:
        return "on", str(c[1])

    def parameters(self, c: Children) -> tuple[Any, ...]:
        return ("parameters", *self._kept(c))

    def parameter(self, c: Children) -> n.Parameter:
        return n.Parameter(str(c[0]), c[2] if len(c) == 3 else None, span=self._all(c))

    # -- models ----------------------------------------------------------------

    def names(self, c: Children) -> Names:
        return Names(tuple(str(x) for x in c[::2]), span=self._all(c))

    def declare(self, c: Children) -> n.Declare:
        init = c[4] if len(c) == 5 else None
        return n.Declare(
            kind=str(c[0]), names=c[1].names, type=c[3], init=init and init[1], sign=self._sign(c, 2),
            span=self._span(c[0], init[1] if init else c[3]),
        )  # fmt: skip

    def type(self, c: Children) -> n.Type:
        return n.Type(str(c[0]), self._kept(c), span=self._all(c))

    def init(self, c: Children) -> tuple[Token, n.Expr]:
        return c[0], c[1]

    def assign(self, c: Children) -> n.Assign:
        label = c[3] if len(c) == 4 else None
        return n.Assign(c[0].names, c[2], label and str(label), span=self._span(c[0], label or c[2]))

    def label(self, c: Children) -> Token:
        return c[1]

    def repeat(self, c: Children) -> n.Repeat:
        return n.Repeat(variable=str(c[1]), count=c[3], **self._braced_behind(c, 4))

    def microbatch(self, c: Children) -> n.Microbatch:
        return n.Microbatch(count=c[1], **self._braced_behind(c, 2))

    def _braced_behind(self, c: Children, at: int) -> dict[str, Any]:
        """The block fields where an expression stands before the `{` (at index `at`)."""
        return self._braced([c[0], *c[at:]])

    def return_(self, c: Children) -> n.Return:
        return n.Return(self._kept(c), span=self._all(c))

    def output(self, c: Children) -> n.Output:
        return n.Output(c[1].names, span=self._all(c))

    def metric(self, c: Children) -> n.Metric:
        return n.Metric(c[1].names, span=self._all(c))

    def train(self, c: Children) -> n.Train:
        return n.Train(str(c[1]), c[3], span=self._all(c))

    # -- operators -------------------------------------------------------------

    def operand(self, c: Children) -> n.Operand:
        at = next(i for i, x in enumerate(c) if isinstance(x, tuple))
        first = str(c[0]) if at == 2 else ""
        optional = isinstance(c[-1], Token)
        end = c[-1] if optional else c[at][-1]
        return n.Operand(
            name=str(c[at - 1]), dims=c[at][:-1], kind="" if first == "*" else first,
            optional=optional, variadic=first == "*", span=self._span(c[0], end),
        )  # fmt: skip

    def attribute(self, c: Children) -> n.Attribute:
        return n.Attribute(str(c[1]), c[3] if len(c) == 4 else None, span=self._all(c))

    def result(self, c: Children) -> n.Result:
        named = len(c) == 2
        dims = c[-1]
        return n.Result(str(c[0]) if named else "out", dims[:-1], named, span=self._span(c[0] if named else dims[-1], dims[-1]))  # fmt: skip

    def dims(self, c: Children) -> tuple[Any, ...]:
        """The indices, and the closing bracket behind them to know where they end."""
        return (*self._kept(c), c[-1])

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

    def grad(self, c: Children) -> n.Grad:
        return n.Grad(self._kept(c), span=self._all(c))

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

    # -- clusters --------------------------------------------------------------

    def device(self, c: Children) -> n.Device:
        opening, *settings, closing = c[2]
        return n.Device(str(c[1]), tuple(settings), sign=self._sign([c[0], opening], 1), span=self._span(c[0], closing))

    def host_node(self, c: Children) -> n.HostNode:
        parts, link, end = self._parts(c[3:])
        return n.HostNode(str(c[1]), parts, link, sign=self._sign(c, 2), span=self._span(c[0], end))

    def network(self, c: Children) -> n.Network:
        parts, link, end = self._parts(c[1:])
        return n.Network(parts, link, span=self._span(c[0], end))

    def _parts(self, c: Children) -> tuple[tuple[n.Part, ...], tuple[n.Setting, ...], Any]:
        """The parts, the link's settings, and what stands last."""
        parts = tuple(x for x in c if isinstance(x, n.Part))
        over = c[-1] if isinstance(c[-1], tuple) else None
        return parts, tuple(over[1:-1]) if over else (), over[-1] if over else parts[-1]

    def part(self, c: Children) -> n.Part:
        return n.Part(self._integer(c[0], "a count of devices"), str(c[2]), len(c) == 4, span=self._all(c))

    def over(self, c: Children) -> tuple[Any, ...]:
        return c[1]

    def settings(self, c: Children) -> tuple[Any, ...]:
        """The settings between the two brace tokens."""
        return (c[0], *self._kept(c), c[-1])

    def setting(self, c: Children) -> n.Setting:
        name, _, value = c
        if isinstance(value, tuple):
            return n.Setting(str(name), tuple(value[1:-1]), span=self._span(name, value[-1]))
        return n.Setting(str(name), value, span=self._span(name, value))

    def quantity(self, c: Children) -> n.Quantity:
        return n.Quantity(self._number(c[0]), str(c[1]), span=self._all(c))

    def negative_quantity(self, c: Children) -> n.Quantity:
        return n.Quantity(-self._number(c[1]), str(c[2]), span=self._all(c))

    def measured(self, c: Children) -> n.Measured:
        return n.Measured(str(c[1]), self._kept(c), span=self._all(c))

    def point(self, c: Children) -> tuple[n.Quantity, n.Quantity]:
        return c[0], c[2]

    # -- programs --------------------------------------------------------------

    def mesh(self, c: Children) -> n.Mesh:
        return n.Mesh(tuple((name, count) for name, count, _ in c[1::2]), span=self._span(c[0], c[-1][2]))

    def axis(self, c: Children) -> tuple[str, int, Token]:
        return str(c[0]), self._integer(c[2], "the length of a mesh axis"), c[2]

    def shares(self, c: Children) -> n.Shares:
        return n.Shares(**self._dealt(c))

    def ratio(self, c: Children) -> n.Ratio:
        return n.Ratio(**self._dealt(c))

    def _dealt(self, c: Children) -> dict[str, Any]:
        return {
            "cls": str(c[1]),
            "values": c[-1],
            "axis": next((str(x[1]) for x in c if isinstance(x, tuple)), None),
            "layers": next((x for x in c if isinstance(x, n.Layers)), None),
            "sign": self._sign(c, -2),
            "span": self._all(c),
        }

    def layers(self, c: Children) -> n.Layers:
        return n.Layers(str(c[1]), self._integer(c[3], "a turn"), self._integer(c[5], "a turn"), span=self._all(c))

    def axis_name(self, c: Children) -> tuple[Token, Token]:
        return c[0], c[1]

    def fingerprint(self, c: Children) -> n.Fingerprint:
        return n.Fingerprint(self._text(c[1]), span=self._all(c))

    def pin(self, c: Children) -> n.Pin:
        return n.Pin(str(c[1]), c[2][0], span=self._span(c[0], c[2][1]))

    def section(self, c: Children) -> n.Section:
        return n.Section(kind=str(c[0]), **self._braced(c))

    def turns(self, c: Children) -> n.Turns:
        reverse = c[3] == "reverse"
        at = 4 if reverse else 3
        start, stop = self._integer(c[at], "a turn"), self._integer(c[at + 2], "a turn")
        return n.Turns(variable=str(c[1]), start=start, stop=stop, reverse=reverse, **self._braced(c))

    def line(self, c: Children) -> n.Line:
        at = next(i for i, x in enumerate(c) if isinstance(x, Token) and x == "=")
        return n.Line(
            outputs=self._kept(c[:at]), function=str(c[at + 1]), args=self._kept(c[at + 2 :]),
            sign=self._sign(c, at), span=self._all(c),
        )  # fmt: skip

    def free(self, c: Children) -> n.Free:
        return n.Free(self._kept(c), span=self._all(c))

    def rest(self, c: Children) -> n.Rest:
        return n.Rest(span=self._all(c))

    def value(self, c: Children) -> n.Value:
        return n.Value(str(c[0]), c[1][0], span=self._span(c[0], c[1][1]))

    def placement(self, c: Children) -> tuple[tuple[n.Placed, ...], Any]:
        """The axes, and what stands last."""
        return self._kept(c), c[-1]

    def placed(self, c: Children) -> n.Placed:
        kind, span = str(c[0]), self._all(c)
        if len(c) > 1:
            return n.Placed(kind, self._integer(c[2], "a dim"), span=span)
        if kind not in ("R", "P", "?"):
            help = "placements are R (replicated), S(dim) (sharded), P (partial sums) and ? (any that fits)"
            self.problems.add("HAP113", f"{kind} is no placement", span, help)
            return n.Placed("R", span=span)
        return n.Placed(kind, span=span)

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
