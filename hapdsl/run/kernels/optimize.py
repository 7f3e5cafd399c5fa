"""Update operators, in the order of operations of torch.optim, so that results agree to the last bits."""

from __future__ import annotations

import torch
from torch import Tensor

from hapdsl.run.context import Context
from hapdsl.run.kernels.registry import kernel


def _decayed(g: Tensor, w: Tensor, weight_decay: float) -> Tensor:
    return g.add(w, alpha=weight_decay) if weight_decay else g


@kernel
def sgd(ctx: Context, w: Tensor, g: Tensor, *, lr: float, weight_decay: float) -> Tensor:
    return w.add(_decayed(g, w, weight_decay), alpha=-lr)


@kernel
def momentum(
    ctx: Context, w: Tensor, g: Tensor, m: Tensor, *, lr: float, momentum: float, weight_decay: float
) -> tuple[Tensor, Tensor]:
    m_new = m.mul(momentum).add_(_decayed(g, w, weight_decay))
    return w.add(m_new, alpha=-lr), m_new


@kernel
def adam(
    ctx: Context, w: Tensor, g: Tensor, m: Tensor, v: Tensor, *, lr: float, beta1: float, beta2: float, eps: float, weight_decay: float
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return _adam(ctx.step, w, _decayed(g, w, weight_decay), m, v, lr, beta1, beta2, eps)


@kernel
def adamw(
    ctx: Context, w: Tensor, g: Tensor, m: Tensor, v: Tensor, *, lr: float, beta1: float, beta2: float, eps: float, weight_decay: float
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return _adam(ctx.step, w.mul(1 - lr * weight_decay) if weight_decay else w, g, m, v, lr, beta1, beta2, eps)


def _adam(
    step: int, w: Tensor, g: Tensor, m: Tensor, v: Tensor, lr: float, beta1: float, beta2: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Kingma and Ba, arXiv 1412.6980, algorithm 1, with torch's order of operations."""
    m_new = m.lerp(g, 1 - beta1)
    v_new = v.mul(beta2).addcmul_(g, g, value=1 - beta2)
    spread = v_new.sqrt().div_((1 - beta2**step) ** 0.5).add_(eps)
    return torch.addcdiv(w, m_new, spread, value=-lr / (1 - beta1**step)), m_new, v_new
