"""Gradients of convolutions, pooling and normalisation, against torch.nn.functional."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.graph.cases import Case, case

DEFS = """
def whitened(x, w, b) {
    mean, square = batch_norm_stats(x)
    var = sub(square, mul(mean, mean))
    return batch_norm(x, mean, var, w, b)
}
def split_loss(z, label) {
    parts = logsumexp(rearrange(z, "b (k c) -> b k c", k = 3))
    lost = sub(logsumexp(parts), pick(z, label))
    return mean(lost, dims = 0)
}
def spreadness(x) {
    mean, square = batch_norm_stats(x)
    return sub(square, mul(mean, mean))
}
"""


def windows(x: Tensor, size: int, stride: int) -> Tensor:
    return x.unfold(2, size, stride).unfold(3, size, stride).amax(dim=(-1, -2))


def trained(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.batch_norm(x, None, None, w, b, training=True)


def evaluated(x: Tensor, m: Tensor, v: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """As written down by Ioffe and Szegedy: torch's own takes no gradient of running statistics."""
    along = (slice(None),) + (None,) * (x.dim() - 2)
    return (x - m[along]) / torch.sqrt(v[along] + 1e-5) * w[along] + b[along]


def conv2d_by_groups(x: Tensor, k: Tensor) -> Tensor:
    """Group by group."""
    parts = zip(x.chunk(3, 1), k.chunk(3), strict=True)
    return torch.cat([F.conv2d(a, b, stride=2, padding=1) for a, b in parts], 1)


IMAGE = (2, 3, 6, 7)
VISION_CASES: dict[str, list[Case]] = {
    "conv2d": [
        case("conv2d(x, k)", F.conv2d, x=(2, 3, 6, 5), k=(4, 3, 3, 2)),
        case("conv2d(x, k, stride = 2, pad = 1)", lambda x, k: F.conv2d(x, k, stride=2, padding=1), x=IMAGE, k=(4, 3, 3, 3)),
        case("conv2d(x, k, dilation = 2, pad = 2)", lambda x, k: F.conv2d(x, k, dilation=2, padding=2), x=IMAGE, k=(4, 3, 3, 3)),
        case("conv2d(x, k, groups = 3, stride = 2, pad = 1)", conv2d_by_groups, x=(2, 6, 6, 7), k=(9, 2, 3, 3)),
        case("conv2d(x, k, groups = 6)", lambda x, k: F.conv2d(x, k, groups=6), x=(2, 6, 5, 4), k=(6, 1, 3, 2)),
    ],
    "conv_transpose2d": [
        case("conv_transpose2d(x, k)", F.conv_transpose2d, x=(2, 3, 4, 5), k=(3, 4, 3, 2)),
        case(
            "conv_transpose2d(x, k, stride = 3, pad = 1, output_pad = 2)",
            lambda x, k: F.conv_transpose2d(x, k, stride=3, padding=1, output_padding=2), x=(2, 3, 4, 3), k=(3, 4, 3, 3),
        ),
        case(
            "conv_transpose2d(x, k, stride = 2, groups = 2)",
            lambda x, k: F.conv_transpose2d(x, k, stride=2, groups=2), x=(2, 6, 3, 4), k=(6, 2, 2, 2),
        ),
    ],
    "max_pool2d": [
        case("max_pool2d(x)", lambda x: windows(x, 2, 2), x=(2, 3, 6, 5)),
        case("max_pool2d(x, kernel = 3, stride = 1)", lambda x: windows(x, 3, 1), x=(2, 3, 6, 5)),
        case("max_pool2d(x, kernel = 3, pad = 1)", lambda x: windows(F.pad(x, [1] * 4, value=-9e9), 3, 2), x=IMAGE),
    ],
    "avg_pool2d": [
        case("avg_pool2d(x)", lambda x: x.unfold(2, 2, 2).unfold(3, 2, 2).mean((-1, -2)), x=IMAGE),
        case("avg_pool2d(x, kernel = 3, pad = 1)", lambda x: F.avg_pool2d(x, 3, 2, 1), x=IMAGE),
    ],
    "adaptive_avg_pool2d": [
        case("adaptive_avg_pool2d(x)", lambda x: x.mean((2, 3), keepdim=True), x=(2, 3, 6, 5)),
        case("adaptive_avg_pool2d(x, size = 2)", lambda x: F.adaptive_avg_pool2d(x, 2), x=(2, 3, 6, 4)),
        case("adaptive_avg_pool2d(x, size = 3)", lambda x: F.adaptive_avg_pool2d(x, 3), x=(2, 3, 7, 5)),
        case("adaptive_avg_pool2d(x, size = 3)", lambda x: F.adaptive_avg_pool2d(x, 3), x=(2, 3, 1, 2)),  # larger than what it's of
    ],
    "upsample_nearest2d": [
        case("upsample_nearest2d(x)", lambda x: F.interpolate(x, scale_factor=2), x=IMAGE),
        case("upsample_nearest2d(x, factor = 3)", lambda x: F.interpolate(x, scale_factor=3), x=IMAGE),
    ],
    "batch_norm_stats": [
        case("spreadness(x)", lambda x: x.var((0, 2, 3), correction=0), x=IMAGE),
        case("whitened(x, w, b)", trained, x=(5, 3), w=(3,), b=(3,)),
    ],
    "batch_norm": [
        case("whitened(x, w, b)", trained, x=IMAGE, w=(3,), b=(3,)),
        case("whitened(x, w, b)", trained, x=(2, 3, 4), w=(3,), b=(3,)),
        case("batch_norm(x, m, v, w, b)", evaluated, positive="v", x=IMAGE, m=(3,), v=(3,), w=(3,), b=(3,)),
    ],
    "group_norm": [
        case("group_norm(x, w, b)", lambda x, w, b: F.group_norm(x, 1, w, b), x=IMAGE, w=(3,), b=(3,)),
        case("group_norm(x, w, b, groups = 2)", lambda x, w, b: F.group_norm(x, 2, w, b), x=(2, 6, 4, 3), w=(6,), b=(6,)),
        case("group_norm(x, w, b, groups = 3)", lambda x, w, b: F.group_norm(x, 3, w, b), x=(4, 6), w=(6,), b=(6,)),
        case("group_norm(x, w, b, groups = 3)", lambda x, w, b: F.instance_norm(x, weight=w, bias=b), x=(2, 3, 5), w=(3,), b=(3,)),
    ],
    "embedding_bag": [
        case("embedding_bag(ids, a)", lambda a, ids: F.embedding_bag(ids, a, mode="sum"), {"ids": ((4, 3), 5)}, a=(5, 6)),
        case("embedding_bag(ids, a)", lambda a, ids: a[ids].sum(2), {"ids": ((2, 4, 3), 5)}, a=(5, 6)),
    ],
    "logsumexp": [case("logsumexp(a)", lambda a: a.exp().sum(-1).log(), a=(2, 3, 4)), case("logsumexp(a)", lambda a: a.logsumexp(0), a=(5,))],
    "pick": [
        case("pick(a, at)", lambda a, at: a[torch.arange(4), at], {"at": ((4,), 6)}, a=(4, 6)),
        case("split_loss(z, label)", lambda z, label: F.cross_entropy(z, label), {"label": ((4,), 6)}, z=(4, 6)),
    ],
    "binary_cross_entropy": [
        case(
            "binary_cross_entropy(sigmoid(z), cast(label, to = f64))",
            lambda z, y: F.binary_cross_entropy(torch.sigmoid(z), y.double(), reduction="none"), {"label": ((4, 3), 2)}, z=(4, 3),
        ),
    ],
    "gather": [case("gather(a, ids)", lambda a, ids: torch.gather(a, -1, ids), {"ids": ((4, 2), 5)}, a=(4, 5))],
    "binary_cross_entropy_with_logits": [
        case(
            "binary_cross_entropy_with_logits(z, label)",
            lambda z, y: F.binary_cross_entropy_with_logits(z, y.double()), {"label": ((4, 3), 2)}, z=(4, 3),
        )
    ],
    "lower_triangle": [case("lower_triangle(a)", lambda a: torch.stack([a[:, i, j] for i in range(4) for j in range(i)], 1), a=(2, 4, 4))],
}  # fmt: skip
