"""The updates of a step: one call of its optimizer for every trained parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hapdsl.graph.clipping import clipped
from hapdsl.graph.elaborate import Drafts
from hapdsl.graph.emit import emit
from hapdsl.graph.optimizer import Optimizer, deal
from hapdsl.graph.scope import Draft
from hapdsl.lang.diagnostics import error
from hapdsl.theory.ops import OpDecl


def updates(
    drafts: Drafts, ops: Mapping[str, OpDecl], trained: Sequence[Draft], gradients: Mapping[int, Draft]
) -> dict[int, Draft]:
    """Append the updates, in the order of declaration; returns new values by id of the old ones.

    Raises HapError: HAP229 a parameter that the loss doesn't depend on, HAP231 a group of nothing.
    """
    assert drafts.optimizer is not None
    for param in trained:
        if id(param) not in gradients:
            raise error("HAP229", f"the loss doesn't depend on param '{param.name}'", param.span, "declare it `frozen`, or use it")
    if drafts.clip is not None:
        gradients = clipped(drafts, ops, trained, gradients, drafts.clip, drafts.train_span)
    replaced: dict[int, Draft] = {}
    for param, optimizer in zip(trained, deal(trained, drafts.optimizer, drafts.groups), strict=True):
        replaced.update(_update(drafts, param, gradients[id(param)], optimizer))
    return replaced


def _update(drafts: Drafts, param: Draft, gradient: Draft, optimizer: Optimizer) -> dict[int, Draft]:
    decl = optimizer.decl
    states = {
        o.name: Draft(f"{param.name}.{o.name}", param.shape, param.dtype, "state", param.symbols, ("zeros", {}), param.span, param.repeat)
        for o in decl.states
    }
    drafts.tensors += states.values()
    own = [o.name for o in decl.operands if o.default is None and o.kind != "state"]
    given = {own[0]: param, own[1]: gradient, **optimizer.operands, **states}
    operands = [o.name for o in decl.operands if o.name in given]
    replaced = (param, *states.values())
    new = emit(
        drafts, {decl.name: decl}, decl.name, [given[n] for n in operands], optimizer.attributes, [f"{t.name}.new" for t in replaced],
        "update", param.name, param.repeat, param.span, operands,
    )  # fmt: skip
    return {id(old): made for old, made in zip(replaced, new, strict=True)}
