"""Calls of operators, written down briefly."""

from __future__ import annotations

from typing import Any

from hapdsl.lang import nodes
from hapdsl.lang.parse import parse
from hapdsl.theory.instance import Given, Instance
from hapdsl.theory.instantiate import instantiate
from hapdsl.theory.library import declare_all, standard
from hapdsl.theory.ops import OpDecl
from hapdsl.theory.rules import rules


def declared(text: str) -> OpDecl:
    """The one operator of a text."""
    (decl,) = declare_all(item for item in parse(text).items if isinstance(item, nodes.Op)).values()
    return decl


def call(op: str | OpDecl, *shapes: tuple[int, ...] | tuple[tuple[int, ...], str], **attributes: Any) -> Instance:
    """`op` on operands of these shapes, in declared order; a shape may be (shape, dtype), f32 else."""
    decl = standard()[op] if isinstance(op, str) else op
    names: list[str] = []
    for operand in decl.operands:
        many = operand.variadic
        names += [operand.name] * (len(shapes) - len(decl.operands) + 1 if many else 1)
    defaults = {n: e.value for n, e in decl.attributes.items() if isinstance(e, nodes.Number | nodes.Bool | nodes.Text)}
    given = []
    for name, shape in zip(names, shapes, strict=False):  # optional operands may be left out
        plain, dtype = shape if shape and isinstance(shape[0], tuple) else (shape, "f32")
        given.append(Given(name, tuple(plain), str(dtype)))
    return instantiate(decl, given, {**defaults, **attributes})


def shown(instance: Instance) -> set[str]:
    """All rules but the replicated one, as `S(0),R->S(0)`."""
    found = rules(instance)
    assert all(p.kind == "R" for p in (*found[0].inputs, *found[0].outputs))
    assert len(set(found)) == len(found)
    return {",".join(map(str, r.inputs)) + "->" + ",".join(map(str, r.outputs)) for r in found[1:]}
