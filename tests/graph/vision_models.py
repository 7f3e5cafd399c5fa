"""The image models of programs/models once more, in torch's words: loss as a function of inputs and parameters by name."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.graph.parts import Example, Tensors, norm


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


def bottleneck_conv(x: Tensor, t: Tensors, at: str, stride: int = 1) -> Tensor:
    """Convolution and batch normalisation in training mode: what torch.nn.SyncBatchNorm computes over all devices."""
    w = t[f"{at}.weight"]
    c = F.conv2d(x, w, stride=stride, padding=w.shape[-1] // 2)
    running = (t[f"{at}.norm.running_mean"], t[f"{at}.norm.running_var"])
    return F.batch_norm(c, *running, t[f"{at}.norm.weight"], t[f"{at}.norm.bias"], training=True)


def branch(x: Tensor, t: Tensors, at: str, stride: int = 1) -> Tensor:
    a = F.relu(bottleneck_conv(x, t, f"{at}.conv1"))
    b = F.relu(bottleneck_conv(a, t, f"{at}.conv2", stride))
    return bottleneck_conv(b, t, f"{at}.conv3")


def resnet(t: Tensors) -> Tensor:
    x = F.max_pool2d(F.relu(bottleneck_conv(t["image"], t, "stem", 2)), 3, 2, 1)
    for stage, (stride, blocks) in enumerate(((1, 3), (2, 4), (2, 6), (2, 3)), start=1):
        at = f"stage{stage}"
        x = F.relu(bottleneck_conv(x, t, f"{at}.shortcut", stride) + branch(x, t, f"{at}.branch", stride))
        for block in range(blocks - 1):
            x = F.relu(x + branch(x, t, f"{at}.block.{block}.branch"))
    return F.cross_entropy(x.mean((2, 3)) @ t["head"] + t["bias"], t["label"])


def unet(t: Tensors) -> Tensor:
    groups = 2

    def block(x: Tensor, at: str) -> Tensor:
        for conv in ("conv1", "conv2"):
            c = F.conv2d(x, t[f"{at}.{conv}.weight"], padding=1)
            x = F.relu(F.group_norm(c, groups, t[f"{at}.{conv}.norm.weight"], t[f"{at}.{conv}.norm.bias"]))
        return x

    skips = [block(t["image"], "block")]
    for level in range(2, 6):
        skips.append(block(F.max_pool2d(skips[-1], 2), f"down{level}.block"))
    x = skips.pop()
    for level in range(4, 0, -1):
        x = F.conv_transpose2d(x, t[f"up{level}.weight"], t[f"up{level}.bias"], stride=2)
        x = block(torch.cat([skips.pop(), x], 1), f"up{level}.block")
    return F.cross_entropy(F.conv2d(x, t["head"], t["bias"]), t["label"])


def dlrm(t: Tensors) -> Tensor:
    def mlp(x: Tensor, at: str) -> Tensor:
        h = F.relu(dense(x, t, f"{at}.dense1"))
        return dense(F.relu(dense(h, t, f"{at}.dense2")), t, f"{at}.dense3")

    bottom = F.relu(mlp(t["x"], "bottom"))
    vectors = [F.embedding_bag(t[f"ids{k}"][:, 0], t[f"table{k}.table"], mode="sum") for k in range(1, 9)]
    v = torch.stack([bottom, *vectors], 1)
    pairs = [(v[:, i] * v[:, j]).sum(-1) for i in range(9) for j in range(i)]
    z = mlp(torch.cat([bottom, torch.stack(pairs, 1)], 1), "top")[:, 0]
    return F.binary_cross_entropy_with_logits(z, t["clicked"])


VISION: dict[str, Example] = {
    "vgg19": (vgg19, {"batch": 2, "c1": 3, "c2": 2, "c3": 4, "c4": 3, "c5": 2, "wide": 5, "classes": 4, "p": 0}, {"label": 4}),
    "vit": (vit, {"batch": 3, "layers": 2, "d": 6, "heads": 2, "ffn": 7, "size": 6, "patch": 2, "classes": 4}, {"label": 4}),
    "resnet": (resnet, {"batch": 8, "size": 40, "w1": 4, "w2": 3, "w3": 4, "w4": 4, "classes": 4}, {"label": 4}),
    "unet": (unet, {"batch": 2, "size": 16, "w1": 2, "w2": 4, "w3": 2, "w4": 6, "w5": 4, "groups": 2, "classes": 3}, {"label": 3}),
    "dlrm": (
        dlrm,
        {"batch": 5, "numbers": 3, "d": 4, "bag": 3, "h1": 5, "h2": 6} | {f"r{k}": 3 + k for k in range(1, 9)},
        {f"ids{k}": 3 + k for k in range(1, 9)},
    ),
}  # fmt: skip
