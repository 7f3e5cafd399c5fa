"""Which argument of a call fills which operand or attribute of its operator, or which parameter of its `def`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error
from hapdsl.theory.ops import OpDecl


@dataclass(frozen=True)
class BoundCall:
    """Operands as (declared name, argument) in declared order, variadic ones repeated; attributes by name."""

    operands: list[tuple[str, nodes.Expr]]
    attributes: dict[str, nodes.Expr]


def bind_call(decl: OpDecl, call: nodes.Call, is_tensor: Callable[[nodes.Expr], bool]) -> BoundCall:
    """Match arguments: tensors fill operands in order, numbers and texts fill attributes in order, or by name.

    A notation operator takes further attributes by name (the extents of indices).
    Raises HapError: HAP218 no such attribute, HAP227 too many or missing operands, HAP204 a number in an operand's place, HAP207 a missing attribute.
    """
    tensors = {o.name: o for o in decl.tensors}
    filled: dict[str, list[nodes.Expr]] = {}
    attributes: dict[str, nodes.Expr] = {}
    for arg in call.args:
        if arg.name is not None:
            number = arg.name in decl.attributes and not is_tensor(arg.value)
            if arg.name in tensors and not number:
                if arg.name in filled or arg.name in attributes:
                    raise error("HAP227", f"operand '{arg.name}' of '{decl.name}' is given twice", arg.span)
                filled[arg.name] = [arg.value]
            elif arg.name in attributes or arg.name in filled:
                raise error("HAP218", f"attribute '{arg.name}' of '{decl.name}' is given twice", arg.span)
            elif arg.name in decl.attributes or decl.notation:
                attributes[arg.name] = arg.value
            else:
                known = ", ".join([*tensors, *decl.attributes])
                raise error("HAP218", f"'{decl.name}' has no attribute '{arg.name}'", arg.span, f"it has: {known}")
        elif is_tensor(arg.value):
            open_ = next((o for o in tensors.values() if o.variadic or o.name not in filled), None)
            if open_ is None:
                raise error(
                    "HAP227",
                    f"'{decl.name}' takes {len(tensors)} operands",
                    arg.span,
                    f"it takes: {', '.join(tensors)}",
                )
            filled.setdefault(open_.name, []).append(arg.value)
        else:
            name = next((a for a in decl.attributes if a not in attributes and a not in filled), None)
            if name is None:
                lacking = next(
                    (n for n, o in tensors.items() if n not in filled and not o.optional and o.default is None), None
                )
                if lacking is not None:
                    advice = "numbers go into attributes: shift(x, by = 1)"
                    raise error(
                        "HAP204", f"'{decl.name}' needs a tensor '{lacking}' here, not a number", arg.span, advice
                    )
                raise error("HAP227", f"this fits no operand or attribute of '{decl.name}'", arg.span, _takes(decl))
            attributes[name] = arg.value
    for operand in tensors.values():
        if operand.name not in filled and not operand.optional and operand.default is None:
            raise error("HAP227", f"'{decl.name}' needs an operand '{operand.name}'", call.span, _takes(decl))
    for name, default in decl.attributes.items():
        if name not in attributes and name not in filled and default is None:
            raise error("HAP207", f"attribute '{name}' of '{decl.name}' has no value", call.span, f"write {name} = …")
    return BoundCall([(n, e) for n in tensors for e in filled.get(n, [])], attributes)


def bind_parameters(definition: nodes.Def, call: nodes.Call) -> dict[str, nodes.Expr]:
    """The arguments of a call of a `def`, in order or by name, by parameter; what it leaves out is missing.

    Raises HapError HAP218 for one that is given twice, or that fits no parameter.
    """
    formals = [p.name for p in definition.parameters]
    found: dict[str, nodes.Expr] = {}
    in_order = iter(formals)
    for arg in call.args:
        name = arg.name or next((f for f in in_order if f not in found), None)
        if name is None or name not in formals:
            raise error(
                "HAP218",
                f"def '{definition.name}' has no parameter for this",
                arg.span,
                f"it has: {', '.join(formals) or 'none'}",
            )
        if name in found:
            raise error("HAP218", f"parameter '{name}' is given twice", arg.span)
        found[name] = arg.value
    return found


def _takes(decl: OpDecl) -> str:
    operands = [("*" if o.variadic else "") + o.name + ("?" if o.optional else "") for o in decl.tensors]
    return f"it takes: {', '.join([*operands, *decl.attributes])}"
