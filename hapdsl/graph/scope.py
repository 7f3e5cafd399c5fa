"""Names while a model is elaborated: tensors under construction, extents with their symbols, nested scopes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error
from hapdsl.lang.nodes import NOWHERE, Span
from hapdsl.theory.dtypes import DTYPE_BYTES
from hapdsl.theory.expressions import ARITHMETIC, evaluate, names_in
from hapdsl.theory.instance import Instance

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
    stops: Draft | None = None  # the tensor that this one is, but for the gradient, which doesn't pass (`Drafts.stop`)
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
RESERVED = ("grad", "new")


def allowed(name: str, span: Span) -> None:
    """Raises HapError HAP213 for a name that only hapdsl itself gives."""
    if name == "path" or any(word in RESERVED for word in name.split(".")):
        raise error("HAP213", f"'{name}': `grad`, `new` and `path` are reserved", span, "choose another name")


@dataclass
class Scope:
    """What names mean at one place of the text.

    `prefix` goes before the names of tensors made here ("layer.3.block."); `once` are the names and `labels` the calls of `def`s already
    bound here; `results` maps a name that a repeat rebinds to the path its result takes; `fresh` counts the unnamed values by operator.
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

    def claim(self, name: str, span: Span) -> None:
        """A name is about to be bound here. Raises HapError: HAP213 a reserved one, HAP214 one that is bound already."""
        allowed(name, span)
        if name in self.once or (name in self.names and name not in self.results):
            raise error(
                "HAP214", f"'{name}' is bound twice", span, "names are bound once; give the second another name"
            )
        self.once.add(name)

    def buffer(self, target: str) -> Draft | None:
        """The buffer whose value after the step `b.new` stands for."""
        bound = self.names.get(target.removesuffix(".new")) if target.endswith(".new") else None
        return bound if isinstance(bound, Draft) and bound.kind == "buffer" else None

    def is_tensor(self, expr: nodes.Expr) -> bool:
        """Calls are tensors, unless they are arithmetic over numbers, and so are names unless they are known as numbers or dtypes
        (an unknown name is reported as a tensor)."""
        if isinstance(expr, nodes.Name):
            return not isinstance(self.names.get(expr.id), Extent) and expr.id not in DTYPE_BYTES
        if isinstance(expr, nodes.Call) and expr.function in ARITHMETIC:
            return not all(isinstance(self.names.get(n), Extent) for n in names_in(expr))
        return isinstance(expr, nodes.Call)

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
        tensor = next((n for n in sorted(names_in(expr)) if isinstance(self.names.get(n), Draft)), None)
        if tensor is not None:
            raise error("HAP204", f"'{tensor}' is a tensor; a number is needed here", expr.span)
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
