"""The rules of `cluster` blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lark import Token

from hapdsl.lang import nodes as n
from hapdsl.lang.build_base import Base, Children


@dataclass(frozen=True, slots=True)
class Uplink(n.Node):
    """`uplink { settings }`: only on its way to a node."""

    settings: tuple[n.Setting, ...]


class ClusterRules(Base):
    """`device`, `node`, `network`, `measured`."""

    def cluster(self, c: Children) -> n.Cluster:
        return n.Cluster(name=str(c[1]), **self._braced(c))

    def device(self, c: Children) -> n.Device:
        opening, *settings, closing = c[-1]
        base = str(c[3]) if len(c) == 5 else None
        sign = self._sign([c[0], opening], 1)
        return n.Device(str(c[1]), tuple(settings), base, sign=sign, span=self._span(c[0], closing))

    def host_node(self, c: Children) -> n.HostNode:
        uplink = c.pop() if isinstance(c[-1], Uplink) else None
        parts, link, end = self._parts(c[3:])
        leaving, end = (uplink.settings, uplink) if uplink else ((), end)
        return n.HostNode(str(c[1]), parts, link, leaving, sign=self._sign(c, 2), span=self._span(c[0], end))

    def uplink(self, c: Children) -> Uplink:
        return Uplink(tuple(c[1][1:-1]), span=self._span(c[0], c[1][-1]))

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
        opening = next(i for i, x in enumerate(c) if i > 1 and isinstance(x, Token))
        said = dict(c[2:opening])
        return n.Measured(str(c[1]), self._kept(c[opening:]), said.get("on"), said.get("at"), span=self._all(c))

    def skew(self, c: Children) -> tuple[str, float]:
        return "at", self._number(c[1])

    def point(self, c: Children) -> tuple[n.Quantity, n.Quantity]:
        return c[0], c[2]
