"""Names while a model is elaborated: tensors under construction, extents with their symbols, nested scopes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error
from hapdsl.lang.nodes import NOWHERE, Span
from hapdsl.theory.expressions import ARITHMETIC, evaluate
from hapdsl.theory.instance import DTYPE_BYTES, Instance

Repeats = tuple[tuple[str, int], ...]


@dataclass(eq=False)
class Draft:
    """A tensor under construction; its name settles when the scope that owns it knows it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str = "value"
    symbols: tuple[str | None, ...] = ()
    init: tuple[str, Mapping[str, Any]] | None = None
    span: Span = NOWHERE
    repeat: Repeats = ()
    master: str | None = None  # the dtype of the copy that is updated
    home: object = None  # the scope that made it, so that `return y` may rename what is its own


@dataclass(eq=False)
class DraftNode:
    """An operator call under construction."""

    instance: Instance
    inputs: list[Draft]
    outputs: list[Draft]
    section: str
    path: str
    repeat: Repeats
    span: Span


@dataclass(frozen=True)
class Extent:
    """A number bound to a parameter, and the symbol (a model's parameter) that it came from."""

    value: Any
    symbol: str | None = None


Bound = Draft | Extent


@dataclass
class Scope:
    """What names mean at one place of the text.

    `prefix` goes before the names of tensors made here ("layer.3.block."); `once` are the names already
    bound here; `turns` maps a name that a repeat rebinds to the path its result takes.
    """

    prefix: str
    names: dict[str, Bound]
    repeat: Repeats = ()
    once: set[str] = field(default_factory=set)
    labels: set[str] = field(default_factory=set)
    results: dict[str, str] = field(default_factory=dict)
    fresh: dict[str, int] = field(default_factory=dict)

    def temporary(self, op: str) -> str:
        """A path for a value that the text leaves unnamed: the operator and a count."""
        self.fresh[op] = self.fresh.get(op, 0) + 1
        return f"{self.prefix}{op}.{self.fresh[op]}"

    def numbers(self) -> dict[str, Any]:
        """Names that arithmetic may read: extents, other parameters, and dtypes as words."""
        found: dict[str, Any] = {d: d for d in DTYPE_BYTES}
        found.update({n: b.value for n, b in self.names.items() if isinstance(b, Extent)})
        return found

    def number(self, expr: nodes.Expr) -> Extent:
        """The value of an expression, with its symbol where it is a parameter passed on unchanged."""
        if isinstance(expr, nodes.Name):
            bound = self.names.get(expr.id)
            if isinstance(bound, Extent):
                return bound
            if isinstance(bound, Draft):
                raise error("HAP204", f"'{expr.id}' is a tensor; a number is needed here", expr.span)
        return Extent(evaluate(expr, self.numbers(), ARITHMETIC))

    def extent(self, expr: nodes.Expr, what: str = "a dim") -> Extent:
        """A dim of a type or a number of turns: a whole number from 1, below 2^63."""
        found = self.number(expr)
        value = found.value
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**63:
            raise error("HAP205", f"{what} must be a whole number from 1, this is {value!r}", expr.span, "check the parameters it is computed from")  # fmt: skip
        return found


def assigned(body: Sequence[nodes.Statement]) -> Iterator[str]:
    """The names that a repeat's body binds, in repeats within it too."""
    for statement in body:
        match statement:
            case nodes.Assign(targets=targets):
                yield from targets
            case nodes.Repeat(body=inner) | nodes.Microbatch(body=inner):
                yield from assigned(inner)
