"""Distances and angles between vectors, and losses that go by them or by the sign of a target."""

from __future__ import annotations

from torch.fx import Node

from hapdsl.importing.atoms import size
from hapdsl.importing.build import Builder
from hapdsl.importing.handlers import handles
from hapdsl.importing.on_choices import call, minus, plus, times
from hapdsl.importing.on_layout import turned, unsqueeze
from hapdsl.importing.on_losses import pair, total
from hapdsl.importing.on_matrices import matmul
from hapdsl.importing.on_numbers import clamped, fresh, length, reduced, scaled, shifted, vector_norm
from hapdsl.importing.values import Value

FEW_ROWS = 25  # of which torch's cdist takes differences
COSINE_EPS = 1e-12  # torch's own, beside squares of lengths in cosine_embedding_loss


@handles("aten.cosine_similarity.default")
def cosine_similarity(b: Builder, node: Node, x: Value, y: Value, d: int = 1, eps: float = 1e-8) -> Value:
    """Of vectors along dim d of both, each divided by its length, which counts as `eps` at least."""
    d = d % max(len(x.dims), len(y.dims)) - max(len(x.dims), len(y.dims))
    if any(len(v.dims) < -d for v in (x, y)) or size(x.dims[d]) != size(y.dims[d]):
        raise b.refuse("cosine_similarity of vectors of different lengths", "expand one of them")
    lengths = [clamped(b, fresh(vector_norm(b, node, v, 2, [d], True)), eps) for v in (x, y)]
    units = [b.pointwise("div", [fresh(v), fresh(n)]) for v, n in zip((x, y), lengths, strict=True)]
    return reduced(b, "sum", times(b, *units), [d], False)


@handles("aten.pairwise_distance.default")
def pairwise_distance(
    b: Builder, node: Node, x: Value, y: Value, p: float = 2, eps: float = 1e-6, keep: bool = False
) -> Value:
    """The norm of x - y + eps along the last dim."""
    away = shifted(b, fresh(minus(b, x, y)), eps)
    return vector_norm(b, node, away, p, [-1], keep)


@handles("aten.cdist.default")
def cdist(b: Builder, node: Node, x: Value, y: Value, p: float = 2, mode: int | None = None) -> Value:
    """The distance of each row to each row: of few rows by their differences, of many by products of matrices, as torch has it."""
    if p != 2:
        raise b.refuse(f"cdist with p = {p:g}", "leave p at 2, or write it out: (x[:, None] - y[None]).abs().sum(-1)")
    if mode == 2 or (mode != 1 and max(size(x.dims[-2]), size(y.dims[-2])) <= FEW_ROWS):
        return vector_norm(b, node, minus(b, unsqueeze(b, node, x, -2), unsqueeze(b, node, y, -3)), 2, [-1])
    own, theirs = (reduced(b, "sum", times(b, v, v), [-1], True) for v in (x, y))
    product = matmul(b, node, fresh(x), turned(b, node, fresh(y)))
    return length(b, plus(b, minus(b, own, scaled(b, fresh(product), 2)), turned(b, node, theirs)))


@handles("aten.triplet_margin_loss.default")
def triplet_margin_loss(
    b: Builder,
    node: Node,
    anchor: Value,
    like: Value,
    other: Value,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 1,
) -> Value:
    """max(0, margin + |anchor - like| - |anchor - other|); with `swap` the other is as far as it is from the nearer of both."""
    near, far = (pairwise_distance(b, node, anchor, v, p, eps) for v in (like, other))
    if swap:
        far = b.pointwise("minimum", [fresh(far), fresh(pairwise_distance(b, node, like, other, p, eps))])
    return total(b, _above(b, minus(b, near, far), margin), reduction)


@handles("aten.cosine_embedding_loss.default")
def cosine_embedding_loss(
    b: Builder, node: Node, x: Value, y: Value, target: Value, margin: float = 0.0, reduction: int = 1
) -> Value:
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1."""
    x, y = pair(b, x, y)
    products = [reduced(b, "sum", times(b, *both), [-1], False) for both in ((x, y), (x, x), (y, y))]
    squares = [shifted(b, fresh(s), COSINE_EPS) for s in products[1:]]
    cos = b.pointwise("div", [fresh(products[0]), call(b, "sqrt", fresh(times(b, *squares)))])
    like = _but_where(b, "ne", target, 1, shifted(b, scaled(b, fresh(cos), -1), 1))
    unlike = _but_where(b, "ne", target, -1, _above(b, cos, -margin))
    return total(b, plus(b, like, unlike), reduction)


@handles("aten.hinge_embedding_loss.default")
def hinge_embedding_loss(
    b: Builder, node: Node, x: Value, target: Value, margin: float = 1.0, reduction: int = 1
) -> Value:
    """x where the target is 1, max(0, margin - x) where it is -1."""
    x, target = pair(b, x, target)
    like = _but_where(b, "eq", target, -1, x)
    unlike = _but_where(b, "eq", target, 1, _above(b, scaled(b, x, -1), margin))
    return total(b, plus(b, like, unlike), reduction)


@handles("aten.margin_ranking_loss.default")
def margin_ranking_loss(
    b: Builder, node: Node, x: Value, y: Value, target: Value, margin: float = 0.0, reduction: int = 1
) -> Value:
    """max(0, margin - target (x - y))."""
    ahead = times(b, target, minus(b, x, y))
    return total(b, _above(b, scaled(b, fresh(ahead), -1), margin), reduction)


@handles("aten.soft_margin_loss.default")
def soft_margin_loss(b: Builder, node: Node, x: Value, target: Value, reduction: int = 1) -> Value:
    """log(1 + exp(-target x))."""
    away = scaled(b, fresh(times(b, *pair(b, x, target))), -1)
    return total(b, call(b, "softplus", away), reduction)


@handles("aten.poisson_nll_loss.default")
def poisson_nll_loss(
    b: Builder, node: Node, x: Value, target: Value, of_log: bool, full: bool, eps: float, reduction: int
) -> Value:
    """exp(x) - target x of a rate's logarithm, x - target log(x + eps) of a rate."""
    if full:
        raise b.refuse("poisson_nll_loss with full = True", "leave the term out that depends on targets only")
    x, target = pair(b, x, target)
    rate, log = (call(b, "exp", x), x) if of_log else (x, call(b, "log", shifted(b, x, eps)))
    return total(b, minus(b, rate, times(b, target, log)), reduction)


def _above(b: Builder, x: Value, margin: float) -> Value:
    """max(0, x + margin)."""
    return clamped(b, shifted(b, fresh(x), margin), 0)


def _but_where(b: Builder, op: str, target: Value, number: int, x: Value) -> Value:
    """x, but 0 where a target is (`eq`), or isn't (`ne`), a number."""
    target = fresh(target)
    hidden = b.emit(op, [target], target.dims, target.stored, "bool", inner=True, value=number)
    return b.pointwise("masked_fill", [fresh(x), fresh(hidden)], x.dtype, value=0.0)
