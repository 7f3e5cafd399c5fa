"""What a profile has seen of a cluster: samples, in seconds, bytes and FLOP. `hapdsl.cluster.describe` makes a cluster of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class OpSample:
    """One operator at one size, on all devices at once. `table` is what its curve is called ("matmul", "matmul.f16"), `by_flop` whether that
    curve is by FLOP; `seconds[device]` is the time of one call, launch included. `tiled` are the lengths of the dims that are computed in tiles."""

    table: str
    by_flop: bool
    flops: float
    moved: float
    seconds: tuple[float, ...]
    tiled: tuple[int, ...] = ()

    @property
    def size(self) -> float:
        return self.flops if self.by_flop else self.moved


@dataclass(frozen=True)
class MoveSample:
    """One collective of all devices: bytes of the whole tensor, of the largest share, and the seconds of its slowest rank."""

    kind: str
    method: str
    total: float
    largest: float
    seconds: float


@dataclass(frozen=True)
class LinkSample:
    """`size` bytes from one device to another: seconds one way."""

    source: int
    target: int
    size: float
    seconds: float


@dataclass(frozen=True)
class Figures:
    """One number per device: "copies" are bytes/s read and written while a large tensor is copied, "launches" seconds per kernel,
    "interference" and "delay" are the parts of a second beside each other that computing, and a message, don't get on by."""

    name: str
    values: tuple[float, ...]


Sample = OpSample | MoveSample | LinkSample | Figures
_TYPES: Mapping[str, type[Any]] = {t.__name__: t for t in (OpSample, MoveSample, LinkSample, Figures)}


@dataclass
class Seen:
    """Everything, in the order of the devices (ranks). `nodes` says which stand together, `kinds` what hardware they are, `memory` is
    in bytes. What wasn't measured (yet) is missing."""

    nodes: tuple[str, ...]
    memory: tuple[float, ...]
    kinds: tuple[str, ...]
    samples: list[Sample] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def ops(self) -> list[OpSample]:
        return [s for s in self.samples if isinstance(s, OpSample)]

    @property
    def moves(self) -> list[MoveSample]:
        return [s for s in self.samples if isinstance(s, MoveSample)]

    @property
    def links(self) -> list[LinkSample]:
        return [s for s in self.samples if isinstance(s, LinkSample)]

    def figures(self, name: str) -> tuple[float, ...] | None:
        """The numbers of one name, a device each; None where they weren't measured."""
        return next((s.values for s in self.samples if isinstance(s, Figures) and s.name == name), None)


def packed(sample: Sample) -> dict[str, Any]:
    """A sample as JSON has it."""
    return {"type": type(sample).__name__, **asdict(sample)}


def unpacked(found: Mapping[str, Any]) -> Sample:
    """The sample of `packed`."""
    fields = {k: tuple(v) if isinstance(v, list) else v for k, v in found.items() if k != "type"}
    sample: Sample = _TYPES[found["type"]](**fields)
    return sample
