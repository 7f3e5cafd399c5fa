"""Clipping by the global norm: the root of the sum of squares of all gradients, and what they are multiplied by.

The sum of squares of a gradient cut on some dim is partial sums; they are added up as such, and only the total is reduced: one
scalar. The running total goes through a repeat as a carried tensor does: turn 3 of `layer` finds `layer.3.grad.squares.layer`, and
`grad.squares.layer` is what the last turn leaves, so that equal turns read alike. `grad.norm` is the norm before clipping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from hapdsl.graph.drafts import Drafts
from hapdsl.graph.emit import emit
from hapdsl.graph.scope import Draft, Repeats
from hapdsl.lang.nodes import Span
from hapdsl.theory.ops import OpDecl


def clipped(
    drafts: Drafts,
    ops: Mapping[str, OpDecl],
    trained: Sequence[Draft],
    gradients: Mapping[int, Draft],
    limit: float,
    span: Span,
) -> dict[int, Draft]:
    """The gradients (by id of their parameter) times min(1, limit / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ has it."""
    total = _Norm(drafts, ops, gradients, span).over(trained, 0, None)
    assert total is not None
    norm = _call(drafts, ops, "sqrt", [total], {}, "grad.norm", (), span)
    factor = _call(drafts, ops, "clip_factor", [norm], {"limit": limit}, "grad.factor", (), span)
    drafts.metrics.append(norm)
    return {
        id(p): _call(drafts, ops, "clip", [gradients[id(p)], factor], {}, f"{p.name}.grad.clipped", p.repeat, span)
        for p in trained
    }


def _call(
    drafts: Drafts, ops: Mapping[str, OpDecl], op: str, inputs: list[Draft], attributes: Mapping[str, Any], name: str,
    repeat: Repeats, span: Span,
) -> Draft:  # fmt: skip
    return emit(drafts, ops[op], inputs, attributes, [name], "update", name, repeat, span)[0]


class _Norm:
    """The sum of squares, parameter by parameter."""

    def __init__(self, drafts: Drafts, ops: Mapping[str, OpDecl], gradients: Mapping[int, Draft], span: Span) -> None:
        self.drafts, self.ops, self.gradients, self.span = drafts, ops, gradients, span
        # What all are added up in.
        self.to = "f64" if any(g.dtype == "f64" for g in gradients.values()) else "f32"

    def over(
        self, params: Sequence[Draft], depth: int, total: Draft | None, name: str = "grad.squares"
    ) -> Draft | None:
        """The total after `params`, which stand in the same `depth` outer turns; the last sum of it is called `name`.

        Those that stand in no further repeat come first.
        """
        outside = [p for p in params if len(p.repeat) == depth]
        inside = [p for p in params if len(p.repeat) > depth]
        runs = [(path, list(own)) for path, own in groupby(inside, key=lambda p: p.repeat[depth][0])]
        for k, param in enumerate(outside):
            last = k == len(outside) - 1 and not runs
            total = self.add(total, param, name if last else f"{param.name}.grad.squares.sum")
        for k, (path, own) in enumerate(runs):
            total = self.turns(path, own, depth, total, name if k == len(runs) - 1 else None)
        return total

    def turns(
        self, path: str, params: Sequence[Draft], depth: int, total: Draft | None, name: str | None
    ) -> Draft | None:
        outer, _, variable = path.rpartition(".")
        carried = f"grad.squares.{variable}"
        after = f"{outer}.{carried}" if outer else carried
        # Only the repeat goes on with it.
        if total is not None and len(total.repeat) == depth and total.name.endswith(".squares.sum"):
            total.name = f"{path}.0.{carried}"
        elif total is not None:
            self.drafts.aliases[f"{path}.0.{carried}"] = total
        turns = [(turn, list(own)) for turn, own in groupby(params, key=lambda p: p.repeat[depth][1])]
        for k, (turn, own) in enumerate(turns):
            last = k == len(turns) - 1
            total = self.over(own, depth + 1, total, after if last else f"{path}.{turn + 1}.{carried}")
        if turns and total is not None:
            self.drafts.aliases[f"{path}.{turns[-1][0] + 1}.{carried}"] = total
        if name is not None and total is not None:
            self.drafts.aliases[name] = total
        return total

    def add(self, total: Draft | None, param: Draft, name: str) -> Draft:
        gradient = self.gradients[id(param)]
        own = name if total is None else f"{param.name}.grad.squares"
        squares = _call(self.drafts, self.ops, "sum_squares", [gradient], {"to": self.to}, own, param.repeat, self.span)
        if total is None:
            return squares
        return _call(self.drafts, self.ops, "add", [total, squares], {}, name, param.repeat, self.span)
