"""How parameters are updated: the optimizer of `train`, and the groups that say otherwise for some names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hapdsl.graph.scope import Draft, Scope
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error
from hapdsl.lang.nodes import Span
from hapdsl.theory.ops import OpDecl


@dataclass(frozen=True)
class Optimizer:
    """An update operator with its attributes, and the scalar tensors that stand in for some of them (a learning rate)."""

    decl: OpDecl
    attributes: Mapping[str, Any]
    operands: Mapping[str, Draft]
    span: Span


@dataclass(frozen=True)
class Group:
    """Parameters whose names fit one of `patterns`."""

    patterns: tuple[str, ...]
    optimizer: Optimizer
    span: Span

    def holds(self, name: str) -> bool:
        """Does a parameter belong to it?"""
        return any(fits(pattern, name) for pattern in self.patterns)


def fits(pattern: str, name: str) -> bool:
    """Is `name` what `pattern` says? A `*` stands for any letters, dots too."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None


def read(
    call: nodes.Call,
    ops: Mapping[str, OpDecl],
    scope: Scope,
    tensor: Callable[[nodes.Expr], Draft],
    is_tensor: Callable[[nodes.Expr], bool],
    base: Optimizer | None = None,
) -> Optimizer:
    """The optimizer that a call names; what it leaves open is as in `base` where that is the same operator.

    Raises HapError: HAP217 no update operator, HAP218 an unknown or repeated argument, HAP204 a tensor where only a number will do,
    HAP301 a tensor that is no scalar, HAP207 a missing attribute.
    """
    decl = ops.get(call.function)
    if decl is None or not decl.is_update:
        known = ", ".join(n for n, d in ops.items() if d.is_update)
        raise error("HAP217", f"'{call.function}' is no update operator", call.span, f"known: {known}")
    scalars = {o.name for o in decl.operands if o.default is not None}
    attributes: dict[str, Any] = {}
    operands: dict[str, Draft] = {}
    for place, arg in enumerate(call.args):
        name = arg.name or next(iter([*decl.attributes][place : place + 1]), "")
        if name not in decl.attributes or name in attributes or name in operands:
            again = name in attributes or name in operands
            what = (
                f"takes '{name}' once" if again else f"has no attribute '{name}'" if name else "has no more attributes"
            )
            raise error("HAP218", f"'{call.function}' {what}", arg.span, f"it has: {', '.join(decl.attributes)}")
        if name in scalars and is_tensor(arg.value):
            operands[name] = tensor(arg.value)
            if operands[name].shape:
                raise error(
                    "HAP301", f"{decl.name}: '{name}' is {list(operands[name].shape)}, a scalar is needed", arg.span
                )
        else:
            attributes[name] = _number(decl, name, arg, scope)
    if base is not None and base.decl is decl:
        given = {*attributes, *operands}
        attributes = {**{n: v for n, v in base.attributes.items() if n not in given}, **attributes}
        operands = {**{n: t for n, t in base.operands.items() if n not in given}, **operands}
    for name, default in decl.attributes.items():
        if name not in attributes and name not in operands and default is None:
            raise error("HAP207", f"attribute '{name}' of '{decl.name}' has no value", call.span, f"write {name} = …")
    return Optimizer(decl, attributes, operands, call.span)


def deal(trained: Sequence[Draft], every: Optimizer, groups: Sequence[Group]) -> list[Optimizer]:
    """The optimizer of each trained parameter: of the last group that holds it, else `every`.

    Raises HapError HAP231 for a pattern that no trained parameter fits.
    """
    names = [t.name for t in trained]
    for group in groups:
        for pattern in group.patterns:
            if not any(fits(pattern, name) for name in names):
                raise error("HAP231", f"no trained parameter is called {pattern}", group.span, _near(pattern, names))
    return [next((g.optimizer for g in reversed(groups) if g.holds(name)), every) for name in names]


def _number(decl: OpDecl, name: str, arg: nodes.Arg, scope: Scope) -> Any:
    """What an attribute is set to: a number, if that is what it is without."""
    value = scope.number(arg.value).value
    default = decl.attributes[name]
    numeric = isinstance(default.operand if isinstance(default, nodes.Negate) else default, nodes.Number)
    if numeric and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise error("HAP204", f"'{name}' of '{decl.name}' is {value!r}; a number is needed here", arg.span)
    return value


def _near(pattern: str, names: Sequence[str]) -> str:
    """A pattern that would fit: with more before or behind it, else what the parameters are called."""
    for more in (f"*.{pattern.lstrip('*.')}", f"{pattern.rstrip('*.')}.*", f"*{pattern.strip('*')}*"):
        found = next((n for n in names if fits(more, n)), None)
        if found is not None:
            return f"`*` stands for any letters; {more} would fit {found}"
    return f"the parameters are {', '.join(names[:6])}{' …' if len(names) > 6 else ''}"
