"""The dtypes of a declaration: its own, and that of a master copy."""

from __future__ import annotations

from hapdsl.graph.scope import Extent, Scope
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error
from hapdsl.lang.nodes import Span
from hapdsl.theory.dtypes import DTYPE_BYTES, FLOATS


def dtype_of(name: str, span: Span, scope: Scope) -> str:
    """A dtype as written, or that of a parameter (`compute = bf16`)."""
    bound = scope.names.get(name)
    found = bound.value if isinstance(bound, Extent) else name
    if found not in DTYPE_BYTES:
        raise error("HAP210", f"unknown dtype '{name}'", span, f"known: {', '.join(DTYPE_BYTES)}")
    return str(found)


def master_of(statement: nodes.Declare, dtype: str, scope: Scope) -> str | None:
    """The dtype of a parameter's master copy; none where it is the parameter's own."""
    if statement.master is None:
        return None
    found = dtype_of(statement.master, statement.span, scope)
    if statement.kind != "param":
        raise error(
            "HAP235",
            f"{statement.kind} '{statement.names[0]}' isn't trained, so it has no master copy",
            statement.span,
            "take `master …` away",
        )
    if dtype not in FLOATS or found not in FLOATS or DTYPE_BYTES[found] < DTYPE_BYTES[dtype]:
        raise error(
            "HAP235",
            f"the master copy of a {dtype} parameter can't be {found}",
            statement.span,
            "param w : bf16[…] master f32",
        )
    return None if found == dtype else found
