"""`--set k=v`: parameters of a model from the command line, each of the kind of its default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error
from hapdsl.lang.near import near
from hapdsl.theory.dtypes import DTYPE_BYTES

WORDS = {"true": True, "false": False}


def read_settings(model: nodes.Model, given: Sequence[str]) -> dict[str, Any]:
    """The parameters that `--set` gives. Raises HAP851 for one that can't be read, HAP206 for one the model lacks."""
    declared = {p.name: p.default for p in model.parameters}
    found: dict[str, Any] = {}
    for text in given:
        name, equals, written = text.partition("=")
        name, written = name.strip(), written.strip()
        if not equals or not name or not written:
            raise error("HAP851", f"--set {text}: a parameter and its value are written k=v", help="--set layers=24")
        if name not in declared:
            hint = near(name, declared, f"it has: {', '.join(declared) or 'none'}")
            raise error("HAP206", f"model '{model.name}' has no parameter '{name}'", model.span, hint)
        if name in found:
            raise error("HAP851", f"--set gives '{name}' twice", help="leave one of the two out")
        found[name] = _value(name, written, declared[name])
    return found


def _value(name: str, written: str, default: nodes.Expr | None) -> Any:
    match default:
        case nodes.Bool():
            if written in WORDS:
                return WORDS[written]
            raise error("HAP851", f"--set {name}={written}: '{name}' is true or false", help=f"--set {name}=true")
        case nodes.Text():
            return written
        case nodes.Name(id=dtype) if dtype in DTYPE_BYTES:
            if written in DTYPE_BYTES:
                return written
            raise error(
                "HAP851", f"--set {name}={written}: '{name}' is a dtype", help=f"one of {', '.join(DTYPE_BYTES)}"
            )
        case nodes.Number(value=int()) | nodes.Negate(operand=nodes.Number(value=int())):
            number = _number(written)
            if isinstance(number, int):
                return number
            raise error("HAP851", f"--set {name}={written}: '{name}' is a whole number", help=f"--set {name}=24")
    number = WORDS.get(written, _number(written))
    if number is None:
        raise error("HAP851", f"--set {name}={written}: '{written}' is no number", help=f"--set {name}=0.1")
    return number


def _number(written: str) -> int | float | None:
    try:
        whole = int(written)
        return whole if abs(whole) < 2**63 else None
    except ValueError:
        pass
    try:
        value = float(written)
        return value if value == value and abs(value) != float("inf") else None
    except ValueError:
        return None
