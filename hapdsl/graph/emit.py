"""One more call in a graph under construction."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from hapdsl.graph.drafts import Drafts
from hapdsl.graph.scope import Draft, DraftNode, Repeats
from hapdsl.lang import nodes
from hapdsl.theory.dtypes import DTYPE_BYTES
from hapdsl.theory.expressions import ARITHMETIC, evaluate
from hapdsl.theory.instance import Given
from hapdsl.theory.instantiate import instantiate
from hapdsl.theory.ops import OpDecl


def emit(
    drafts: Drafts,
    decl: OpDecl,
    inputs: list[Draft],
    attributes: Mapping[str, Any],
    names: list[str],
    section: str,
    path: str,
    repeat: Repeats,
    span: nodes.Span,
    operands: list[str] | None = None,
) -> list[Draft]:
    """Append one call. `operands` names the declared operand of each input; in order where left out."""
    if operands is None:
        variadic = decl.operands[0].variadic or not decl.operands[0].dims
        operands = [decl.operands[0].name] * len(inputs) if variadic else [o.name for o in decl.operands[: len(inputs)]]
    full = with_defaults(decl, operands, attributes, path)
    given = tuple([Given(o, t.shape, t.dtype) for o, t in zip(operands, inputs, strict=True)])
    # Layers that are alike share the instances of their calls, and what is derived from these.
    key = (id(decl), given, repr(full))
    instance = drafts.instances.get(key)
    if instance is None:
        instance = drafts.instances[key] = instantiate(decl, given, full, span)
    outputs = [
        Draft(n, shape, dtype, span=span, repeat=repeat)
        for n, shape, dtype in zip(names, instance.result_shapes, instance.result_dtypes, strict=True)
    ]
    drafts.tensors += outputs
    drafts.nodes.append(DraftNode(instance, inputs, outputs, section, path, repeat, span))
    return outputs


def with_defaults(decl: OpDecl, operands: Collection[str], attributes: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The attributes of a call and those that it leaves out; the default `path` is the call's own (the key of dropout)."""
    found = dict(attributes)
    for name, default in decl.attributes.items():
        if name not in found and name not in operands and default is not None:
            is_path = isinstance(default, nodes.Name) and default.id == "path"
            found[name] = path if is_path else evaluate(default, {d: d for d in DTYPE_BYTES}, ARITHMETIC)
    return found
