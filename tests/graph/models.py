"""The small models of programs/models once more, in torch's words, and all that there are by name."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from tests.graph.language_models import LANGUAGE
from tests.graph.parts import Example, Tensors, norm, per_head
from tests.graph.training_models import TRAINING
from tests.graph.vision_models import VISION


def mlp(t: Tensors) -> Tensor:
    h = F.relu(F.linear(t["x"], t["w1"].T, t["b1"]))
    return F.cross_entropy(h @ t["w2"], t["label"])


def cnn(t: Tensors) -> Tensor:
    x = F.max_pool2d(F.relu(F.conv2d(t["image"], t["k1"], padding=1)), 2)
    x = F.adaptive_avg_pool2d(F.relu(F.conv2d(x, t["k2"], padding=1)), 2).flatten(1)
    h = F.relu(F.linear(x, t["w1"].T, t["b1"]))
    return F.cross_entropy(F.linear(h, t["w2"].T, t["b2"]), t["label"])


def attend(x: Tensor, t: Tensors, at: str, causal: bool) -> Tensor:
    """Weights per head [d, h, e], output weight [h, e, d]."""
    q, k, v = (per_head(x, t[at + n]) for n in ("wq", "wk", "wv"))
    c = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return c.transpose(1, 2).flatten(2) @ t[at + "wo"].flatten(0, 1)


def layer(t: Tensors) -> Tensor:
    x = t["image"] @ t["embed"]
    r = x + attend(norm(x, t, "ln1"), t, "", False)
    y = r + F.gelu(norm(r, t, "ln2") @ t["w1"]) @ t["w2"]
    return F.cross_entropy(y.mean(1) @ t["head"], t["label"])


def vit_digits(t: Tensors) -> Tensor:
    patches = F.unfold(t["image"][:, None], 2, stride=2).mT
    x = patches @ t["embed"] + t["position"]
    for turn in range(2):
        at = f"layer.{turn}.encoder."
        r = x + attend(norm(x, t, at + "ln1"), t, at + "attend.", False)
        g = F.gelu(F.linear(norm(r, t, at + "ln2"), t[at + "feed_forward.w1"].T, t[at + "feed_forward.b1"]))
        x = r + F.linear(g, t[at + "feed_forward.w2"].T, t[at + "feed_forward.b2"])
    return F.cross_entropy(F.linear(norm(x, t, "norm").mean(1), t["head"].T, t["bias"]), t["label"])


def encoder(t: Tensors) -> Tensor:
    x = t["image"] @ t["embed"] + t["position"]
    for turn in range(2):
        at = f"layer.{turn}.block."
        q, k, v = ((x @ t[f"{at}attend.{w}"]).unflatten(-1, (2, -1)).transpose(1, 2) for w in ("wq", "wk", "wv"))
        o = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2) @ t[at + "attend.wo"]
        r = norm(x + o, t, at + "ln1")
        g = F.gelu(F.linear(r, t[at + "feed_forward.w1"].T, t[at + "feed_forward.b1"]))
        x = norm(r + F.linear(g, t[at + "feed_forward.w2"].T, t[at + "feed_forward.b2"]), t, at + "ln2")
    return F.cross_entropy(x.mean(1) @ t["head"], t["label"])


def blocks(x: Tensor, t: Tensors, attention: str) -> Tensor:
    for turn in range(2):
        at = f"layer.{turn}.block."
        r = x + attend(norm(x, t, at + "ln1"), t, at + attention, True)
        x = r + F.gelu(norm(r, t, at + "ln2") @ t[at + "w1"]) @ t[at + "w2"]
    return x


def decoder(t: Tensors) -> Tensor:
    x = blocks(F.embedding(t["tokens"], t["table"]) + t["position"], t, "attend.")
    return F.cross_entropy((norm(x, t, "norm") @ t["table"].T).flatten(0, 1), t["target"].flatten(), ignore_index=-100)


def gpt(t: Tensors) -> Tensor:
    x = blocks(F.embedding(t["tokens"], t["embed"]), t, "")
    return F.cross_entropy((x @ t["head"]).flatten(0, 1), t["target"].flatten())


def rezero(t: Tensors) -> Tensor:
    x = F.embedding(t["tokens"], t["embed"])
    for turn in range(2):
        at = f"layer.{turn}.block."
        r = x + t[at + "gain"] * attend(x, t, at + "attend.", True)
        x = r + t[at + "gain"] * (F.gelu(r @ t[at + "w1"]) @ t[at + "w2"])
    return F.cross_entropy((x @ t["head"]).flatten(0, 1), t["target"].flatten())


EXAMPLES: dict[str, Example] = {
    "mlp": (mlp, {"batch": 6, "d": 5, "hidden": 7, "classes": 4}, {"label": 4}),
    "cnn": (cnn, {"batch": 3, "channels": 2, "features": 3, "hidden": 5}, {"label": 10}),
    "layer": (layer, {"batch": 3, "d": 6, "heads": 2, "ffn": 7}, {"label": 10}),
    "vit_digits": (vit_digits, {"batch": 3, "d": 6, "heads": 2, "hidden": 7}, {"label": 10}),
    "encoder": (encoder, {"batch": 3, "d": 6, "heads": 2, "ffn": 7, "p": 0}, {"label": 10}),
    "decoder": (decoder, {"batch": 2, "seq": 5, "d": 6, "heads": 2, "ffn": 7, "vocab": 9, "p": 0}, {"tokens": 9, "target": 9}),
    "gpt": (gpt, {"batch": 2, "seq": 5, "d": 6, "heads": 2, "ffn": 7, "vocab": 9}, {"tokens": 9, "target": 9}),
    "rezero": (rezero, {"batch": 2, "seq": 5, "d": 6, "heads": 2, "ffn": 7, "vocab": 9, "layers": 2}, {"tokens": 9, "target": 9}),
    **VISION,
    **LANGUAGE,
    **TRAINING,
}  # fmt: skip
