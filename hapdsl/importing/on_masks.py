"""Masks that depend on inputs: which keys attention may look at (padding), alone or beside a causal mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import Node

from hapdsl.importing.atoms import leaves, size
from hapdsl.importing.build import Builder
from hapdsl.importing.constants import Constant, is_causal
from hapdsl.importing.handlers import handles
from hapdsl.importing.on_layout import as_value, expand, slice_
from hapdsl.importing.on_matrices import attention, embedding
from hapdsl.importing.on_numbers import fresh
from hapdsl.importing.values import Dim, Followed, Value


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


@handles("aten.index.Tensor", constants=True)
def index(b: Builder, node: Node, x: Value, where: Sequence[Any]) -> Value:
    """Each dim by all its positions, along dims that are broadcast: a view. Rows of a table by their numbers: an embedding."""
    if isinstance(x, Constant):
        x = b.table(x)
    x = fresh(x)
    if len(where) == 1 and len(x.dims) == 2 and isinstance(where[0], Value | Constant):
        return embedding(b, node, x, where[0])
    given = [d for d, positions in enumerate(where) if positions is not None]
    if len(given) == 1 and isinstance(where[given[0]], Constant) and (run := _run(where[given[0]])) is not None:
        part: Value = slice_(b, node, x, given[0], *run)
        return part
    if (
        len(where) == 2
        and isinstance(where[0], Constant)
        and isinstance(where[1], Value)
        and where[0].positions() == (0, 0)
    ):
        return one_of_each(b, x, where[0], where[1])
    rank = len(node.meta["val"].shape)
    dims: list[Dim] = [()] * rank
    for dim, positions in zip(x.dims, where, strict=False):
        found = positions.positions() if isinstance(positions, Constant) else None
        if isinstance(positions, Constant) and not dim and positions.number() == 0:
            continue
        if found is None or found[0] != 0 or positions.shape[found[1]] != size(dim):
            raise b.refuse("indexing by a tensor", "look rows up with an embedding, or take slices")
        dims[found[1] - len(positions.shape) + rank] = leaves(dim)
    if len(where) != len(x.dims):
        raise b.refuse("indexing of some dims by tensors", "look rows up with an embedding, or take slices")
    return replace(x, dims=tuple(dims))


def _run(positions: Constant) -> tuple[int, int | None] | None:
    """Start and end of positions that follow one another, in one row; the last one may be called -1."""
    numbers = [int(n) for n in positions.tensor] if len(positions.shape) == 1 else []
    if not numbers or numbers != list(range(numbers[0], numbers[0] + len(numbers))) or numbers[0] < 0 <= numbers[-1]:
        return None
    return numbers[0], numbers[-1] + 1 or None


@handles("aten.index_select.default", constants=True)
def index_select(b: Builder, node: Node, x: Any, d: int, where: Any) -> Value:
    """A run of positions along one dim; rows of a table by their numbers."""
    x = fresh(as_value(b, x))
    if isinstance(where, Constant) and (run := _run(where)) is not None:
        found: Value = slice_(b, node, x, d, *run)
        return found
    if d == 0 and len(x.dims) == 2:
        return embedding(b, node, x, where)
    raise b.refuse("index_select of other dims than rows", "look rows up with an embedding, or take slices")


def one_of_each(b: Builder, x: Value, rows: Constant, index: Value) -> Value:
    """x[arange, index]: of each row, dim 0, the element of dim 1 that the index names, with all that lies behind it."""
    if rows.shape != (size(x.dims[0]),) or len(index.dims) != 1:
        raise b.refuse("indexing by a tensor", "look rows up with an embedding, or take slices")
    b.tie(x.dims[0], index.dims[0])
    x, index = fresh(x), fresh(index)
    y = b.last(x, [x.dims[1]])
    return b.emit("pick", [y, b.fits(index, y.stored[:-1])], (x.dims[0], *x.dims[2:]), y.stored[:-1])
