"""What is known of a model while its graph is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hapdsl.graph.optimizer import Group, Optimizer
from hapdsl.graph.scope import Draft, DraftNode, Scope
from hapdsl.lang.nodes import NOWHERE, Span
from hapdsl.theory.instance import Instance


@dataclass
class Turns:
    """A `microbatch` block: how many turns, and the calls (by id) that stand in it."""

    count: int
    span: Span
    nodes: set[int] = field(default_factory=set)


@dataclass
class Drafts:
    """The forward pass: tensors and calls in order, and what the model says about them."""

    tensors: list[Draft] = field(default_factory=list)
    stopped: list[Draft] = field(default_factory=list)  # (`stop`) they are no tensors of their own
    nodes: list[DraftNode] = field(default_factory=list)
    aliases: dict[str, Draft] = field(default_factory=dict)
    repeats: dict[str, int] = field(default_factory=dict)
    outputs: list[Draft] = field(default_factory=list)
    metrics: list[Draft] = field(default_factory=list)
    microbatch: Turns | None = None
    renewed: dict[int, Draft] = field(default_factory=dict)  # values of buffers after the step, by id of the buffer
    loss: Draft | None = None
    optimizer: Optimizer | None = None
    groups: list[Group] = field(default_factory=list)
    clip: float | None = None  # the largest norm of all gradients together
    train_span: Span = NOWHERE
    parameters: dict[str, Any] = field(default_factory=dict)
    # By declaration, operands and attributes.
    instances: dict[tuple[object, ...], Instance] = field(default_factory=dict)

    def stop(self, tensor: Draft, name: str, scope: Scope, span: Span) -> Draft:
        """`tensor` as it is read where no gradient passes to it. Nothing makes it, so differentiation goes no further."""
        source = tensor.stops or tensor
        made = Draft(name, tensor.shape, tensor.dtype, span=span, repeat=scope.repeat, stops=source, home=scope)
        self.stopped.append(made)
        return made

    def join(self) -> None:
        """Once all gradients are known: who reads a stopped tensor reads the tensor that it is, and its name is another one of that."""

        def whole(tensor: Draft) -> Draft:
            return tensor.stops or tensor

        if not self.stopped:
            return
        for node in self.nodes:
            node.inputs = [whole(t) for t in node.inputs]
        self.outputs, self.metrics = [whole(t) for t in self.outputs], [whole(t) for t in self.metrics]
        self.loss = whole(self.loss) if self.loss is not None else None
        self.aliases |= {t.name: t for t in self.stopped}
        self.aliases = {alias: whole(t) for alias, t in self.aliases.items()}
