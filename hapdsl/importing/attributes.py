"""The attributes of a translated call as the language's expressions, in the symbols that stand for extents."""

from __future__ import annotations

from typing import Any

from hapdsl.importing.lengths import Length
from hapdsl.importing.names import Symbols, notation, sizes
from hapdsl.importing.values import Either, Extent, Notation, Root, Sizes, Statement, Unbiased
from hapdsl.lang import nodes


def attributes(s: Statement, symbols: Symbols) -> tuple[list[nodes.Expr], dict[str, nodes.Expr]]:
    """Those that are written by their place (a notation, the shape of a `reshape`), and the others by name."""
    positional: list[nodes.Expr] = []
    named: dict[str, nodes.Expr] = {}
    spec = s.attributes.get("spec")
    if isinstance(spec, Notation):
        shown, words = notation(symbols, spec)
        positional.append(nodes.Text(shown))
        if isinstance(s.attributes.get("sizes"), Sizes):
            named.update(sizes(symbols, s.attributes["sizes"], words))
    elif isinstance(spec, str):
        positional.append(nodes.Text(spec))
    for key, value in s.attributes.items():
        if key == "spec" or isinstance(value, Sizes):
            continue
        if s.op == "reshape" and key == "shape":
            positional.append(expression(value, symbols))
        else:
            named[key] = expression(value, symbols)
    return positional, named


def expression(value: Any, symbols: Symbols) -> nodes.Expr:
    """A number, a word, a list, or what a handler says of extents (`importing.values`). Raises TypeError for anything else."""
    match value:
        case bool():
            return nodes.Bool(value)
        case Either(first=first, second=second):
            shown = expression(first, symbols)
            return expression(second, symbols) if isinstance(shown, nodes.Number) else shown
        case Extent(dim=dim, plus=plus):
            return symbols.extent(dim, plus)
        case Root(dim=dim, under=under):
            root = nodes.Call("sqrt", (nodes.Arg(None, symbols.extent(dim)),))
            return nodes.Binary("/", nodes.Number(1), root) if under else root
        case Unbiased(factor=factor, dim=dim):
            n = symbols.extent(dim)
            less: nodes.Expr = nodes.Binary("-", n, nodes.Number(1))
            if isinstance(n, nodes.Number):
                less = nodes.Number(int(n.value) - 1)
            return nodes.Binary("/", nodes.Binary("*", nodes.Number(factor), n), less)
        case Length():
            return length(value, symbols)
        case int() | float():
            return nodes.Negate(nodes.Number(-value)) if value < 0 else nodes.Number(value)
        case str():
            return nodes.Name(value)
        case list() | tuple():
            return nodes.Items(tuple(expression(v, symbols) for v in value))
    raise TypeError(f"no text for {value!r}")


def length(x: Length, symbols: Symbols) -> nodes.Expr:
    """`batch * seq`, `1 / batch`, `0.5 / (batch - 1)`, `1 / sqrt(seq)`."""
    factor = round(x.factor) if abs(x.factor - round(x.factor)) < 1e-9 * abs(x.factor) else x.factor
    found: nodes.Expr | None = (
        None if abs(factor) == 1 and any(e > 0 for _, _, e in x.powers) else nodes.Number(abs(factor))
    )
    for atom, plus, e in sorted(x.powers, key=lambda p: p[2] < 0):
        term = symbols.extent((atom,), plus)
        if abs(e) == 0.5:
            term = nodes.Call("sqrt", (nodes.Arg(None, term),))
        found = term if found is None else nodes.Binary("*" if e > 0 else "/", found, term)
    assert found is not None
    return nodes.Negate(found) if factor < 0 else found
