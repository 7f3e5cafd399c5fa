"""What the importer knows of a tensor, and the statements it writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hapdsl.importing.atoms import Atom, Dim, leaves
from hapdsl.importing.trace import Origin
from hapdsl.theory.dtypes import FLOATS

Layout = tuple[Dim, ...]


def resolved(dims: Sequence[Dim]) -> Layout:
    """Dims with what their atoms stand for by now."""
    return tuple(leaves(d) for d in dims)


def flat(dims: Sequence[Dim]) -> Dim:
    return tuple(a for d in dims for a in d)


@dataclass(eq=False)
class Tensor:
    """A tensor of the text: an input, a parameter, or what a statement makes."""

    name: str = ""  # of an input or parameter; a statement's result is named at the end
    statement: Statement | None = None


@dataclass
class Value:
    """A tensor as the module sees it (`dims`) over one of the text (`stored`: its dims, each a row of atoms).

    Both hold the same atoms in any order; what `dims` has beyond `stored` is repeated without being stored.
    """

    tensor: Tensor
    dims: Layout
    stored: Layout
    dtype: str

    @property
    def atoms(self) -> Dim:
        return flat(self.stored)


class Followed(ABC):
    """Something that is no tensor of the text and that knows what operators make of it."""

    @abstractmethod
    def follow(self, builder: Any, node: Any, name: str, args: Any, kwargs: Any) -> Any:
        """What the operator `name` makes of it."""


@dataclass(frozen=True)
class Extent:
    """The product of some atoms, as a number in the text: `batch`, `heads * 64`."""

    dim: Dim
    plus: int = 0


@dataclass(frozen=True)
class Either:
    """Two ways to say a number: the first one that has a symbol."""

    first: Extent
    second: Extent


@dataclass(frozen=True)
class Notation:
    """Index notation over atoms; words, or letters for einsum. Each dim of each tensor is a row of atoms."""

    operands: tuple[Layout, ...]
    result: Layout
    letters: bool = False


@dataclass(frozen=True)
class Sizes:
    """The extents that a rearrange needs: for each merged dim on its left all but one."""

    dims: Layout


@dataclass(frozen=True)
class Unbiased:
    """`factor * n / (n - 1)` for n elements: a variance that is to stand for a population's."""

    factor: float
    dim: Dim


@dataclass(frozen=True)
class Root:
    """`sqrt(extent)` or, where `under`, `1 / sqrt(extent)`."""

    dim: Dim
    under: bool = True


@dataclass(eq=False)
class Statement:
    """`result = op(operands, attributes)`; `inner` statements are written within the one that reads them."""

    op: str
    operands: list[Tensor]
    attributes: dict[str, Any]
    result: Tensor
    dtype: str
    origin: Origin
    inner: bool = False
    shapes: list[Layout] = field(default_factory=list)  # of the operands, as stored
    made: Layout = ()
    results: list[Tensor] = field(default_factory=list)  # of an operator that makes several; `result` is the first
    words: tuple[str, ...] = ()  # what these are called
    updates: str = ""  # the buffer that has this value after a step
    called: str = ""  # what the result is called, where its operator says little

    @property
    def makes(self) -> list[Tensor]:
        return self.results or [self.result]

    @property
    def passes(self) -> list[Tensor]:
        """The operands to which gradients of its results pass: none from whole numbers, or from true and false."""
        return [] if self.op == "detach" or self.dtype not in FLOATS else self.operands


@dataclass(eq=False)
class Declared:
    """An input, parameter or buffer as the text declares it; `shape` is the module's own."""

    kind: str
    name: str
    tensor: Tensor
    dims: Layout
    dtype: str
    shape: tuple[int, ...]

    @property
    def reshaped(self) -> bool:
        return len(self.dims) != len(self.shape)


def same_atoms(a: Dim, b: Dim) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def same_layout(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    return len(a) == len(b) and all(same_atoms(x, y) for x, y in zip(a, b, strict=True))


__all__ = [
    "Atom",
    "Declared",
    "Dim",
    "Either",
    "Extent",
    "Followed",
    "Layout",
    "Notation",
    "Root",
    "Sizes",
    "Statement",
    "Tensor",
    "Unbiased",
    "Value",
    "flat",
    "resolved",
]
