"""Layers that are alike but for some numbers, and that no `repeat` holds: one `def`, called for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from hapdsl.importing.values import Tensor
from hapdsl.lang import nodes
from hapdsl.lang.inline import inline
from hapdsl.lang.print import to_text

SHORTEST = 6  # statements that are worth a def


@dataclass
class Layer:
    """One layer as text: its body with names of its own, the tensors it reads from outside and hands back."""

    path: str
    body: tuple[nodes.Statement, ...]
    reads: list[Tensor]
    returns: list[Tensor]
    names: list[str]  # of what it returns, inside

    @property
    def key(self) -> str:
        """The same for layers that differ in numbers only."""
        body = tuple(mapped(s, lambda e: nodes.Name("_")) for s in bare(self.body))
        shown = "\n".join(to_text(s) for s in body if isinstance(s, nodes.Statement))
        return f"{shown}\n{len(self.reads)} {self.names}"


@dataclass
class Definition:
    """A def and, for each layer it stands for, the arguments behind the tensors."""

    block: nodes.Def
    arguments: dict[str, list[nodes.Expr]]


def define(name: str, layers: Sequence[Layer], tensors: Sequence[str], symbols: Sequence[str]) -> Definition:
    """The def of layers with equal keys. `tensors` are the names of what is read, `symbols` those of the model, in order."""
    bodies = [bare(layer.body) for layer in layers]
    columns = list(zip(*(list(held(b)) for b in bodies), strict=True))
    words: dict[tuple[str, ...], str] = {}
    for column in columns:
        values = tuple(inline(e) for _, e in column)
        if len(set(values)) > 1 and values not in words:
            words[values] = _word(column[0][0], {*words.values(), *symbols, *tensors})
    chosen = iter(columns)

    def filled(expr: nodes.Expr) -> nodes.Expr:
        word = words.get(tuple(inline(e) for _, e in next(chosen)))
        return nodes.Name(word) if word else expr

    kept = layers[0].body if all(layer.body == layers[0].body for layer in layers) else bodies[0]
    body = tuple(mapped(s, filled) for s in kept)
    used = {n.id for s in body for n in _within(s) if isinstance(n, nodes.Name)}
    shared = [s for s in symbols if s in used]
    back = nodes.Return(tuple(nodes.Name(n) for n in layers[0].names))
    parameters = tuple(nodes.Parameter(n) for n in (*tensors, *shared, *words.values()))
    numbers = list(words)
    arguments = {
        layer.path: [*(nodes.Name(s) for s in shared), *(_column_value(columns, n, k) for n in numbers)]
        for k, layer in enumerate(layers)
    }
    return Definition(nodes.Def(name, parameters, (*body, back), gap=True), arguments)


def _column_value(columns: Sequence[Sequence[tuple[str, nodes.Expr]]], values: tuple[str, ...], k: int) -> nodes.Expr:
    return next(column[k][1] for column in columns if tuple(inline(e) for _, e in column) == values)


def _word(attribute: str, taken: set[str]) -> str:
    """A name for a number that layers don't share: that of the attribute it is, or of a dim."""
    base = attribute or "n"
    return next(w for w in (base if k == 1 and attribute else f"{base}{k}" for k in range(1, 99)) if w not in taken)


def bare(body: Sequence[nodes.Statement]) -> tuple[nodes.Statement, ...]:
    """Statements without the comments behind them, which tell of one layer's sizes."""
    return tuple(replace(s, trailing=None) for s in body)


# -- numbers in statements ------------------------------------------------------------------------


def is_number(expr: Any) -> bool:
    """Is it arithmetic over numbers and names: a dim, an attribute?"""
    match expr:
        case nodes.Number():
            return True
        case nodes.Negate(operand=operand):
            return is_number(operand)
        case nodes.Binary(left=left, right=right):
            return all(is_number(e) or isinstance(e, nodes.Name) for e in (left, right))
    return False


def mapped(node: Any, change: Callable[[nodes.Expr], nodes.Expr], dim: bool = False) -> Any:
    """A statement with `change` applied to each dim and each number of an attribute, in order."""
    if isinstance(node, tuple):
        return tuple(mapped(n, change, dim) for n in node)
    if not isinstance(node, nodes.Node):
        return node
    if is_number(node) or (dim and isinstance(node, nodes.Name)):
        return change(node)  # type: ignore[arg-type]
    inner = {}
    for f in fields(node):
        value = getattr(node, f.name)
        if f.name not in ("span", "init") and isinstance(value, tuple | nodes.Node):
            inner[f.name] = mapped(value, change, isinstance(node, nodes.Type) and f.name == "dims")
    return replace(node, **inner)


def held(body: Sequence[nodes.Statement]) -> Iterator[tuple[str, nodes.Expr]]:
    """What `mapped` changes, in its order, each with the attribute it is the value of ("" for a dim)."""
    found: list[nodes.Expr] = []
    words = {id(a.value): a.name or "" for s in body for a in _within(s) if isinstance(a, nodes.Arg)}

    def keep(expr: nodes.Expr) -> nodes.Expr:
        found.append(expr)
        return expr

    for s in body:
        mapped(s, keep)
    return ((words.get(id(e), ""), e) for e in found)


def _within(node: Any) -> Iterator[Any]:
    """A node and all that it holds, in order."""
    if isinstance(node, tuple):
        for n in node:
            yield from _within(n)
    elif is_dataclass(node) and not isinstance(node, nodes.Span):
        yield node
        for f in fields(node):
            yield from _within(getattr(node, f.name))
