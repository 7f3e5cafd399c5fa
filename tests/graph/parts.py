"""Parts that several examples have, in torch's words; an example is a loss as a function of inputs and parameters by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

Tensors = dict[str, Tensor]
# torch's version, small settings, bounds of the integer inputs
Example = tuple[Callable[[Tensors], Tensor], dict[str, Any], dict[str, int]]


def norm(x: Tensor, t: Tensors, at: str) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], t[f"{at}.weight"], t[f"{at}.bias"])


def per_head(x: Tensor, w: Tensor) -> Tensor:
    """[b, s, d] by [d, h, e] -> [b, h, s, e]."""
    return (x @ w.flatten(1)).unflatten(-1, w.shape[1:]).transpose(1, 2)
