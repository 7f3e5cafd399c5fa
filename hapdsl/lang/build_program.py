"""The rules of `program` blocks."""

from __future__ import annotations

from typing import Any

from lark import Token

from hapdsl.lang import nodes as n
from hapdsl.lang.build_base import Base, Children


class ProgramRules(Base):
    """A program's head, sections, repeats and lines."""

    def program(self, c: Children) -> n.Program:
        header = {x[0]: x[1] for x in c[4:6] if isinstance(x, tuple)}
        return n.Program(
            name=str(c[1]), model=str(c[3]), args=header.get("args", ()), cluster=header.get("on"), **self._braced(c)
        )

    def model_arguments(self, c: Children) -> tuple[str, tuple[n.Arg, ...]]:
        return "args", self._kept(c)

    def on(self, c: Children) -> tuple[str, str]:
        return "on", str(c[1])

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
