"""Convolutions, pooling, and normalisation over batches and groups of channels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch.fx import Node

from hapdsl.importing.atoms import Dim, leaves, size
from hapdsl.importing.build import Builder
from hapdsl.importing.constants import Constant
from hapdsl.importing.handlers import handles
from hapdsl.importing.on_layout import as_value
from hapdsl.importing.on_numbers import fresh, reduced
from hapdsl.importing.values import Unbiased, Value


def _one(b: Builder, found: Any, what: str) -> int:
    """The number that a pair of equal ones is."""
    numbers = list(found) if isinstance(found, list | tuple) else [found]
    if len(set(numbers)) != 1:
        raise b.refuse(f"{what} that differs by direction")
    return int(numbers[0])


def _set(**numbers: tuple[int, int]) -> dict[str, Any]:
    """Attributes that aren't at their defaults: name = (value, default)."""
    return {n: v for n, (v, default) in numbers.items() if v != default}


def _with_batch(b: Builder, x: Value, sides: int = 2) -> Value:
    """Images [n, c, *sides]. Raises HapError HAP877 for one by itself."""
    if len(x.dims) != 2 + sides:
        raise b.refuse("an image without a dim of the batch", "give it one: x[None], and [0] of the result")
    return x


def _sides(b: Builder, node: Node) -> tuple[Dim, ...]:
    """New dims for the height and width (or the length) of what an operator makes."""
    return tuple(b.new_dim(side, int(n), True) for side, n in enumerate(node.meta["val"].shape[2:]))


def _steps(b: Builder, x: Value, k: Value, stride: Any, dilation: Any, groups: int) -> tuple[int, int]:
    """Stride and dilation of a convolution of x by k, whose channels are one dim."""
    _with_batch(b, x, len(k.dims) - 2)
    if groups == 1:
        b.tie(x.dims[1], k.dims[1])
    return _one(b, stride, "a stride"), _one(b, dilation, "a dilation")


@handles("aten.conv2d.default", "aten.conv2d.padding")
def conv2d(
    b: Builder,
    node: Node,
    x: Value,
    k: Value,
    bias: Value | None = None,
    stride: Any = 1,
    pad: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    s, d = _steps(b, x, k, stride, dilation, groups)
    if isinstance(pad, str):
        window = _one(b, [size(n) for n in k.dims[2:]], "a kernel")
        if pad == "same" and (window % 2 == 0 or s != 1):
            raise b.refuse('padding "same" of an even kernel or with a stride', "say how many pixels")
        pad = 0 if pad == "valid" else d * (window - 1) // 2
    if isinstance(pad, list | tuple) and len(set(pad)) > 1:
        x, pad = padded(b, x, [pad[1], pad[1], pad[0], pad[0]]), 0
    p = _one(b, pad, "padding")
    x, k = b.logical(fresh(x)), b.logical(fresh(k))
    dims = (x.dims[0], k.dims[0], *_sides(b, node))
    given = _set(stride=(s, 1), pad=(p, 0), groups=(groups, 1), dilation=(d, 1))
    return _along_channels(b, b.emit("conv2d", [x, k], dims, dims, inner=True, **given), bias)


@handles("aten.conv1d.default", "aten.conv1d.padding")
def conv1d(
    b: Builder,
    node: Node,
    x: Value,
    k: Value,
    bias: Value | None = None,
    stride: Any = 1,
    pad: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    """As a convolution of images of one row; what is padded is padded before."""
    s, d = _steps(b, x, k, stride, dilation, groups)
    reach = d * (size(k.dims[2]) - 1)
    sides = (
        [0, 0]
        if pad == "valid"
        else [reach // 2, reach - reach // 2]
        if pad == "same"
        else [_one(b, pad, "padding")] * 2
    )
    x, k = (_of_one_row(b, fresh(v)) for v in (padded(b, x, sides), k))
    (long,) = _sides(b, node)
    stored = (x.dims[0], k.dims[0], (), long)
    given = _set(stride=(s, 1), groups=(groups, 1), dilation=(d, 1))
    made = b.emit("conv2d", [x, k], (x.dims[0], k.dims[0], long), stored, inner=True, **given)
    return _along_channels(b, made, bias)


def _of_one_row(b: Builder, x: Value) -> Value:
    """[n, c, l] as [n, c, 1, l]."""
    laid = (*x.dims[:2], (), x.dims[2])
    return b.fits(replace(x, dims=laid), laid)


def padded(b: Builder, x: Value, amounts: list[int]) -> Value:
    """Zeros around the last dims: before and after, the last dim first."""
    x = b.logical(fresh(x))
    for k in range(len(amounts) // 2):
        before, after = amounts[2 * k : 2 * k + 2]
        d = len(x.dims) - 1 - k
        if before or after:
            made = b.new_dim(("padded", k), size(x.dims[d]) + before + after, True)
            dims = (*x.dims[:d], made, *x.dims[d + 1 :])
            x = b.emit("pad", [x], dims, dims, dim=d, before=before, after=after)
    return x


def _along_channels(b: Builder, x: Value, bias: Value | None) -> Value:
    """With a bias per channel, dim 1 of an image, if there is one."""
    if bias is None:
        return x
    b.tie(x.dims[1], bias.dims[0])
    bias = fresh(bias)
    return b.pointwise("add", [fresh(x), replace(bias, dims=(bias.dims[0], *((),) * (len(x.dims) - 2)))])


@handles("aten.conv_transpose2d.input")
def conv_transpose2d(
    b: Builder,
    node: Node,
    x: Value,
    k: Value,
    bias: Value | None = None,
    stride: Any = 1,
    pad: Any = 0,
    output_pad: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Value:
    if _one(b, dilation, "a dilation") != 1:
        raise b.refuse("a transposed convolution with a dilation")
    x = _with_batch(b, x)
    s, p, o = _one(b, stride, "a stride"), _one(b, pad, "padding"), _one(b, output_pad, "output padding")
    if groups == 1:
        b.tie(x.dims[1], k.dims[0])
    x, k = b.logical(fresh(x)), b.logical(fresh(k))
    channels = k.dims[1] if groups == 1 else b.new_dim("channels", int(node.meta["val"].shape[1]))
    dims = (x.dims[0], channels, *_sides(b, node))
    given = _set(stride=(s, 1), pad=(p, 0), output_pad=(o, 0), groups=(groups, 1))
    return _along_channels(b, b.emit("conv_transpose2d", [x, k], dims, dims, inner=True, **given), bias)


@handles("aten.upsample_nearest2d.vec", "aten.upsample_nearest2d.default")
def upsample(b: Builder, node: Node, x: Value, *_: Any, **__: Any) -> Value:
    x = b.logical(fresh(x))
    out = [int(n) for n in node.meta["val"].shape[2:]]
    found = [divmod(n, size(d)) for n, d in zip(out, x.dims[2:], strict=True)]
    if any(rest for _, rest in found):
        raise b.refuse("upsampling by other than a whole factor")
    factor = _one(b, [f for f, _ in found], "a factor")
    dims = (x.dims[0], x.dims[1], *_sides(b, node))
    return b.emit("upsample_nearest2d", [x], dims, dims, **_set(factor=(factor, 2)))


@handles("aten.max_pool2d.default", "aten.avg_pool2d.default")
def pool(b: Builder, node: Node, x: Value, kernel: Any, stride: Any = (), pad: Any = 0, *rest: Any) -> Value:
    op = str(node.target).split(".")[1]
    if op == "max_pool2d" and rest[:1] not in ((), (1,), ([1, 1],)):
        raise b.refuse(f"{op} with dilation")
    if op == "avg_pool2d" and ((rest[1:2] == (False,) and _one(b, pad, "padding")) or rest[2:3] not in ((), (None,))):
        raise b.refuse("avg_pool2d that leaves its padding out of the count")
    x = _with_batch(b, x)
    window = _one(b, kernel, "a window")
    step = _one(b, stride, "a stride") if stride else window
    around = _one(b, pad, "padding")
    out = [(size(d) + 2 * around - window) // step + 1 for d in x.dims[2:]]
    if list(node.meta["val"].shape[2:]) != out:
        raise b.refuse(f"{op} with ceil_mode, where it makes a difference")
    x = b.logical(fresh(x))
    dims = (x.dims[0], x.dims[1], *_sides(b, node))
    return b.emit(op, [x], dims, dims, **_set(kernel=(window, 2), stride=(step, 2), pad=(around, 0)))


@handles("aten.adaptive_avg_pool2d.default")
def adaptive(b: Builder, node: Node, x: Value, target: Any) -> Value:
    x = _with_batch(b, x)
    out = [int(n) for n in node.meta["val"].shape[2:]]
    extents = [size(d) for d in x.dims[2:]]
    if out == extents:
        return x
    if out == [1, 1]:
        return reduced(b, "mean", x, [2, 3], True)
    count = _one(b, out, "an output")
    x = b.logical(fresh(x))
    dims = (x.dims[0], x.dims[1], *_sides(b, node))
    return b.emit("adaptive_avg_pool2d", [x], dims, dims, **_set(size=(count, 1)))


@handles("aten.adaptive_avg_pool1d.default")
def adaptive_1d(b: Builder, node: Node, x: Value, target: Any) -> Value:
    if [int(n) for n in target] != [1]:
        raise b.refuse("adaptive_avg_pool1d to another length than 1", "write it with a reshape and a mean")
    return reduced(b, "mean", x, [-1], True)


@handles("aten.upsample_bilinear2d.vec", "aten.upsample_bicubic2d.vec")
def resized(b: Builder, node: Node, x: Value, *_: Any, **__: Any) -> Value:
    """To the size that it has, which changes nothing: tables of positions for images of another size than they were made for."""
    if tuple(node.meta["val"].shape) != tuple(size(d) for d in x.dims):
        raise b.refuse(
            "interpolation to another size",
            "resize before training, as timm's img_size and transformers' image_size do",
        )
    return x


@handles("aten.batch_norm.default", constants=True)
def batch_norm(
    b: Builder,
    node: Node,
    x: Value,
    weight: Any,
    bias: Any,
    mean: Constant | None,
    var: Constant | None,
    training: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Value:
    """In training with the statistics of the global batch, else with the running ones, which are buffers of the text."""
    if not isinstance(weight, Value) or not isinstance(bias, Value):
        raise b.refuse("a batch norm without weight and bias")
    channels = x.dims[1]
    for other in (weight, bias):
        b.tie(channels, other.dims[0])
    x, weight, bias = b.logical(fresh(x)), b.logical(fresh(weight)), b.logical(fresh(bias))
    channels = leaves(channels)
    stats: tuple[Dim, ...] = (channels,)
    if training:
        middle, square = b.emit_many("batch_norm_stats", [x], [(stats, stats), (stats, stats)], ("mean", "square"))
        spread = b.emit(
            "sub", [square, b.emit("mul", [middle, middle], stats, stats, inner=True)], stats, stats, inner=True
        )
        variance = b.emit("relu", [spread], stats, stats, called="var")
        counted = tuple(a for k, d in enumerate(x.dims) if k != 1 for a in d)
        used = [middle, variance]
        for k, (held, now, weight_of) in enumerate(
            ((mean, middle, momentum), (var, variance, Unbiased(momentum, counted)))
        ):
            if isinstance(held, Constant) and held.node.op == "placeholder" and momentum is not None:
                b.tie(channels, held.dims[0])
                old = b.logical(fresh(b.buffer(held)))
                used[k] = b.emit("running", [now, old], stats, stats, inner=True)
                kept = b.emit("scale", [fresh(b.current(old))], stats, stats, inner=True, by=1 - momentum)
                added = b.emit("scale", [now], stats, stats, inner=True, by=weight_of)
                b.update(old, b.emit("add", [kept, added], stats, stats))
        middle, variance = used
    else:
        found: list[Value] = []
        for held in (mean, var):
            assert isinstance(held, Constant)
            b.tie(channels, held.dims[0])
            found.append(fresh(as_value(b, held)))
        middle, variance = found
    operands = [x, middle, variance, weight, bias]
    if eps == 1e-5:
        return b.emit("batch_norm", operands, x.dims, x.stored)
    return b.emit("batch_norm", operands, x.dims, x.stored, eps=eps)


@handles("aten.group_norm.default")
def group_norm(
    b: Builder, node: Node, x: Value, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Value:
    if not isinstance(weight, Value) or not isinstance(bias, Value):
        raise b.refuse("a group norm without weight and bias")
    for other in (weight, bias):
        b.tie(x.dims[1], other.dims[0])
    x = b.logical(fresh(x))
    operands = [x, b.logical(fresh(weight)), b.logical(fresh(bias))]
    attributes: dict[str, Any] = {"groups": groups} if eps == 1e-5 else {"groups": groups, "eps": eps}
    return b.emit("group_norm", operands, x.dims, x.stored, **attributes)
