"""Arithmetic in declarations: sizes, flops and attributes are evaluated here, and only here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error

Functions = Mapping[str, Callable[..., Any]]

# What arithmetic in models may call.
ARITHMETIC: Functions = {"sqrt": math.sqrt}


def evaluate(expr: nodes.Expr, names: Mapping[str, Any], functions: Functions | None = None) -> Any:
    """The value of `expr` where its names mean `names`.

    Numbers may be numpy arrays (one entry per device), and come out as such. Raises
    HapError HAP201 for an unknown name, HAP202 for something that isn't arithmetic.
    """
    match expr:
        case nodes.Number(value=value) | nodes.Text(value=value) | nodes.Bool(value=value):
            return value
        case nodes.Name(id=id):
            if id not in names:
                # Without dtypes.
                own = (n for n, v in names.items() if "." not in n and not (isinstance(v, str) and v == n))
                known = ", ".join(sorted(own)) or "nothing"
                raise error("HAP201", f"unknown name '{id}'", expr.span, f"known here: {known}")
            return names[id]
        case nodes.Items(items=items):
            return [evaluate(item, names, functions) for item in items]
        case nodes.Negate(operand=operand):
            value = evaluate(operand, names, functions)
            if isinstance(value, str | list):
                raise error("HAP202", "'-' needs a number behind it", expr.span)
            return -value
        case nodes.Binary(op=op, left=left, right=right):
            return _binary(op, evaluate(left, names, functions), evaluate(right, names, functions), expr)
        case nodes.Call(function=function, args=args) if functions and function in functions:
            return _applied(functions[function], [evaluate(a.value, names, functions) for a in args], expr)
    raise error("HAP202", "expected a number, a name or arithmetic here", expr.span)


def _applied(function: Callable[..., Any], values: list[Any], call: nodes.Call) -> Any:
    try:
        return function(*values)
    except (TypeError, ValueError, OverflowError):
        raise error(
            "HAP202", f"{call.function} can't be taken of {', '.join(map(repr, values)) or 'nothing'}", call.span
        ) from None


def _binary(op: str, left: Any, right: Any, where: nodes.Node) -> Any:
    if isinstance(left, str | list) or isinstance(right, str | list):
        raise error("HAP202", f"'{op}' needs numbers on both sides", where.span)
    try:
        match op:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
            case "/":
                # whole numbers stay whole where they divide, so that `d / heads` is an extent
                if isinstance(left, int) and isinstance(right, int) and right and left % right == 0:
                    return left // right
                return left / right
            case "//":
                return left // right
            case "%":
                return left % right
    except ZeroDivisionError:
        raise error("HAP203", "division by zero", where.span) from None
    except TypeError:
        raise error("HAP202", f"'{op}' needs numbers on both sides", where.span) from None
    except OverflowError:
        raise error("HAP202", "this number is too large", where.span) from None
    raise error("HAP202", f"unknown operator '{op}'", where.span)


def is_whole(value: Any) -> bool:
    """Is it a whole number? True and false, which Python takes for 1 and 0, are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def names_in(expr: nodes.Expr) -> set[str]:
    """All names that `expr` reads."""
    match expr:
        case nodes.Name(id=id):
            return {id}
        case nodes.Binary(left=left, right=right):
            return names_in(left) | names_in(right)
        case nodes.Negate(operand=operand):
            return names_in(operand)
        case nodes.Items(items=items):
            return set().union(*map(names_in, items)) if items else set()
        case nodes.Call(args=args):
            return set().union(*(names_in(a.value) for a in args)) if args else set()
    return set()
