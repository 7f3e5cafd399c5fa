"""The language models of programs/models once more, in torch's words: loss as a function of inputs and parameters by name."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.graph.parts import Example, Tensors, norm, per_head
from tests.graph.vision_models import attend


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
        x = bert_encoder(x, t, at, lambda r, f=at + "feed_forward.": feed_forward(r, t, f))
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
        h = bert_encoder(x, t, dense, lambda r, f=dense + "feed_forward.": feed_forward(r, t, f))
        x = bert_encoder(h, t, sparse, lambda r, f=sparse + "mixture.": mixture(r, t, f, 2))
    return masked_loss(x, t)


def causal(q: Tensor, k: Tensor, v: Tensor, wo: Tensor) -> Tensor:
    c = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return c.transpose(1, 2).flatten(2) @ wo.flatten(0, 1)


def gpt2(t: Tensors) -> Tensor:
    x = F.embedding(t["tokens"], t["table"]) + t["position"]
    for turn in range(2):
        at = f"layer.{turn}.block."
        n, own = norm(x, t, at + "norm1"), at + "attend."
        q, k, v = (per_head(n, t[f"{own}w{c}"]) + t[f"{own}b{c}"] for c in "qkv")
        x = x + causal(q, k, v, t[own + "wo"]) + t[own + "bo"]
        f = at + "feed_forward."
        u = F.linear(norm(x, t, at + "norm2"), t[f + "w1"].T, t[f + "b1"])
        x = x + F.linear(F.gelu(u, approximate="tanh"), t[f + "w2"].T, t[f + "b2"])
    return F.cross_entropy((norm(x, t, "norm") @ t["table"].T).flatten(0, 1), t["target"].flatten())


def rms(x: Tensor, t: Tensors, at: str) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], t[at + ".weight"], 1e-5)


def turned(x: Tensor, base: float) -> Tensor:
    """Rotary positions by complex numbers; the halves of a head's features are the two parts."""
    real, imaginary = x.chunk(2, -1)
    half = real.shape[-1]
    rate = base ** -(torch.arange(half, dtype=x.dtype) / half)
    angle = torch.outer(torch.arange(x.shape[-2], dtype=x.dtype), rate)
    made = torch.complex(real, imaginary) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([made.real, made.imag], -1)


def grouped(x: Tensor, t: Tensors, at: str, base: float) -> Tensor:
    q, k, v = (per_head(x, t[at + w]) for w in ("wq", "wk", "wv"))
    shared = q.shape[1] // k.shape[1]
    k, v = turned(k, base).repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
    return causal(turned(q, base), k, v, t[at + "wo"])


def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return (F.silu(x @ gate) * (x @ up)) @ down


def llama(t: Tensors) -> Tensor:
    x = F.embedding(t["tokens"], t["embed"])
    for turn in range(2):
        at = f"layer.{turn}.block."
        x = x + grouped(rms(x, t, at + "norm1"), t, at + "attend.", 500000)
        x = x + swiglu(rms(x, t, at + "norm2"), *(t[f"{at}swiglu.{w}"] for w in ("gate", "up", "down")))
    return F.cross_entropy((rms(x, t, "norm") @ t["head"]).flatten(0, 1), t["target"].flatten())


def mixtral(t: Tensors) -> Tensor:
    """Dispatched as transformers' Mixtral does it, expert by expert, since with capacity = seq nobody is left out."""
    x = F.embedding(t["tokens"], t["embed"])
    uneven = [t["none"]]  # zero, but for tests that draw what is frozen too
    for turn in range(2):
        at = f"layer.{turn}.sparse_block."
        x = x + grouped(rms(x, t, at + "norm1"), t, at + "attend.", 1000000)
        n, own = rms(x, t, at + "norm2"), at + "experts_of."
        gates = torch.softmax(n @ t[own + "router"], -1)
        weights, chosen = gates.topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        for e in range(gates.shape[-1]):
            worked = swiglu(n, *(t[own + w][e] for w in ("gate", "up", "down")))
            x = x + worked * (weights * (chosen == e)).sum(-1, keepdim=True)
        asked = F.one_hot(chosen, gates.shape[-1]).to(gates.dtype).mean((1, 2))
        uneven.append(gates.shape[-1] * (asked * gates.mean(1)).sum(-1).mean())
    named = F.cross_entropy((rms(x, t, "norm") @ t["head"]).flatten(0, 1), t["target"].flatten())
    return named + 0.02 * sum(uneven) / 2


BERT = {"batch": 2, "seq": 5, "d": 6, "heads": 2, "ffn": 7, "vocab": 9, "layers": 2, "p": 0}
LLAMA = {"batch": 2, "seq": 5, "d": 8, "heads": 4, "kv": 2, "ffn": 7, "vocab": 9, "layers": 2}
IDS = {"tokens": 9, "target": 9, "kinds": 2}
LANGUAGE: dict[str, Example] = {
    "bert": (bert, BERT, IDS),
    "bert_moe": (bert_moe, {**BERT, "layers": 4, "experts": 3, "capacity": 2}, IDS),
    "gpt2": (gpt2, BERT, {"tokens": 9, "target": 9}),
    "llama": (llama, LLAMA, {"tokens": 9, "target": 9}),
    "mixtral": (mixtral, {**LLAMA, "experts": 3, "capacity": 5}, {"tokens": 9, "target": 9}),
}
