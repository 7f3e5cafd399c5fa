"""Update operators, in the order of operations of torch.optim, so that results agree to the last bits."""

from __future__ import annotations

import torch
from torch import Tensor

from hapdsl.run.context import Context
from hapdsl.run.kernels.registry import kernel

Rate = float | Tensor  # a number, or a scalar on the same device
FUSED = (torch.float32, torch.float64) if hasattr(torch, "_fused_adam_") else ()


def _decayed(g: Tensor, w: Tensor, weight_decay: float) -> Tensor:
    return g.add(w, alpha=weight_decay) if weight_decay else g


@kernel
def sgd(ctx: Context, w: Tensor, g: Tensor, lr: Rate, *, weight_decay: float) -> Tensor:
    return _moved(w, _decayed(g, w, weight_decay), lr)


@kernel
def momentum(
    ctx: Context, w: Tensor, g: Tensor, m: Tensor, lr: Rate, *, momentum: float, weight_decay: float
) -> tuple[Tensor, Tensor]:
    m_new = m.mul(momentum).add_(_decayed(g, w, weight_decay))
    return _moved(w, m_new, lr), m_new


def _moved(w: Tensor, along: Tensor, lr: Rate) -> Tensor:
    return (w - lr * along).to(w.dtype) if isinstance(lr, Tensor) else w.add(along, alpha=-lr)


@kernel
def adam(
    ctx: Context, w: Tensor, g: Tensor, m: Tensor, v: Tensor, lr: Rate, *, beta1: float, beta2: float, eps: float, weight_decay: float
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return _adam(ctx.updates, w, _decayed(g, w, weight_decay), m, v, lr, beta1, beta2, eps)


@kernel
def adamw(
    ctx: Context, w: Tensor, g: Tensor, m: Tensor, v: Tensor, lr: Rate, *, beta1: float, beta2: float, eps: float, weight_decay: float
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return _adam(
        ctx.updates, w.mul(1 - lr * weight_decay).to(w.dtype) if weight_decay else w, g, m, v, lr, beta1, beta2, eps
    )


def _adam(
    step: int, w: Tensor, g: Tensor, m: Tensor, v: Tensor, lr: Rate, beta1: float, beta2: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Kingma and Ba, arXiv 1412.6980, algorithm 1, with torch's order of operations."""
    if (
        w.device.type == "cpu"
        and not isinstance(lr, Tensor)
        and all(t.dtype == w.dtype for t in (g, m, v))
        and w.dtype in FUSED
    ):
        return _fused_adam(step, w, g, m, v, lr, beta1, beta2, eps)
    m_new = m.lerp(g, 1 - beta1)
    v_new = v.mul(beta2).addcmul_(g, g, value=1 - beta2)
    spread = v_new.sqrt().div_((1 - beta2**step) ** 0.5).add_(eps)
    if isinstance(lr, Tensor):
        return (w - lr / (1 - beta1**step) * (m_new / spread)).to(w.dtype), m_new, v_new
    return torch.addcdiv(w, m_new, spread, value=-lr / (1 - beta1**step)), m_new, v_new


def _fused_adam(
    step: int, w: Tensor, g: Tensor, m: Tensor, v: Tensor, lr: float, beta1: float, beta2: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The same in one pass over memory, on copies: what torch.optim.Adam(fused=True) calls."""
    w, m, v = (t.clone(memory_format=torch.contiguous_format) for t in (w, m, v))
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
