"""Functions for which the user declares an operator: `mylib::scaled_tanh` becomes a call of the op `scaled_tanh`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.fx import Node

from hapdsl.importing.atoms import Dim, size
from hapdsl.importing.build import Builder
from hapdsl.importing.constants import Constant
from hapdsl.importing.on_layout import as_value
from hapdsl.importing.on_numbers import fresh
from hapdsl.importing.values import Layout, Value
from hapdsl.lang import nodes
from hapdsl.lang.load import load
from hapdsl.theory.instance import Given
from hapdsl.theory.instantiate import instantiate
from hapdsl.theory.library import declare_all
from hapdsl.theory.ops import OpDecl


def read(path: str | Path) -> tuple[dict[str, OpDecl], list[nodes.Op]]:
    """The operators that a file (and what it imports) declares. Raises HapError as `load` and declarations do."""
    blocks = list(load(Path(path)).ops.values())
    return declare_all(blocks), blocks


def find(declared: Mapping[str, OpDecl], target: str) -> OpDecl | None:
    """The declaration for an exported function `library.name.overload`: the op `name`, or `library.name`."""
    words = target.split(".")
    if len(words) < 2:
        return None
    return declared.get(".".join(words[:2])) or declared.get(words[1])


def call(b: Builder, node: Node, decl: OpDecl, args: Any, kwargs: Any) -> Value | tuple[Value, ...]:
    """One call. Tensors fill operands and other arguments attributes, in order; the declaration's indices say which dims are tied."""
    if decl.notation:
        raise b.refuse(f"operator '{decl.name}', whose dims stand in a notation,")
    given = [a for a in args if isinstance(a, Value | Constant)]
    numbers = [a for a in args if a is not None and not isinstance(a, Value | Constant)]  # None: a tensor left out
    attributes = dict(zip(decl.attributes, numbers, strict=False)) | dict(kwargs)
    values = [b.logical(fresh(as_value(b, v))) for v in given]
    names = [o.name for o in decl.tensors]
    shapes = [Given(n, tuple(size(d) for d in v.dims), v.dtype) for n, v in zip(names, values, strict=False)]
    full = {n: getattr(e, "value", None) for n, e in decl.attributes.items()} | attributes
    instance = instantiate(decl, shapes, full, b.origin.span)
    found: dict[str, Dim] = {}
    for v, dims in zip(values, instance.operands, strict=True):
        for dim, indices in zip(v.dims, dims, strict=True):
            for index in indices if len(indices) == 1 else ():
                b.tie(found.setdefault(index, dim), dim)
    values = [b.logical(fresh(v)) for v in values]
    made: list[tuple[Layout, Layout]] = []
    for k, dims in enumerate(instance.results):
        shape = instance.result_shapes[k]
        laid = tuple(
            found[i[0]] if len(i) == 1 and i[0] in found else b.new_dim((k, d), shape[d]) for d, i in enumerate(dims)
        )
        made.append((laid, laid))
    _check(b, node, instance.result_shapes)
    if len(made) == 1:
        return b.emit(decl.name, values, *made[0], instance.result_dtypes[0], **attributes)
    return tuple(b.emit_many(decl.name, values, made, tuple(r.name for r in decl.results), **attributes))


def _check(b: Builder, node: Node, shapes: tuple[tuple[int, ...], ...]) -> None:
    """The declaration and the function must agree on what comes out."""
    found = node.meta.get("val")
    wanted = [
        tuple(t.shape) for t in (found if isinstance(found, tuple | list) else [found]) if isinstance(t, torch.Tensor)
    ]
    if wanted != [tuple(s) for s in shapes]:
        raise b.refuse(
            f"{node.target}, which makes {wanted} where its declaration says {[list(s) for s in shapes]},",
            "mend the op's dims",
        )
