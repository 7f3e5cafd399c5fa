"""Masks that depend on inputs: which keys attention may look at (padding), alone or beside a causal mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from hapdsl.importing.build import Builder
from hapdsl.importing.constants import Constant, is_causal
from hapdsl.importing.handlers import handles
from hapdsl.importing.on_attention import attention
from hapdsl.importing.on_layout import expand
from hapdsl.importing.on_numbers import fresh
from hapdsl.importing.values import Followed, Value


@dataclass(frozen=True)
class Causal(Followed):
    """Keys that `keys` allows and that aren't after the query."""

    keys: Value

    def follow(self, builder: Builder, node: Node, name: str, args: Any, kwargs: Any) -> Any:
        """It ends in attention. Raises HapError HAP877 elsewhere."""
        if name in ("aten.expand.default", "aten.to.dtype", "aten.contiguous.default", "aten.alias.default"):
            return self
        if name != "aten.scaled_dot_product_attention.default":
            raise builder.refuse(
                f"{name} of a causal mask beside one that depends on the inputs",
                "pass it to scaled_dot_product_attention",
            )
        q, k, v = args[:3]
        options = {**dict(zip(("attn_mask", "dropout_p", "is_causal"), args[3:], strict=False)), **kwargs}
        return attention(
            builder, node, q, k, v, self.keys, options.get("dropout_p", 0.0), True, scale=options.get("scale")
        )


@handles("aten.__and__.Tensor", "aten.bitwise_and.Tensor", "aten.logical_and.default", constants=True)
def both(b: Builder, node: Node, x: Any, y: Any) -> Any:
    known, value = (x, y) if isinstance(x, Constant) else (y, x)
    if isinstance(known, Constant) and isinstance(value, Value):
        if bool(known.tensor.all()):
            return expand(b, node, fresh(value))
        if is_causal(known.tensor):
            return Causal(fresh(value))
    if isinstance(x, Value) and isinstance(y, Value) and "bool" in (x.dtype, y.dtype):
        return b.pointwise("logical_and", [fresh(x), fresh(y)], "bool")
    raise b.refuse("a combination of masks", "causal masks beside masks of keys [batch, positions] are known")
