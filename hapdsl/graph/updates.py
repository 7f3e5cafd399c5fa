"""The updates of a step: one call of its optimizer for every trained parameter.

A parameter with a master copy is updated there, in the copy's dtype, and is the copy rounded afterwards: `w.master` is state, its
gradient is `w.master.grad`, and `w.new` is `w.master.new` in the dtype of `w`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hapdsl.graph.clipping import clipped
from hapdsl.graph.drafts import Drafts
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
            raise error(
                "HAP229",
                f"the loss doesn't depend on param '{param.name}'",
                param.span,
                "declare it `frozen`, or use it",
            )
    masters = {id(p): _master(drafts, p) for p in trained if p.master is not None}
    gradients = {id(p): _cast(drafts, ops, p, gradients[id(p)], masters.get(id(p))) for p in trained}
    if drafts.clip is not None:
        gradients = clipped(drafts, ops, trained, gradients, drafts.clip, drafts.train_span)
    replaced: dict[int, Draft] = {}
    for param, optimizer in zip(trained, deal(trained, drafts.optimizer, drafts.groups), strict=True):
        master = masters.get(id(param))
        new = _update(drafts, param, master or param, gradients[id(param)], optimizer)
        if master is not None:
            rounded = emit(
                drafts, ops["cast_like"], [new[id(master)], param], {}, [f"{param.name}.new"], "update", param.name, param.repeat, param.span
            )  # fmt: skip
            new[id(param)] = rounded[0]
        replaced.update(new)
    return replaced


def _master(drafts: Drafts, param: Draft) -> Draft:
    """The copy that is updated. It starts as the parameter itself, rounding and all."""
    assert param.master is not None
    start = ("copy", {"of": param.name, "init": param.init, "dtype": param.dtype})
    made = Draft(
        f"{param.name}.master", param.shape, param.master, "state", param.symbols, start, param.span, param.repeat
    )
    drafts.tensors.append(made)
    return made


def _cast(drafts: Drafts, ops: Mapping[str, OpDecl], param: Draft, gradient: Draft, master: Draft | None) -> Draft:
    """The gradient in the dtype of the master copy: in each turn where turns are added up, else once."""
    if master is None or gradient.dtype == master.dtype:
        return gradient
    turns = drafts.microbatch is not None and drafts.microbatch.count > 1
    name, section = f"{master.name}.grad", "backward" if turns else "update"
    return emit(
        drafts, ops["cast"], [gradient], {"to": master.dtype}, [name], section, param.name, param.repeat, param.span
    )[0]


def _update(drafts: Drafts, param: Draft, target: Draft, gradient: Draft, optimizer: Optimizer) -> dict[int, Draft]:
    """The call that updates `target`: the parameter, or its master copy."""
    decl = optimizer.decl
    states = {
        o.name: Draft(
            f"{param.name}.{o.name}",
            param.shape,
            target.dtype,
            "state",
            param.symbols,
            ("zeros", {}),
            param.span,
            param.repeat,
        )
        for o in decl.states
    }
    drafts.tensors += states.values()
    own = [o.name for o in decl.operands if o.default is None and o.kind != "state"]
    given = {own[0]: target, own[1]: gradient, **optimizer.operands, **states}
    operands = [o.name for o in decl.operands if o.name in given]
    replaced = (target, *states.values())
    new = emit(
        drafts, decl, [given[n] for n in operands], optimizer.attributes, [f"{t.name}.new" for t in replaced],
        "update", param.name, param.repeat, param.span, operands,
    )  # fmt: skip
    return {id(old): made for old, made in zip(replaced, new, strict=True)}
