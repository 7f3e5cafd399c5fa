"""Elementwise operators that torch has no function for, or whose arguments differ."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor
from torch.nn.functional import gelu as torch_gelu
from torch.nn.functional import silu as torch_silu

from hapdsl.run.context import Context
from hapdsl.run.kernels.registry import kernel
from hapdsl.run.kernels.stretch import in_full

aten = torch.ops.aten


@kernel
def scale(ctx: Context, x: Tensor, *, by: float) -> Tensor:
    return x * by


@kernel
def shift(ctx: Context, x: Tensor, *, by: float) -> Tensor:
    return x + by


@kernel
def relu_grad(ctx: Context, y: Tensor, g: Tensor) -> Tensor:
    return aten.threshold_backward(g, y, 0)


@kernel
def tanh_grad(ctx: Context, y: Tensor, g: Tensor) -> Tensor:
    return aten.tanh_backward(g, y)


@kernel
def sigmoid_grad(ctx: Context, y: Tensor, g: Tensor) -> Tensor:
    return aten.sigmoid_backward(g, y)


@kernel
def gelu(ctx: Context, x: Tensor) -> Tensor:
    return torch_gelu(x)


@kernel
def gelu_grad(ctx: Context, x: Tensor, g: Tensor) -> Tensor:
    return aten.gelu_backward(*in_full(g, x))


@kernel
def gelu_tanh(ctx: Context, x: Tensor) -> Tensor:
    return torch_gelu(x, approximate="tanh")


@kernel
def gelu_tanh_grad(ctx: Context, x: Tensor, g: Tensor) -> Tensor:
    return aten.gelu_backward(*in_full(g, x), approximate="tanh")


@kernel
def silu(ctx: Context, x: Tensor) -> Tensor:
    return torch_silu(x)


@kernel
def silu_grad(ctx: Context, x: Tensor, g: Tensor) -> Tensor:
    return aten.silu_backward(g, x)


@kernel
def cast(ctx: Context, x: Tensor, *, to: str) -> Tensor:
    return x.to(ctx.dtype(to))


@kernel
def cast_like(ctx: Context, g: Tensor, x: Tensor) -> Tensor:
    return g.to(x.dtype).expand(ctx.result_shape())


@kernel
def dropout(ctx: Context, x: Tensor, *, p: float, seed: int, key: str) -> Tensor:
    if p >= 1:
        return torch.zeros_like(x)
    keep = kept(ctx.linear_index(0, x.device), f"{ctx.seed}/{seed}/{ctx.step}/{key}", p)
    return keep.to(x.dtype).mul_(x).div_(1 - p)


@kernel
def drop_path(ctx: Context, x: Tensor, *, p: float, seed: int, key: str) -> Tensor:
    if p >= 1:
        return torch.zeros_like(x)
    here = ctx.spans()[0]
    samples = torch.arange(here.offset, here.offset + here.length, dtype=torch.int64, device=x.device)
    keep = kept(samples, f"{ctx.seed}/{seed}/{ctx.step}/{key}", p)
    return (x * keep.reshape(-1, *[1] * (x.dim() - 1))).div_(1 - p)


def kept(numbers: Tensor, key: str, p: float) -> Tensor:
    """bool, shape of `numbers`: those of a number that is p or more, drawn from [0, 1) with 53 bits for each element's global number
    (i64, any shape); a function of `key` and that number.

    The element's global row-major number is added to a 64-bit hash of the key (blake2b) in steps of an odd
    constant, and mixed by SplitMix64's finaliser (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
    Generators, OOPSLA 2014). Integers wrap around. So every device draws the same numbers for the same elements.
    """
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    base = int.from_bytes(digest, "little", signed=True)
    state = (numbers * _signed(0x9E3779B97F4A7C15)).add_(base)
    state.bitwise_xor_(_shifted_right(state, 30)).mul_(_signed(0xBF58476D1CE4E5B9))
    state.bitwise_xor_(_shifted_right(state, 27)).mul_(_signed(0x94D049BB133111EB))
    state.bitwise_xor_(_shifted_right(state, 31))
    return _shifted_right(state, 11) >= math.ceil(p * 2**53)  # exactly: p times a power of two


def _signed(number: int) -> int:
    """The signed 64-bit integer with these bits."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _shifted_right(x: Tensor, bits: int) -> Tensor:
    """Logical shift of 64-bit integers: torch's own shift copies the sign."""
    return (x >> bits).bitwise_and_((1 << (64 - bits)) - 1)


@kernel
def clamp_grad(ctx: Context, x: Tensor, g: Tensor, *, min: float, max: float) -> Tensor:
    return g * ((x >= min) & (x <= max))
