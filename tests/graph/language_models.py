"""The language models of programs/models once more, in torch's words: loss as a function of inputs and parameters by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.graph.vision_models import attend, norm

Tensors = dict[str, Tensor]
# torch's version, small settings, bounds of the integer inputs
Example = tuple[Callable[[Tensors], Tensor], dict[str, Any], dict[str, int]]


def feed_forward(x: Tensor, t: Tensors, at: str) -> Tensor:
    return F.linear(F.gelu(F.linear(x, t[at + "w1"].T, t[at + "b1"])), t[at + "w2"].T, t[at + "b2"])


def bert_encoder(x: Tensor, t: Tensors, at: str, part: Callable[[Tensor], Tensor]) -> Tensor:
    r = norm(x + attend(x, t, at + "attend."), t, at + "norm1.norm")
    return norm(r + part(r), t, at + "norm2.norm")


def embedded(t: Tensors) -> Tensor:
    x = F.embedding(t["tokens"], t["embed.token"]) + F.embedding(t["kinds"], t["embed.kind"])
    return norm(x + t["embed.position"], t, "embed.norm")


def masked_loss(x: Tensor, t: Tensors) -> Tensor:
    z = F.linear(x, t["masked_loss.weight"].T, t["masked_loss.bias"])
    return F.cross_entropy(z.flatten(0, 1), t["target"].flatten(), ignore_index=-100)


def bert(t: Tensors) -> Tensor:
    x = embedded(t)
    for turn in range(2):
        at = f"layer.{turn}.encoder."
        x = bert_encoder(x, t, at, lambda r, f=at + "feed_forward.": feed_forward(r, t, f))  # type: ignore[misc]
    return masked_loss(x, t)


def mixture(x: Tensor, t: Tensors, at: str, capacity: int) -> Tensor:
    """Token by token: each goes to its two best experts, first choices of a sequence before second ones, while there is room."""
    gates = torch.softmax(x @ t[at + "gate"], -1)
    out = torch.zeros_like(x)
    for b in range(len(x)):
        room = [capacity] * gates.shape[-1]
        ranked = gates[b].argsort(-1, descending=True)[:, :2]
        for choice in range(2):
            for s in range(x.shape[1]):
                e = int(ranked[s, choice])
                if room[e]:
                    room[e] -= 1
                    weight = gates[b, s, e] / gates[b, s, ranked[s]].sum()
                    out[b, s] += weight * (F.gelu(x[b, s] @ t[at + "w1"][e]) @ t[at + "w2"][e])
    return out


def bert_moe(t: Tensors) -> Tensor:
    x = embedded(t)
    for turn in range(2):
        dense, sparse = f"pair.{turn}.encoder.", f"pair.{turn}.sparse_encoder."
        h = bert_encoder(x, t, dense, lambda r, f=dense + "feed_forward.": feed_forward(r, t, f))  # type: ignore[misc]
        x = bert_encoder(h, t, sparse, lambda r, f=sparse + "mixture.": mixture(r, t, f, 2))  # type: ignore[misc]
    return masked_loss(x, t)


BERT = {"batch": 2, "seq": 5, "d": 6, "heads": 2, "ffn": 7, "vocab": 9, "layers": 2, "p": 0}
IDS = {"tokens": 9, "target": 9, "kinds": 2}
LANGUAGE: dict[str, Example] = {
    "bert": (bert, BERT, IDS),
    "bert_moe": (bert_moe, {**BERT, "layers": 4, "experts": 3, "capacity": 2}, IDS),
}
