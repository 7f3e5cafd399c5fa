"""Text to training graph: elaborate the model, differentiate it, find its dimension classes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hapdsl.graph.autodiff import differentiate
from hapdsl.graph.classes import classes
from hapdsl.graph.drafts import Drafts
from hapdsl.graph.elaborate import elaborate
from hapdsl.graph.scope import Draft
from hapdsl.graph.size import shown
from hapdsl.graph.training import Node, Tensor, TrainingGraph
from hapdsl.graph.turns import Turned, divide
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error
from hapdsl.theory.library import declare_all, standard
from hapdsl.theory.ops import OpDecl

MOST = 2**53  # elements of one tensor: bytes of many of them still add up in 64 bits, and floats count them exactly


def operators(declared: Mapping[str, nodes.Op]) -> dict[str, OpDecl]:
    """The standard theory and a file's own operators. A file may not redeclare a standard one (HAP316)."""
    known = standard()
    for name, op in declared.items():
        if name in known:
            raise error(
                "HAP316", f"operator '{name}' is part of the standard theory", op.span, "give yours another name"
            )
    return {**known, **declare_all(declared.values())}


def build(
    model: nodes.Model,
    defs: Mapping[str, nodes.Def],
    ops: Mapping[str, OpDecl],
    settings: Mapping[str, Any] | None = None,
    train: bool = True,
) -> TrainingGraph:
    """The training graph of `model` with parameters overridden by `settings`.

    `train = False` stops after the forward pass (evaluation), and so does a model that trains nothing: what the declarations put in
    the place of operators there, such as dropout, is used. Raises HapError (HAP2xx, HAP3xx).
    """
    trains = train and any(isinstance(s, nodes.Train) for s in model.body)
    drafts = elaborate(model, defs, ops, settings or {}, trains)
    updates: dict[int, Draft] = {}
    if drafts.loss is not None and train:
        updates = {**differentiate(drafts, ops), **drafts.renewed}
    elif drafts.loss is None and not drafts.outputs and not drafts.metrics:
        raise error("HAP230", f"model '{model.name}' trains nothing and has no output", model.span, "add `train loss with …` or `output …`")  # fmt: skip
    drafts.join()
    graph = _finish(model, drafts, updates, ops)
    if drafts.microbatch is None or drafts.microbatch.count == 1 or not updates:
        return graph
    turned = divide(drafts, ops, updates, graph)
    return _finish(model, drafts, updates, ops, turned, graph)


def _finish(
    model: nodes.Model,
    drafts: Drafts,
    updates: Mapping[int, Draft],
    ops: Mapping[str, OpDecl],
    turned: Turned | None = None,
    whole: TrainingGraph | None = None,
) -> TrainingGraph:
    turned = turned or Turned(1)
    live = _live(drafts, updates)
    drafts.nodes = [n for n in drafts.nodes if any(id(t) in live for t in n.outputs)]
    made = {id(t) for n in drafts.nodes for t in n.outputs}
    drafts.tensors = [t for t in drafts.tensors if t.kind != "value" or id(t) in made]
    olds = {id(t): t for t in drafts.tensors}
    found = classes(
        drafts.tensors, drafts.nodes, drafts.repeats, drafts.parameters, [(olds[k], new) for k, new in updates.items()]
    )
    of = {member: cls.name for cls in found.values() for member in cls.members}
    tensors: dict[str, Tensor] = {}
    for draft in drafts.tensors:
        if draft.name in tensors:
            raise error(
                "HAP214", f"two tensors are called '{draft.name}'", draft.span, "rename one, or the `def` it stands in"
            )
        own = tuple(of.get((draft.name, d)) for d in range(len(draft.shape)))
        if (elements := math.prod(draft.shape)) > MOST:
            raise error(
                "HAP236",
                f"'{draft.name}' would have {shown(elements)} elements",
                draft.span,
                "lower the model's sizes",
            )
        tensors[draft.name] = Tensor(draft.name, draft.shape, draft.dtype, draft.kind, own, draft.init, draft.span)
    names = {id(t): t.name for t in drafts.tensors}
    return TrainingGraph(
        model=model.name,
        parameters=dict(drafts.parameters),
        tensors=tensors,
        nodes=[
            Node(
                n.instance,
                tuple(t.name for t in n.inputs),
                tuple(t.name for t in n.outputs),
                n.section,
                n.path,
                n.repeat,
                n.span,
                (turned.indices[id(n)], turned.count) if id(n) in turned.indices else None,
            )
            for n in drafts.nodes
        ],
        classes=found,
        loss=drafts.loss.name if drafts.loss is not None else None,
        outputs=tuple(dict.fromkeys(t.name for t in drafts.outputs)),
        metrics=tuple(dict.fromkeys(t.name for t in drafts.metrics)),
        updates={names[old]: new.name for old, new in updates.items()},
        aliases={alias: t.name for alias, t in drafts.aliases.items() if id(t) in names and alias not in tensors},
        repeats=dict(drafts.repeats),
        ops=frozenset(ops),
        turns=turned.count,
        turned={t.name: turned.dims[id(t)] for t in drafts.tensors if id(t) in turned.dims},
        sources=turned.sources,
        whole=whole,
    )


def _live(drafts: Drafts, updates: Mapping[int, Draft]) -> set[int]:
    """Ids of the tensors that the loss, an output or an update depends on; the rest is never computed."""
    wanted = {id(t) for t in (*drafts.outputs, *drafts.metrics, *updates.values())}
    if drafts.loss is not None:
        wanted.add(id(drafts.loss))
    for node in reversed(drafts.nodes):
        if any(id(t) in wanted for t in node.outputs):
            wanted.update(id(t) for t in node.inputs)
    return wanted
