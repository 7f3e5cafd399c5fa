"""What `train` and `group` say: the loss, its optimizer, the norm to clip to, and parameters that are updated in another way."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hapdsl.graph import optimizer
from hapdsl.graph.drafts import Drafts
from hapdsl.graph.optimizer import Group, Optimizer
from hapdsl.graph.scope import Draft, Scope
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error
from hapdsl.theory.ops import OpDecl


class Training:
    """Reads both kinds of statements into `out`; `tensor` is the tensor of an expression in the model's scope."""

    def __init__(
        self, out: Drafts, ops: Mapping[str, OpDecl], scope: Scope, tensor: Callable[[nodes.Expr], Draft]
    ) -> None:
        self.out, self.ops, self.scope, self.tensor = out, ops, scope, tensor

    def train(self, statement: nodes.Train) -> None:
        """Raises HapError: HAP215 a second loss, HAP216 one that is no scalar, HAP233 a norm that is no number above 0, and what the optimizer's call raises."""
        if self.out.loss is not None:
            raise error("HAP215", "a model trains one loss", statement.span)
        self.out.loss = self.tensor(nodes.Name(statement.loss, span=statement.span))
        if self.out.loss.shape != ():
            raise error("HAP216", f"the loss must be a scalar, '{statement.loss}' is {list(self.out.loss.shape)}", statement.span, "take its mean")  # fmt: skip
        self.out.optimizer = self._optimizer(statement.optimizer)
        self.out.train_span = statement.span
        if statement.clip is not None:
            self.out.clip = self._limit(statement.clip)

    def groups(self, model: nodes.Model) -> None:
        """All groups, which may stand before the `train` whose optimizer they start from. Raises HapError HAP232 where there is none."""
        for statement in model.body:
            if isinstance(statement, nodes.Group):
                if self.out.optimizer is None:
                    message = "this model has a `group`, but no `train`"
                    raise error("HAP232", message, statement.span, "write: train loss with adamw(…)")
                own = self._optimizer(statement.optimizer, self.out.optimizer)
                self.out.groups.append(Group(statement.patterns, own, statement.span))

    def _optimizer(self, call: nodes.Call, base: Optimizer | None = None) -> Optimizer:
        return optimizer.read(call, self.ops, self.scope, self.tensor, self.scope.is_tensor, base)

    def _limit(self, clip: nodes.Expr) -> float:
        limit = self.scope.number(clip).value
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit > 0:
            message = f"the norm to clip to is a number above 0, this is {limit!r}"
            raise error("HAP233", message, clip.span, "clip 1.0")
        return float(limit)
