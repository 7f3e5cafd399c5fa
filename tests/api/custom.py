"""A function that the theory doesn't know, as a torch operator and as the kernel of an `op` of its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn


@torch.library.custom_op("hapdsl_tests::softsign", mutates_args=())
def softsign(x: Tensor, scale: float) -> Tensor:
    return scale * x / (1 + x.abs())


@softsign.register_fake
def _(x: Tensor, scale: float) -> Tensor:
    return torch.empty_like(x)


def _backward(ctx, g: Tensor):
    (x,) = ctx.saved_tensors
    return g * ctx.scale / (1 + x.abs()) ** 2, None


def _keep(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.scale = inputs[1]


softsign.register_autograd(_backward, setup_context=_keep)

OPS = """
op softsign(x[*i], attr scale = 1) -> y[*i] {
    flops 3 * i
    grad  x = softsign_grad(x, y.grad, scale = scale)
    torch "tests.api.custom.softsign_kernel"
}
op softsign_grad(x[*i], g[*i], attr scale = 1) -> y[*i] {
    linear g
    flops  5 * i
    torch  "tests.api.custom.softsign_grad_kernel"
}
"""


def softsign_kernel(context, x: Tensor, *, scale: float) -> Tensor:
    return scale * x / (1 + x.abs())


def softsign_grad_kernel(context, x: Tensor, g: Tensor, *, scale: float) -> Tensor:
    return g * scale / (1 + x.abs()) ** 2


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(softsign(self.fc1(x), 2.0))
