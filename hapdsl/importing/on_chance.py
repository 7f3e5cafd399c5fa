"""What is drawn anew in each step: masks of one number a sample (stochastic depth, DropPath) or one an element, on their way to a product.

A mask is no tensor of the text: what it is multiplied with becomes `drop_path` or `dropout`, whose masks depend on the step and on global
numbers alone, so that all devices draw the same. Expected are masks that keep with probability q and, then or before, a division by q.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import Node

from hapdsl.importing.atoms import size
from hapdsl.importing.build import Builder
from hapdsl.importing.handlers import handles
from hapdsl.importing.on_layout import shape_of
from hapdsl.importing.on_numbers import fresh, number, scaled
from hapdsl.importing.values import Followed, Value

HELP = "nn.Dropout, torchvision's StochasticDepth and timm's DropPath can be; or set their probability to 0"

NOISE = "draw it outside and take it as an argument, with a row a sample: forward(self, x, noise)"


@dataclass(frozen=True)
class Chance(Followed):
    """Random numbers of a shape. `what`: uniform (in [0, 1), shifted by `by`), kept (1 with probability `by`, else 0, times `times`)."""

    what: str
    shape: tuple[int, ...]
    by: float = 0.0
    times: float = 1.0

    def follow(self, builder: Builder, node: Node, name: str, args: Any, kwargs: Any) -> Any:
        """What becomes of random numbers. Raises HapError HAP877 for anything but a mask."""
        step = STEPS.get(name)
        found = step(builder, *args) if step is not None and not kwargs else None
        if found is None:
            raise builder.refuse(f"{name} of random numbers", HELP)
        return found


@handles("aten.bernoulli.float", "aten.bernoulli.p", constants=True)
def bernoulli(b: Builder, node: Node, x: Any, keep: float = 0.5, **_: Any) -> Chance:
    return Chance("kept", shape_of(node), float(keep))


@handles("aten.rand.default", "aten.rand_like.default", constants=True)
def rand(b: Builder, node: Node, *_: Any, **__: Any) -> Chance:
    return Chance("uniform", shape_of(node))


@handles("aten.randn.default", "aten.randn_like.default", constants=True)
def randn(b: Builder, node: Node, *_: Any, **__: Any) -> Chance:
    raise b.refuse("noise that is drawn in the forward pass", NOISE)


def _add(b: Builder, x: Any, y: Any) -> Any:
    chance, by = (x, number(y)) if isinstance(x, Chance) else (y, number(x))
    return replace(chance, by=chance.by + by) if by is not None and chance.what == "uniform" else None


def _floor(b: Builder, x: Chance) -> Any:
    """q + a number in [0, 1) is at least 1 with probability q."""
    return replace(x, what="kept") if x.what == "uniform" and 0 < x.by <= 1 else None


def _div(b: Builder, x: Any, y: Any) -> Any:
    by = number(y)
    return replace(x, times=x.times / by) if isinstance(x, Chance) and x.what == "kept" and by else None


def _mul(b: Builder, x: Any, y: Any) -> Any:
    chance, other = (x, y) if isinstance(x, Chance) else (y, x)
    by = number(other)
    if chance.what != "kept" or isinstance(other, Chance):
        return None
    if by is not None:
        return replace(chance, times=chance.times * by)
    return _masked(b, chance, fresh(other)) if isinstance(other, Value) else None


def _masked(b: Builder, chance: Chance, x: Value) -> Value | None:
    shape = tuple(size(d) for d in x.dims)
    p = round(1 - chance.by, 12)
    if len(shape) != len(chance.shape) or not 0 <= p < 1:
        return None
    x = _rescaled(b, x, chance.times * chance.by)
    if chance.shape == shape and len(shape) > 1 and shape[1:] != (1,) * (len(shape) - 1):
        return b.emit("dropout", [x], x.dims, x.stored, p=p)
    if chance.shape != (shape[0], *(1,) * (len(shape) - 1)) or not x.dims[0]:
        return None
    x, place = b.isolated(x, x.dims[0])
    if place != 0:
        x = b.fits(x, (x.stored[place], *x.stored[:place], *x.stored[place + 1 :]))
    return b.emit("drop_path", [x], x.dims, x.stored, p=p)


def _rescaled(b: Builder, x: Value, by: float) -> Value:
    """`by` x; where x has been divided by what it is multiplied with, what it was before."""
    made = x.tensor.statement
    if made is not None and made.op == "scale" and abs(made.attributes["by"] * by - 1) < 1e-9:
        return replace(x, tensor=made.operands[0])
    return x if abs(by - 1) < 1e-9 else scaled(b, x, by)


STEPS: dict[str, Callable[..., Any]] = {
    "aten.add.Tensor": _add,
    "aten.add.Scalar": _add,
    "aten.floor.default": _floor,
    "aten.div.Tensor": _div,
    "aten.div.Scalar": _div,
    "aten.mul.Tensor": _mul,
    "aten.mul.Scalar": _mul,
}
