"""Clusters: devices, nodes, the network, measured tables."""

from __future__ import annotations

from dataclasses import dataclass

from hapdsl.lang.nodes.base import Block, Node, Statement
from hapdsl.lang.nodes.expressions import Expr, Quantity


@dataclass(frozen=True, slots=True)
class Setting(Node):
    """`name = value`, or `name = { name = value, ... }`."""

    name: str
    value: Expr | tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class Part(Node):
    """`count * name [virtual]`."""

    count: int
    name: str
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class Device(Statement):
    """`device name { settings }`, or `device name = base { settings that differ }`; of a cluster, or of a file."""

    name: str
    settings: tuple[Setting, ...]
    base: str | None = None


@dataclass(frozen=True, slots=True)
class HostNode(Statement):
    """`node name = parts [over { link }] [uplink { link to the network }]`."""

    name: str
    parts: tuple[Part, ...]
    link: tuple[Setting, ...] = ()
    uplink: tuple[Setting, ...] = ()


@dataclass(frozen=True, slots=True)
class Network(Statement):
    """`network parts over { link }`."""

    parts: tuple[Part, ...]
    link: tuple[Setting, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured(Statement):
    """`measured kind [on device] [at skew] { 1 MiB = 3 ms, … }`: an operator on one kind of device, or a collective at a skew of its shares."""

    kind: str
    points: tuple[tuple[Quantity, Quantity], ...]
    device: str | None = None
    skew: float | None = None


@dataclass(frozen=True, slots=True)
class Cluster(Block):
    name: str
    body: tuple[Statement, ...]
