"""The reference executor: a training graph on one device, with the same kernels as programs use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

import torch
from torch import Tensor

from hapdsl.graph.training import LOADED, Node, TrainingGraph
from hapdsl.lang.diagnostics import error
from hapdsl.run.call import Call, prepare
from hapdsl.run.context import Clock, dtypes_at, whole


class Reference:
    """A training graph at work on one device, the batch as a whole. `keep` names tensors to return; None returns all of them.

    Nothing is carried from step to step: see `advance`.
    """

    def __init__(
        self,
        graph: TrainingGraph,
        dtype: torch.dtype | None = None,
        seed: int = 0,
        allow: Set[str] = frozenset(),
        keep: Iterable[str] | None = None,
        nodes: Sequence[Node] | None = None,
    ) -> None:
        graph = graph.undivided
        self.graph = graph
        self.clock = Clock(seed, 1)
        self.dtypes = dtypes_at(dtype)
        self.calls = [self._call(n, allow) for n in (graph.nodes if nodes is None else nodes)]
        kept = None if keep is None else set(keep)
        self.drops = _drops([c.node for c in self.calls], kept)
        made = {t for c in self.calls for t in c.node.outputs}
        self.loaded = list(dict.fromkeys(t for c in self.calls for t in c.node.inputs if t not in made))

    def _call(self, node: Node, allow: Set[str]) -> Call:
        instance = node.instance
        operands = [whole(g.shape) for g in instance.given]
        return prepare(node, operands, [whole(s) for s in instance.result_shapes], self.clock, self.dtypes, allow)

    def step(self, tensors: Mapping[str, Tensor], step: int = 1) -> dict[str, Tensor]:
        """All tensors of one step (those of `keep`). Raises HapError HAP706 for a missing or misshapen tensor, else as kernels do."""
        self.clock.step = step
        store = {name: self.fetch(name, tensors) for name in self.loaded}
        for call, drops in zip(self.calls, self.drops, strict=True):
            made = call([store[name] for name in call.node.inputs])
            store.update(zip(call.node.outputs, made, strict=True))
            for name in drops:
                del store[name]
        return store

    def fetch(self, name: str, tensors: Mapping[str, Tensor]) -> Tensor:
        declared = self.graph.tensors[name]
        dtype = self.dtypes[declared.dtype]
        if name not in tensors:
            if LOADED.get(declared.kind) == "seed":
                return torch.ones(declared.shape, dtype=dtype)
            raise error("HAP706", f"no value is given for '{name}'", declared.span)
        if tuple(tensors[name].shape) != declared.shape:
            raise error(
                "HAP706",
                f"'{name}' has shape {list(tensors[name].shape)}, expected {list(declared.shape)}",
                declared.span,
            )
        return tensors[name].to(dtype)


def _drops(nodes: Sequence[Node], keep: set[str] | None) -> list[tuple[str, ...]]:
    """The tensors that end behind each call."""
    drops: list[tuple[str, ...]] = []
    seen: set[str] = set() if keep is None else set(keep)
    for node in reversed(nodes):
        touched = dict.fromkeys((*node.inputs, *node.outputs))
        drops.append(() if keep is None else tuple(t for t in touched if t not in seen))
        seen.update(touched)
    return drops[::-1]


def reference(
    graph: TrainingGraph, tensors: Mapping[str, Tensor], dtype: torch.dtype | None = None, step: int = 1, seed: int = 0,
    allow: Set[str] = frozenset(),
) -> dict[str, Tensor]:  # fmt: skip
    """Every tensor of one step of the graph on one device."""
    return Reference(graph, dtype, seed, allow).step(tensors, step)


def advance(graph: TrainingGraph, tensors: Mapping[str, Tensor], made: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`tensors` for the next step: each parameter and piece of state is replaced by its new value."""
    return {**tensors, **{old: made[new] for old, new in graph.updates.items() if new in made}}
