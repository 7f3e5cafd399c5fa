"""`init …` of a declaration: which initialisers there are, and their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hapdsl.graph.scope import Scope
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error

# Initialisers and their arguments, in order.
INITS: Mapping[str, tuple[str, ...]] = {
    "zeros": (), "ones": (), "constant": ("value",), "normal": ("std", "mean"), "uniform": ("bound",), "xavier": (), "table": (),
}  # fmt: skip

Init = tuple[str, Mapping[str, Any]]


def initialiser(statement: nodes.Declare, scope: Scope) -> Init | None:
    """The initialiser of a declaration with its arguments by name; inputs have none.

    Raises HapError: HAP211 an input with an initial value, HAP212 an initialiser or argument that isn't known.
    """
    expr = statement.init
    if statement.kind == "input":
        if expr is not None:
            raise error("HAP211", "an input has no initial value", expr.span, "take `init …` away")
        return None
    match expr:
        case None:
            return ("zeros", {}) if statement.kind == "buffer" else ("normal", {"std": 0.02})
        case nodes.Name(id=name) | nodes.Call(function=name) if name in INITS:
            return name, _arguments(expr, scope) if isinstance(expr, nodes.Call) else {}
        case nodes.Name(id=name) | nodes.Call(function=name):
            raise error("HAP212", f"unknown initialiser '{name}'", expr.span, f"known: {', '.join(INITS)}")
    raise error("HAP212", "expected an initialiser", expr.span, f"known: {', '.join(INITS)}")


def _arguments(call: nodes.Call, scope: Scope) -> dict[str, Any]:
    known = INITS[call.function]
    arguments: dict[str, Any] = {}
    for place, arg in enumerate(call.args):
        name = arg.name or (known[place] if place < len(known) else "")
        if name not in known or name in arguments:
            raise error(
                "HAP212",
                f"{call.function} has no such argument",
                arg.span,
                f"it takes: {', '.join(known) or 'nothing'}",
            )
        value = scope.number(arg.value).value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise error("HAP212", f"{name} must be a number, this is {value!r}", arg.span)
        arguments[name] = value
    return arguments
