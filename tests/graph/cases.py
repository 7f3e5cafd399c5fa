"""What a gradient is tried on: a call as a model writes it, and the same function in torch's words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """`call` over the operands; `oracle` gets them in the same order. `positive` operands are drawn from (0.5, 2)."""

    call: str
    operands: dict[str, Shape]
    oracle: Callable[..., Tensor]
    integers: dict[str, tuple[Shape, int]] = field(default_factory=dict)  # name: shape, bound
    positive: tuple[str, ...] = ()


def case(
    call: str,
    oracle: Callable[..., Tensor],
    integers: dict[str, tuple[Shape, int]] | None = None,
    positive: str = "",
    **operands: Shape,
) -> Case:
    return Case(call, operands, oracle, integers or {}, tuple(positive.split()))
