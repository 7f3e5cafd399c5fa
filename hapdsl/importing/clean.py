"""What an exported graph says in several steps and the theory in one: recognised before translation.

Each composite is a pattern of exported operators; it becomes one call that a handler of the same name translates. What computes
nothing (a cast to the dtype at hand, dropout with probability 0) is taken away first, so that patterns needn't mention it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

SKIPPED = {
    "aten.alias.default", "aten.contiguous.default", "aten.lift_fresh_copy.default", "aten.positive.default",
}  # fmt: skip
CASTS = {
    "aten.to.dtype",
    "aten.to.dtype_layout",
    "aten.to.device",
    "aten._to_copy.default",
    "aten.to.other",
    "aten.float.default",
}
COMMUTES = {"aten.add.Tensor", "aten.mul.Tensor"}


def clean(graph: Graph) -> None:
    """Take away what computes nothing, and put one call in the place of each composite. Cost: linear in nodes, per pattern."""
    for node in list(graph.nodes):
        if node.target is torch.ops.aten.detach_.default:
            _detached(node)
        if node.op == "call_function" and _is_nothing(node):
            source = node.all_input_nodes[0] if node.all_input_nodes else None
            if source is not None and node.users:
                node.replace_all_uses_with(source)
            graph.erase_node(node)
    for node in list(graph.nodes):
        if str(node.target) == "aten.cat.default":
            _without_empty(node)
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        for name, pattern, arguments in COMPOSITES:
            found: dict[str, Any] = {}
            given = arguments(found) if _match(pattern, node, found) else None
            if given is not None:
                with graph.inserting_before(node):
                    made = graph.call_function(Composite(name), given)
                made.meta = dict(node.meta)
                node.replace_all_uses_with(made)
                break
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users and not changes(node):
            graph.erase_node(node)


def _detached(node: Node) -> None:
    """In place it changes no number: who reads the tensor from here on reads it without a gradient."""
    node.target = torch.ops.aten.detach.default
    changed, order = node.all_input_nodes[0], {n: k for k, n in enumerate(node.graph.nodes)}
    changed.replace_all_uses_with(node, lambda user: order[user] > order[node])


def _without_empty(node: Node) -> None:
    """Leave out of a join what has no elements: the part of a head that isn't turned, where all of it is."""
    joined: Any = node.args[0]
    kept = [n for n in joined if n.meta["val"].numel()]
    if len(kept) == 1:
        node.replace_all_uses_with(kept[0])
    elif len(kept) < len(joined):
        node.args = (kept, *node.args[1:])


class Composite:
    """The target of a recognised call; `str` gives the name under which its handler stands."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.__module__ = "hapdsl.importing.clean"

    def __str__(self) -> str:
        return f"hapdsl.{self.__name__}"

    def __call__(self, *args: Any) -> Any:
        raise NotImplementedError(f"{self} is translated, not run")


def changes(node: Node) -> bool:
    """Does a node change its operand in place?"""
    name = str(node.target).split(".")
    return len(name) > 2 and name[1].endswith("_") and not name[1].endswith("__")


def _is_nothing(node: Node) -> bool:
    name = str(node.target)
    if name.startswith(("aten._assert", "aten.sym_constrain")):
        return True
    if name in SKIPPED:
        return True
    if name in CASTS and node.all_input_nodes:
        before, after = node.all_input_nodes[0].meta.get("val"), node.meta.get("val")
        return isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor) and before.dtype == after.dtype
    return name == "aten.dropout.default" and bool(node.args[1] == 0 or node.args[2:3] == (False,))


# -- patterns ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Any_:
    """Matches anything, the same thing wherever the name stands."""

    name: str


@dataclass(frozen=True)
class Near:
    """Matches a number close to this one."""

    value: float


@dataclass(frozen=True)
class Call:
    op: str
    args: tuple[Any, ...]


def call(op: str, *args: Any) -> Call:
    return Call(f"aten.{op}", args)


def _match(pattern: Any, value: Any, found: dict[str, Any]) -> bool:
    match pattern:
        case Any_(name=name):
            return found.setdefault(name, value) is value or found[name] == value
        case Near(value=number):
            return isinstance(value, int | float) and abs(value - number) < 1e-4 * max(1.0, abs(number))
        case Call(op=op, args=args):
            if not isinstance(value, Node) or str(value.target) != op or value.kwargs:  # such as the factor `alpha`
                return False
            for order in _orders(op, args):
                attempt = dict(found)
                if len(value.args) >= len(order) and all(
                    _match(p, v, attempt) for p, v in zip(order, value.args, strict=False)
                ):
                    found.update(attempt)
                    return True
            return False
        case list():
            return isinstance(value, list | tuple) and len(value) == len(pattern) and all(_match(p, v, found) for p, v in zip(pattern, value, strict=True))  # fmt: skip
    return bool(pattern == value)


def _orders(op: str, args: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield args
    if op in COMMUTES:
        yield (args[1], args[0], *args[2:])


def _rms() -> Call:
    x = Any_("x")
    square = call("mean.dim", call("pow.Tensor_Scalar", x, 2), [-1], True)
    return call("mul.Tensor", x, call("rsqrt.default", call("add.Tensor", square, Any_("eps"))))


def _gelu_tanh() -> Call:
    x = Any_("x")
    cubic = call("add.Tensor", x, call("mul.Tensor", call("pow.Tensor_Scalar", x, 3.0), Near(0.044715)))
    inner = call("add.Tensor", call("tanh.default", call("mul.Tensor", cubic, Near(0.7978845608))), Near(1.0))
    return call("mul.Tensor", call("mul.Tensor", x, Near(0.5)), inner)


def _rotary() -> Call:
    x = Any_("x")
    lower = call("slice.Tensor", x, Any_("dim"), 0, Any_("half"))
    upper = call("slice.Tensor", x, Any_("dim"), Any_("half"), Any_("end"))
    turned = call("cat.default", [call("neg.default", upper), lower], -1)
    return call("add.Tensor", call("mul.Tensor", x, Any_("cos")), call("mul.Tensor", turned, Any_("sin")))


def _of_norm(found: dict[str, Any]) -> tuple[Any, ...] | None:
    """A norm's weight is a vector as wide as what it scales, its eps a number."""
    x, weight, eps = found["x"], found["weight"], found["eps"]
    shape = tuple(weight.meta["val"].shape) if isinstance(weight, Node) else ()
    return (x, weight, eps) if shape == tuple(x.meta["val"].shape[-1:]) and isinstance(eps, int | float) else None


def _of_rotary(found: dict[str, Any]) -> tuple[Any, ...] | None:
    """Both halves are turned, or it is another function."""
    x = found["x"]
    return (x, found["cos"], found["sin"]) if 2 * found["half"] == x.meta["val"].shape[-1] else None


Arguments = Callable[[dict[str, Any]], tuple[Any, ...] | None]  # of what a pattern has found; None where that won't do
# The outermost first: a pattern that holds another one stands before it.
COMPOSITES: tuple[tuple[str, Call, Arguments], ...] = (
    ("rms_norm", call("mul.Tensor", Any_("weight"), _rms()), _of_norm),
    ("gelu_tanh", _gelu_tanh(), lambda f: (f["x"],)),
    ("rotary", _rotary(), _of_rotary),
)
