"""What an exported graph computes from nothing that trains: positions, masks, tables. It is computed once, at import, where asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses import FakeTensor
from torch.fx import Node

from hapdsl.importing.atoms import Dim
from hapdsl.importing.trace import Traced

# A tensor of one number, in a shape that another has or that is given: nothing of its content is read.
FILLS = {"zeros": 0, "ones": 1, "empty": 0, "full": None}
SHAPED = tuple(
    f"aten.{n}.default"
    for n in ("new_zeros", "new_ones", "new_full", "new_empty", "zeros_like", "ones_like", "full_like")
)


class NoValue(Exception):
    """A buffer is on the meta device; the text is its name."""


class Constants:
    """The nodes of a graph that depend on buffers and numbers alone."""

    def __init__(self, traced: Traced) -> None:
        self.traced = traced
        self.known: dict[Node, bool] = {}
        self.values: dict[Node, Any] = {}

    def has(self, node: Node) -> bool:
        if node not in self.known:
            if node.op == "placeholder":
                self.known[node] = self.traced.names.get(node.name, ("", ""))[0] == "buffer"
            else:
                folds = node.op == "call_function" and not _changes_each_time(node)
                self.known[node] = folds and all(self.has(n) for n in node.all_input_nodes)
        return self.known[node]

    def value(self, node: Node) -> Any:
        """The node's value. Raises NoValue where a buffer is on the meta device."""
        if node not in self.values:
            with torch.no_grad():
                self.values[node] = self._evaluate(node)
        return self.values[node]

    def _evaluate(self, node: Node) -> Any:
        if node.op == "placeholder":
            found = self.traced.held[self.traced.names[node.name][1]]
            if found.is_meta or isinstance(found, FakeTensor):
                raise NoValue(self.traced.names[node.name][1])
            return found.detach().clone()
        if str(node.target) in SHAPED:
            shape, word = node.meta["val"], str(node.target).split(".")[1].removeprefix("new_").removesuffix("_like")
            fill = node.args[-1] if word == "full" else FILLS[word]
            return torch.full(shape.shape, fill, dtype=shape.dtype)  # type: ignore[arg-type]
        args = torch.fx.node.map_arg(node.args, self.value)
        kwargs = dict(torch.fx.node.map_arg(node.kwargs, self.value))
        if "device" in kwargs:
            kwargs["device"] = "cpu"
        args = tuple(torch.device("cpu") if isinstance(a, torch.device) else a for a in args)
        if str(node.target) == "aten.view.default":  # traced over tensors that lay otherwise in memory
            return torch.reshape(*args)  # type: ignore[arg-type]
        assert callable(node.target)
        return node.target(*args, **kwargs)


def _changes_each_time(node: Node) -> bool:
    """Is what a node makes of constants none: drawn anew in each step, or statistics that a step changes?"""
    drawn = isinstance(node.target, OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags
    return drawn or str(node.target) == "aten.batch_norm.default"


@dataclass
class Constant:
    """A constant tensor; `dims` are its dims by their atoms, tied by who reads it."""

    table: Constants
    node: Node
    dims: tuple[Dim, ...]

    @property
    def tensor(self) -> Tensor:
        found: Tensor = self.table.value(self.node)
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.node.meta["val"].shape)

    def number(self) -> float | int | bool | None:
        """The one number it holds everywhere, else None."""
        first = self.tensor.reshape(-1)[:1]
        if first.numel() == 0 or not bool((self.tensor == first).all()):
            return None
        found: float | int | bool = first.item()
        return found

    def positions(self) -> tuple[int, int] | None:
        """(start, axis) where it counts start, start + 1, … along one axis and is equal along the others."""
        t = self.tensor
        for axis, n in enumerate(t.shape):
            first = int(t.reshape(-1)[0])
            wanted = torch.arange(first, first + n).reshape([-1] + [1] * (t.dim() - 1 - axis))
            if n > 1 and bool((t == wanted).all()):
                return first, axis
        return None

    def is_everything(self) -> bool:
        """A mask that masks nothing."""
        t = self.tensor
        return bool(t.all()) if t.dtype == torch.bool else bool((t == 0).all())

    def is_causal(self) -> bool:
        """A mask under which a row sees the columns up to its own."""
        return is_causal(self.tensor)


def is_causal(t: Tensor) -> bool:
    """Does a mask (true, or 0, where something is seen) let each row see the columns up to its own?"""
    if t.dim() < 2 or t.shape[-1] != t.shape[-2]:
        return False
    seen = torch.ones(t.shape[-2:], dtype=torch.bool).tril()
    if t.dtype == torch.bool:
        return bool((t == seen).all())
    return bool((t[..., seen] == 0).all()) and bool((t[..., ~seen] <= torch.finfo(t.dtype).min / 2).all())
