"""The dtypes of a call: what its operands may be, and what its outputs are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Protocol

from hapdsl.theory.dtypes import DTYPE_BYTES, FLOATS, KINDS
from hapdsl.theory.ops import OpDecl


class Typed(Protocol):
    """An operand as passed."""

    @property
    def operand(self) -> str: ...

    @property
    def dtype(self) -> str: ...


class Fail(Protocol):
    """What raises a HapError at the call in question."""

    def __call__(self, code: str, message: str, help: str = "") -> NoReturn: ...


def check_operands(decl: OpDecl, given: Sequence[Typed], fail: Fail) -> None:
    """Operands of which the declaration says a dtype, or a kind of it. Fails with HAP305."""
    for one in given:
        wanted = decl.dtypes.get(one.operand)
        allowed = KINDS.get(wanted, (wanted,)) if wanted is not None else (one.dtype,)
        if one.dtype not in allowed:
            fail("HAP305", f"operand '{one.operand}' is {one.dtype}, it must be {wanted} ({', '.join(allowed)})", f"cast(x, to = {allowed[0]})")  # fmt: skip


def result_dtype(decl: OpDecl, given: Sequence[Typed], attributes: Mapping[str, Any], result: str, fail: Fail) -> str:
    """The dtype of an output: a dtype, an attribute's or an operand's by declaration, else the one that all operands have.

    Fails with HAP305 where operands differ, or aren't of the kind that the declaration asks for: floats unless it says otherwise.
    """
    named = decl.dtypes.get(result, "float")
    if named in KINDS:
        return _common(decl, given, attributes, named, fail)
    for one in given:
        if one.operand == named:
            return one.dtype
    value = str(attributes.get(named, named))
    if value not in DTYPE_BYTES:
        fail("HAP305", f"unknown dtype '{value}'", f"known: {', '.join(DTYPE_BYTES)}")
    return value


def _common(decl: OpDecl, given: Sequence[Typed], attributes: Mapping[str, Any], kind: str, fail: Fail) -> str:
    """The one dtype of all operands. Those of which the declaration says a dtype stand aside."""
    own = [one.dtype for one in given if one.operand not in decl.dtypes]
    floats = [d for d in own if d in FLOATS]
    mixed = floats and len(floats) < len(own) and kind != "any"
    differ = own if mixed else floats or own
    if len(set(differ)) > 1:
        target = floats[0] if mixed else "f32" if floats else "i64"
        fail("HAP305", f"operands of different dtypes: {', '.join(dict.fromkeys(differ))}", f"make them equal with cast(x, to = {target})")  # fmt: skip
    found = (floats or own or ["f32"])[0]
    if found not in KINDS[kind]:
        keeps = "" if found == "bool" else "; an operator of your own that keeps whole numbers says `dtype y = number`"
        fail("HAP305", f"the operand is {found}, a {kind} is needed", f"cast(x, to = f32){keeps}")
    if found not in FLOATS and (part := next((n for n, v in attributes.items() if isinstance(v, float)), None)):
        fail(
            "HAP305", f"{part} = {attributes[part]} is no whole number, and the operand is {found}", "cast(x, to = f32)"
        )
    return found
