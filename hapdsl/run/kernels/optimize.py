"""Update operators, in the order of operations of torch.optim, so that results agree to the last bits.

They write the new parameter and state over the old ones, as torch.optim does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hapdsl.run.context import Context
from hapdsl.run.kernels.registry import kernel, writes

Rate = float | Tensor  # a number, or a scalar on the same device
FUSED = (torch.float32, torch.float64) if hasattr(torch, "_fused_adam_") else ()


def _decayed(g: Tensor, w: Tensor, weight_decay: float) -> Tensor:
    return g.add(w, alpha=weight_decay) if weight_decay else g


@writes(0)
def sgd(ctx: Context, w: Tensor, g: Tensor, lr: Rate, *, weight_decay: float) -> Tensor:
    return _move(w, _decayed(g, w, weight_decay), lr)


@writes(0, 2)
def momentum(
    ctx: Context, w: Tensor, g: Tensor, m: Tensor, lr: Rate, *, momentum: float, weight_decay: float
) -> tuple[Tensor, Tensor]:
    m.mul_(momentum).add_(_decayed(g, w, weight_decay))
    return _move(w, m, lr), m


def _move(w: Tensor, along: Tensor, lr: Rate) -> Tensor:
    return w.copy_(w - lr * along) if isinstance(lr, Tensor) else w.add_(along, alpha=-lr)


@writes(0, 2, 3)
def adam(
    ctx: Context, w: Tensor, g: Tensor, m: Tensor, v: Tensor, lr: Rate, *, beta1: float, beta2: float, eps: float, weight_decay: float
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return _adam(ctx.updates, w, _decayed(g, w, weight_decay), m, v, lr, beta1, beta2, eps)


@writes(0, 2, 3)
def adamw(
    ctx: Context, w: Tensor, g: Tensor, m: Tensor, v: Tensor, lr: Rate, *, beta1: float, beta2: float, eps: float, weight_decay: float
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    if weight_decay:
        w.mul_(1 - lr * weight_decay)
    return _adam(ctx.updates, w, g, m, v, lr, beta1, beta2, eps)


def _adam(
    step: int, w: Tensor, g: Tensor, m: Tensor, v: Tensor, lr: Rate, beta1: float, beta2: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Kingma and Ba, arXiv 1412.6980, algorithm 1, with torch's order of operations."""
    if w.device.type == "cpu" and not isinstance(lr, Tensor) and w.dtype in FUSED:
        if all(t.dtype == w.dtype for t in (g, m, v)) and all(t.is_contiguous() for t in (w, m, v)):
            return _fused_adam(step, w, g, m, v, lr, beta1, beta2, eps)
    m.lerp_(g, 1 - beta1)
    v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    spread = v.sqrt().div_((1 - beta2**step) ** 0.5).add_(eps)
    if isinstance(lr, Tensor):
        return w.copy_(w - lr / (1 - beta1**step) * (m / spread)), m, v
    return w.addcdiv_(m, spread, value=-lr / (1 - beta1**step)), m, v


def _fused_adam(
    step: int, w: Tensor, g: Tensor, m: Tensor, v: Tensor, lr: float, beta1: float, beta2: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The same in one pass over memory: what torch.optim.Adam(fused=True) calls."""
    count = torch.tensor(float(step))
    torch._fused_adam_(
        [w], [g.contiguous()], [m], [v], [], [count],
        lr=lr, beta1=beta1, beta2=beta2, weight_decay=0.0, eps=eps, amsgrad=False, maximize=False,
    )  # fmt: skip
    return w, m, v


@kernel
def sum_squares(ctx: Context, x: Tensor, *, to: str) -> Tensor:
    x = x.to(ctx.dtype(to))
    return (x * x).sum()


@kernel
def clip_factor(ctx: Context, norm: Tensor, *, limit: float, eps: float) -> Tensor:
    return (limit / (norm + eps)).clamp(max=1.0)


@kernel
def clip(ctx: Context, g: Tensor, factor: Tensor) -> Tensor:
    return g * factor.to(g.dtype)


@kernel
def accumulate(ctx: Context, x: Tensor) -> Tensor:
    """Executors add up the turns as they come; what arrives here is the sum."""
    return x
