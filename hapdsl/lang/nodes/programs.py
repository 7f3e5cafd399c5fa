"""Programs."""

from __future__ import annotations

from dataclasses import dataclass

from hapdsl.lang.nodes.base import Block, Node, Statement
from hapdsl.lang.nodes.expressions import Arg, Hole, Items, Placed, Value


@dataclass(frozen=True, slots=True)
class Mesh(Statement):
    """`mesh nodes = 2, devices = 4`; without it a program has one axis, `devices`."""

    axes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Layers(Node):
    """`[layer in 0..6]` behind a class name: only those turns."""

    variable: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Shares(Statement):
    """`shares class [over axis] = [units per device]`, or `= ?`.

    `values` holds Number and `2 * 76` (Binary); nested Items (one row per outer device)
    cut a class over two axes.
    """

    cls: str
    values: Items | Hole
    axis: str | None = None
    layers: Layers | None = None


@dataclass(frozen=True, slots=True)
class Ratio(Statement):
    """`ratio class [over axis] = [weights]`: rounded to units by largest remainder."""

    cls: str
    values: Items | Hole
    axis: str | None = None
    layers: Layers | None = None


@dataclass(frozen=True, slots=True)
class Fingerprint(Statement):
    """`fingerprint "1:9f86d081"`: the format's version and the model's fingerprint."""

    value: str


@dataclass(frozen=True, slots=True)
class Pin(Statement):
    """`pin tensor @ placement`."""

    name: str
    placement: tuple[Placed, ...]


@dataclass(frozen=True, slots=True)
class Section(Block):
    """`forward { }`, `backward { }` or `update { }`."""

    kind: str
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Turns(Block):
    """`repeat variable in [reverse] start..stop { }` of a program."""

    variable: str
    start: int
    stop: int
    reverse: bool
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Line(Statement):
    """`outputs = function(args)`: one instruction."""

    outputs: tuple[Value, ...]
    function: str
    args: tuple[Arg, ...]


@dataclass(frozen=True, slots=True)
class Free(Statement):
    """`free values`: they end here."""

    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Rest(Statement):
    """`...`: the search writes what is missing."""


@dataclass(frozen=True, slots=True)
class Program(Block):
    """`program name for model[(args)] [on cluster] { }`."""

    name: str
    model: str
    args: tuple[Arg, ...]
    cluster: str | None
    body: tuple[Statement, ...]
