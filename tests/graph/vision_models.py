"""The image models of programs/models once more, in torch's words: loss as a function of inputs and parameters by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Tensors = dict[str, Tensor]
# torch's version, small settings, bounds of the integer inputs
Example = tuple[Callable[[Tensors], Tensor], dict[str, Any], dict[str, int]]


def dense(x: Tensor, t: Tensors, at: str) -> Tensor:
    """Weights [in, out], as these models hold them."""
    return F.linear(x, t[f"{at}.weight"].T, t[f"{at}.bias"])


def vgg19(t: Tensors) -> Tensor:
    x = t["image"]
    for group, convs in zip(range(1, 6), (2, 2, 4, 4, 4), strict=True):
        for name in ["first", *(f"next.{k}.conv" for k in range(convs - 1))]:
            at = f"group{group}.{name}"
            x = F.relu(F.conv2d(x, t[f"{at}.weight"], t[f"{at}.bias"], padding=1))
        x = F.max_pool2d(x, 2)
    x = F.adaptive_avg_pool2d(x, 7).flatten(1)
    for name in ("fc1.linear", "fc2.linear"):
        x = F.relu(dense(x, t, name))
    return F.cross_entropy(dense(x, t, "fc3"), t["label"])


def vit(t: Tensors) -> Tensor:
    patch = 2
    kernel = t["embed.weight"].T.unflatten(1, (3, patch, patch))
    x = F.conv2d(t["image"], kernel, t["embed.bias"], stride=patch).flatten(2).mT
    x = torch.cat([t["embed.token"].expand(len(x), 1, -1), x], 1) + t["embed.position"]
    for turn in range(2):
        at = f"layer.{turn}.encoder."
        x = x + attend(norm(x, t, at + "norm1"), t, at + "attend.")
        f = at + "feed_forward."
        g = F.gelu(norm(x, t, at + "norm2") @ t[f + "w1"] + t[f + "b1"])
        x = x + g @ t[f + "w2"] + t[f + "b2"]
    return F.cross_entropy(norm(x, t, "norm")[:, 0] @ t["head"] + t["bias"], t["label"])


def norm(x: Tensor, t: Tensors, at: str) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], t[f"{at}.weight"], t[f"{at}.bias"])


def attend(x: Tensor, t: Tensors, at: str) -> Tensor:
    """By torch's own multi-head attention, its packed weights made of ours."""
    heads, d = t[at + "wo"].shape[0], x.shape[-1]
    packed = torch.cat([t[at + w].flatten(1).T for w in ("wq", "wk", "wv")])
    bias = torch.cat([t[at + b].flatten() for b in ("bq", "bk", "bv")])
    q = x.transpose(0, 1)
    out, _ = F.multi_head_attention_forward(
        q, q, q, d, heads, packed, bias, None, None, False, 0.0, t[at + "wo"].flatten(0, 1).T, t[at + "bo"], need_weights=False
    )  # fmt: skip
    return out.transpose(0, 1)


VISION: dict[str, Example] = {
    "vgg19": (vgg19, {"batch": 2, "c1": 3, "c2": 2, "c3": 4, "c4": 3, "c5": 2, "wide": 5, "classes": 4, "p": 0}, {"label": 4}),
    "vit": (vit, {"batch": 3, "layers": 2, "d": 6, "heads": 2, "ffn": 7, "size": 6, "patch": 2, "classes": 4}, {"label": 4}),
}  # fmt: skip
