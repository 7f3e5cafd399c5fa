"""The training graph: every tensor and every operator call of one step on one device."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hapdsl.lang.nodes import NOWHERE, Span
from hapdsl.theory.dtypes import DTYPE_BYTES
from hapdsl.theory.instance import Instance
from hapdsl.theory.rules import Rule, rules

# Kinds of tensors that no operator makes; they are loaded in any placement.
LOADED = {"input": "input", "param": "param", "frozen": "param", "buffer": "param", "state": "state", "seed": "seed"}
SECTIONS = ("forward", "backward", "update")
TURN = ("forward", "backward")  # what is done in every turn of a batch
# Sums over turns are a section of the graph between the turns and the updates, so that what they feed is exchanged together, as
# gradients are; programs have them in `update`.
SUMS = "accumulate"


@dataclass(frozen=True)
class Tensor:
    """A named value of the single-device training graph.

    kind is input, param, frozen, buffer, state (optimizer state), seed (`loss.grad`) or value.
    `classes` has one entry per dim: the dimension class it belongs to, or None for a dim that stays
    whole (extent 1). `init` is the initialiser (name, attributes) of what is kept from step to step.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str = "value"
    classes: tuple[str | None, ...] = ()
    init: tuple[str, Mapping[str, Any]] | None = None
    span: Span = NOWHERE

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class Node:
    """One operator call: `outputs = instance.decl.name(inputs)`.

    `section` is forward, backward, update or SUMS; `path` is where the model's text called it (the key of
    dropout), `repeat` the repeats it stands in: ("layer", 3) for turn 3.
    """

    instance: Instance
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    section: str
    path: str
    repeat: tuple[tuple[str, int], ...] = ()
    span: Span = NOWHERE
    turned: tuple[str, int] | None = None  # the index that is taken in so many turns

    @property
    def op(self) -> str:
        return self.instance.decl.name

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """All rules of this call on one mesh axis, the replicated one first."""
        return rules(self.instance)


@dataclass(frozen=True)
class DimensionClass:
    """Dims that are cut alike, in `units` indivisible units. `members` are (tensor, dim)."""

    name: str
    units: int
    members: tuple[tuple[str, int], ...]


@dataclass
class TrainingGraph:
    """One training (or evaluation) step of one model.

    `nodes` are in execution order. `updates` maps each trainable param and each piece of optimizer
    state to the tensor that replaces it at the end of the step (`w` to `w.new`, `w.m` to `w.m.new`).
    `aliases` maps names that a model gives to tensors of another name (`u.grad` to `a.grad` where the gradient
    passes unchanged). `repeats` maps a repeat's path to its number of turns.

    With `turns` above 1 the batch is taken in turns: forward and backward are those of one turn, done so many times, and
    `update` is done once. `turned` maps a tensor to its dim that is shorter in a turn; `sources` maps an input that has another
    name here (`label.whole`) to the model's; `whole` is the same step with the batch as a whole.
    """

    model: str
    parameters: Mapping[str, Any]
    tensors: dict[str, Tensor]
    nodes: list[Node]
    classes: dict[str, DimensionClass]
    loss: str | None
    outputs: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    updates: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    repeats: dict[str, int] = field(default_factory=dict)
    ops: frozenset[str] = frozenset()
    turns: int = 1
    turned: dict[str, int] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    whole: TrainingGraph | None = field(default=None, repr=False)

    @property
    def undivided(self) -> TrainingGraph:
        """The step with the batch as a whole."""
        return self.whole or self

    @cached_property
    def batch(self) -> str | None:
        """The class of the first dim of the first input that can be cut: the batch. None where there is none."""
        for tensor in self.of_kind("input"):
            if tensor.classes and tensor.classes[0] is not None and self.classes[tensor.classes[0]].units > 1:
                return tensor.classes[0]
        return None

    @property
    def batch_size(self) -> int | None:
        """Samples a step: the length of the batch's dim."""
        dims = [
            t.shape[0]
            for t in self.of_kind("input")
            if t.classes and t.classes[0] is not None and t.classes[0] == self.batch
        ]
        return dims[0] if dims else None

    def times(self, section: str) -> int:
        """How often a section is done in a step."""
        return self.turns if section in TURN else 1

    def resolve(self, name: str) -> str:
        """The tensor that a name stands for, through aliases."""
        return self.aliases.get(name, name)

    @cached_property
    def handed(self) -> dict[str, list[tuple[str, str]]]:
        """What repeats find or leave under other names: by turn ("layer.0." and, behind the last of twelve, "layer.12.") the tensor and what
        the turn calls it."""
        found: dict[str, list[tuple[str, str]]] = {
            f"{path}.{n}.": [] for path, count in self.repeats.items() for n in (0, count)
        }
        for alias, tensor in self.aliases.items():
            words = alias.split(".")
            for k in range(2, len(words)):
                turn = ".".join(words[:k]) + "."
                if turn in found:
                    found[turn].append((tensor, ".".join(words[k:])))
        return found

    def of_kind(self, *kinds: str) -> Iterator[Tensor]:
        return (t for t in self.tensors.values() if t.kind in kinds)

    @cached_property
    def producer(self) -> dict[str, int]:
        """The number of the node that makes each tensor; loaded tensors have none."""
        return {name: k for k, node in enumerate(self.nodes) for name in node.outputs}

    @cached_property
    def readers(self) -> dict[str, tuple[int, ...]]:
        """The numbers of the nodes that read each tensor, in order."""
        found: dict[str, list[int]] = {name: [] for name in self.tensors}
        for k, node in enumerate(self.nodes):
            for name in dict.fromkeys(node.inputs):
                found[name].append(k)
        return {name: tuple(ks) for name, ks in found.items()}

    def shardable(self, tensor: str) -> tuple[int, ...]:
        """The dims of a tensor that may be sharded: longer than 1, in a class of more than one unit."""
        t = self.tensors[tensor]
        return tuple(d for d, c in enumerate(t.classes) if c is not None and self.classes[c].units > 1)

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits that two graphs share only if they compute the same, name by name, and have the same classes."""
        digest = hashlib.sha256()
        for t in self.tensors.values():
            digest.update(f"{t.name}:{t.dtype}{list(t.shape)}:{t.kind}:{t.init}\n".encode())
        for n in self.nodes:
            attributes = sorted((k, str(v)) for k, v in n.instance.attributes.items())
            operands = [g.operand for g in n.instance.given]
            digest.update(f"{n.outputs}={n.op}({n.instance.decl.torch}){n.inputs}{operands}{attributes}\n".encode())
        for c in self.classes.values():
            digest.update(f"{c}\n".encode())
        digest.update(f"{self.loss}{self.outputs}{self.metrics}{sorted(self.updates.items())}".encode())
        if self.turns > 1:
            digest.update(f"{self.turns}{sorted(self.turned.items())}{sorted(self.sources.items())}".encode())
        return digest.hexdigest()[:16]
