"""What is known of a model while its graph is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hapdsl.graph.optimizer import Group, Optimizer
from hapdsl.graph.scope import Draft, DraftNode
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
