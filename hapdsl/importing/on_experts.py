"""Mixtures of experts: tokens that a router sends to the k best of several experts, as transformers' export-safe forms write it.

Sorting tokens by expert, multiplying group by group and bringing them back has no counterpart step by step: where a token goes depends
on data. What it amounts to is known: `top_k_gate` and contractions with its outputs, exact where no expert runs out of room. So
the results of `topk` are followed as tokens on their way (`Way`) until they are summed up again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import Node

from hapdsl.importing.atoms import leaves
from hapdsl.importing.build import Builder
from hapdsl.importing.handlers import handles
from hapdsl.importing.on_layout import shape_of
from hapdsl.importing.on_numbers import fresh
from hapdsl.importing.values import Extent, Followed, Layout, Notation, Value


@dataclass(eq=False)
class Gate:
    """One router: the gates [tokens, experts] and what is made of them."""

    gates: Value
    k: int
    normalized: bool = False
    combine: Value | None = None
    dispatch: Value | None = None


@dataclass(frozen=True)
class Way(Followed):
    """Something that exists once for each token and each of its experts. `what`: weights, experts, total (of a token's weights), order
    (that sorts by expert), sorted (experts in that order), tokens (that the order names), places (in the sorted weights), counts,
    back (the order's inverse), worked (`value`, what the experts made), weighed (the same, times its weight)."""

    what: str
    gate: Gate
    value: Value | None = None

    def follow(self, builder: Builder, node: Node, name: str, args: Any, kwargs: Any) -> Any:
        """What becomes of tokens on their way. Raises HapError HAP877 for a step that leads elsewhere."""
        found = STEPS.get(name)
        result = found(builder, node, *args, **kwargs) if found is not None else None
        if result is None:
            help = "routing by top_k_gate is known: Mixtral's experts with experts_implementation = grouped_mm"
            raise builder.refuse(f"{name} of what a topk made", help)
        return result


STEPS: dict[str, Callable[..., Any]] = {}


def step(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        STEPS.update(dict.fromkeys(names, function))
        return function

    return register


@handles("aten.topk.default")
def topk(
    b: Builder, node: Node, x: Value, k: int, d: int = -1, largest: bool = True, *_: Any, **__: Any
) -> tuple[Way, Way]:
    x = fresh(x)
    if d not in (-1, len(x.dims) - 1) or not largest or len(leaves(x.dims[0])) != 2 or len(x.dims) != 2:
        raise b.refuse("topk other than of gates [batch * positions, experts]")
    gate = Gate(x, k)
    return Way("weights", gate), Way("experts", gate)


def _named(value: Any, what: str) -> bool:
    return isinstance(value, Way) and value.what == what


@step("aten.reshape.default", "aten.view.default", "aten.unsqueeze.default", "aten.to.dtype", "aten.flatten.using_ints")
def same(b: Builder, node: Node, x: Way, *_: Any, **__: Any) -> Way:
    return x


@step("<built-in function getitem>")
def one(b: Builder, node: Node, values: Any, k: int) -> Any:
    return values[k]


@step("aten.sum.dim_IntList")
def total(b: Builder, node: Node, x: Way, over: Any, keep: bool = False) -> Any:
    """Over the experts of each token: the last dim of weights [tokens, k], the middle one of what is weighed [tokens, k, d]."""
    rank = len(shape_of(node.all_input_nodes[0]))
    along = [d % rank for d in over]
    if x.what == "weights" and rank == 2 and along == [1]:
        return replace(x, what="total")
    return back(b, x) if x.what == "weighed" and rank == 3 and along == [1] and not keep else None


@step("aten.div.Tensor")
def normalized(b: Builder, node: Node, x: Way, y: Any) -> Way | None:
    if not (_named(x, "weights") and _named(y, "total")):
        return None
    x.gate.normalized = True
    return x


@step("aten.sort.default")
def ordered(b: Builder, node: Node, x: Way, *_: Any) -> tuple[Way, Way] | None:
    return (replace(x, what="sorted"), replace(x, what="order")) if x.what == "experts" else None


@step("aten.floor_divide.default")
def tokens(b: Builder, node: Node, x: Way, k: int) -> Way | None:
    return replace(x, what="tokens") if x.what == "order" and k == x.gate.k else None


@step("aten.histc.default")
def counted(b: Builder, node: Node, x: Way, *_: Any) -> Way | None:
    return replace(x, what="counts") if x.what == "sorted" else None


@step("aten.cumsum.default")
def summed(b: Builder, node: Node, x: Way, *_: Any, **__: Any) -> Way | None:
    return x if x.what == "counts" else None


@step("aten.clamp.default")
def within(b: Builder, node: Node, x: Way, *_: Any, **__: Any) -> Way | None:
    """Numbers of experts are between the first and the last."""
    return x if x.what in ("experts", "sorted") else None


@step("aten.empty_like.default", "aten.zeros_like.default")
def room(b: Builder, node: Node, x: Way, *_: Any, **__: Any) -> Way | None:
    return x if x.what == "order" else None


@step("aten.index_put.default")
def inverse(b: Builder, node: Node, x: Way, where: Any, *_: Any) -> Way | None:
    return replace(x, what="back") if _named(where[0], "order") else None


@step("aten.index.Tensor")
def taken(b: Builder, node: Node, x: Any, where: Any) -> Any:
    way = where[0]
    if isinstance(x, Value) and _named(way, "tokens"):
        return sent(b, x, way.gate)
    if _named(x, "weights") and _named(way, "order"):
        return replace(x, what="places")
    if _named(x, "weighed") and _named(way, "back"):
        return x
    return None


@step("transformers.grouped_mm_fallback.default", "aten._grouped_mm.default")
def grouped(b: Builder, node: Node, x: Value, w: Value, counts: Any = None, *_: Any, **__: Any) -> Value | None:
    """Each expert's tokens times its matrix [experts, columns, rows]."""
    if not _named(counts, "counts"):
        return None
    b.tie(x.dims[-1], w.dims[1])
    slots = fresh(x).dims[0]
    b.tie(slots[1:2], w.dims[0])
    x, w = fresh(x), fresh(w)
    experts, rows = leaves(w.dims[0]), leaves(w.dims[2])
    x = b.fits(x, (*x.stored[:3], *((a,) for a in x.dims[-1])))
    w = b.fits(w, tuple((a,) for a in w.atoms))
    stored: Layout = (*x.stored[:3], *((a,) for a in rows))
    assert x.stored[1] == experts
    spec = Notation((x.stored, w.stored), stored, letters=True)
    return b.emit("einsum", [x, w], (x.dims[0], rows), stored, spec=spec)


@step("aten.mul.Tensor")
def weighed(b: Builder, node: Node, x: Any, y: Any) -> Way | None:
    value, way = (x, y) if isinstance(x, Value) else (y, x)
    return Way("weighed", way.gate, value) if isinstance(value, Value) and _named(way, "places") else None


def opened(b: Builder, gate: Gate) -> tuple[Value, Value]:
    """The statement that routes: combine and dispatch [batch, positions, experts, slots]. A sequence is a group of its own and no
    expert takes more tokens than it has, so nobody is left out."""
    if gate.combine is None or gate.dispatch is None:
        gates = fresh(gate.gates)
        (batch, positions), experts = leaves(gates.dims[0]), leaves(gates.dims[1])
        laid: Layout = ((batch,), (positions,), experts)
        gates = b.fits(replace(gates, dims=laid), laid)
        slots = (b.atom((_name(b), "slots"), positions.size, positions),)
        made: Layout = (*laid, slots)
        wishes: dict[str, Any] = {"k": gate.k, "capacity": Extent((positions,))}
        if not gate.normalized:
            wishes["normalize"] = False
        gate.combine, gate.dispatch = b.emit_many(
            "top_k_gate", [gates], [(made, made), (made, made)], ("combine", "dispatch"), **wishes
        )
    return gate.combine, gate.dispatch


def _name(b: Builder) -> str:
    assert b.here is not None
    return b.here.name


def sent(b: Builder, x: Value, gate: Gate) -> Value:
    """Tokens [batch * positions, d] at their experts: stored [batch, experts, slots, d], seen as [slots of all, d]."""
    _, dispatch = opened(b, gate)
    x = fresh(x)
    batch, positions, experts, slots = dispatch.stored
    x = b.fits(replace(x, dims=(batch, positions, x.dims[-1])), (batch, positions, x.dims[-1]))
    stored: Layout = (batch, experts, slots, x.dims[-1])
    spec = Notation((dispatch.stored, x.stored), stored, letters=True)
    return b.emit(
        "einsum", [dispatch, x], ((*batch, *experts, *slots), x.dims[-1]), stored, x.dtype, called="sent", spec=spec
    )


def back(b: Builder, way: Way) -> Value:
    """What the experts made, by the weights: [batch * positions, d]."""
    assert way.value is not None
    combine, _ = opened(b, way.gate)
    x = fresh(way.value)
    batch, positions, experts, slots = combine.stored
    x = b.fits(x, (batch, experts, slots, x.dims[-1]))
    stored: Layout = (batch, positions, x.dims[-1])
    spec = Notation((combine.stored, x.stored), stored, letters=True)
    return b.emit("einsum", [combine, x], ((*batch, *positions), x.dims[-1]), stored, spec=spec)
