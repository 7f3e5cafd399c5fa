"""Declarations: tensors with their dims, their dtype and that of a master copy, and how they begin."""

from __future__ import annotations

from hapdsl.graph.initialisers import initialiser
from hapdsl.graph.scope import Draft, Extent, Scope
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error
from hapdsl.lang.nodes import Span
from hapdsl.theory.dtypes import DTYPE_BYTES, FLOATS


def declared(statement: nodes.Declare, scope: Scope) -> list[Draft]:
    """The tensors of a declaration, bound in `scope`.

    Raises HapError: HAP210 and HAP235 a dtype, HAP205 a dim, HAP211 and HAP212 how they begin, HAP213 and HAP214 a name.
    """
    dtype = _dtype(statement.type.dtype, statement.type.span, scope)
    master = _master(statement, dtype, scope)
    extents = [scope.extent(d) for d in statement.type.dims]
    init = initialiser(statement, scope)
    found = []
    for name in statement.names:
        scope.claim(name, statement.span)
        draft = Draft(
            scope.prefix + name,
            tuple(e.value for e in extents),
            dtype,
            statement.kind,
            tuple(e.symbol for e in extents),
            init,
            statement.span,
            scope.repeat,
            master=master,
        )
        scope.names[name] = draft
        found.append(draft)
    return found


def _dtype(name: str, span: Span, scope: Scope) -> str:
    """A dtype as written, or that of a parameter (`compute = bf16`)."""
    bound = scope.names.get(name)
    found = bound.value if isinstance(bound, Extent) else name
    if found not in DTYPE_BYTES:
        raise error("HAP210", f"unknown dtype '{name}'", span, f"known: {', '.join(DTYPE_BYTES)}")
    return str(found)


def _master(statement: nodes.Declare, dtype: str, scope: Scope) -> str | None:
    """The dtype of a parameter's master copy; none where it is the parameter's own."""
    if statement.master is None:
        return None
    found = _dtype(statement.master, statement.span, scope)
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
