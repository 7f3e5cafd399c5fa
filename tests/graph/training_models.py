"""torch's versions of the examples of training (frozen parts, accumulation, mixed precision), for `test_models`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.graph.parts import Tensors, norm, per_head


def lora(t: Tensors, strength: float = 2.0) -> Tensor:
    """Weight matrices with the product of two thin ones added to them: W + strength / rank * a b, as one matrix."""
    x = F.embedding(t["tokens"], t["embed"])
    for turn in range(2):
        at = f"layer.{turn}.block."

        def merged(which: str, at: str = at) -> Tensor:
            a, b = t[f"{at}{which}.a"], t[f"{at}{which}.b"]
            return t[f"{at}{which}.w"] + strength / a.shape[1] * (a @ b.flatten(1)).unflatten(-1, b.shape[1:])

        n = norm(x, t, f"{at}ln1")
        q, k, v = (per_head(n, w) for w in (merged("query"), t[f"{at}wk"], merged("value")))
        c = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        r = x + c.transpose(1, 2).flatten(2) @ t[f"{at}wo"].flatten(0, 1)
        x = r + F.gelu(norm(r, t, f"{at}ln2") @ t[f"{at}w1"]) @ t[f"{at}w2"]
    return F.cross_entropy((x @ t["head"]).flatten(0, 1), t["target"].flatten())


def accumulate(t: Tensors) -> Tensor:
    """The whole batch at once; counts the step."""
    t["step"] += 1
    x = F.embedding(t["tokens"], t["embed"]) + t["position"]
    for turn in range(2):
        at = f"layer.{turn}.block."
        n = norm(x, t, f"{at}ln1")
        c = F.scaled_dot_product_attention(*(per_head(n, t[at + w]) for w in ("wq", "wk", "wv")))
        r = x + c.transpose(1, 2).flatten(2) @ t[f"{at}wo"].flatten(0, 1)
        x = r + F.gelu(norm(r, t, f"{at}ln2") @ t[f"{at}w1"]) @ t[f"{at}w2"]
    return F.cross_entropy((x @ t["head"]).flatten(0, 1), t["target"].flatten(), ignore_index=-100)


def mixed(t: Tensors) -> Tensor:
    """In whatever precision the tensors have: norms and the loss in at least f32."""
    x = F.embedding(t["tokens"], t["embed"])

    def wide_norm(x: Tensor, at: str) -> Tensor:
        weight, bias = t[f"{at}.weight"], t[f"{at}.bias"]
        return F.layer_norm(x.to(weight.dtype), x.shape[-1:], weight, bias).to(x.dtype)

    for turn in range(2):
        at = f"layer.{turn}.block."
        n = wide_norm(x, f"{at}ln1")
        q, k, v = (per_head(n, t[at + w]) for w in ("wq", "wk", "wv"))
        c = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        r = x + c.transpose(1, 2).flatten(2) @ t[f"{at}wo"].flatten(0, 1)
        x = r + F.gelu(wide_norm(r, f"{at}ln2") @ t[f"{at}w1"]) @ t[f"{at}w2"]
    z = x @ t["head"]
    return F.cross_entropy(z.to(torch.promote_types(z.dtype, torch.float32)).flatten(0, 1), t["target"].flatten())


# name: torch's version, small settings, bounds of the integer inputs
TRAINING: dict[str, tuple[Callable[[Tensors], Tensor], dict[str, Any], dict[str, int]]] = {
    "lora": (lora, {"batch": 4, "seq": 5, "d": 8, "heads": 2, "ffn": 6, "vocab": 9, "layers": 2, "rank": 2, "strength": 2}, {"tokens": 9, "target": 9}),
    "accumulate": (accumulate, {"batch": 6, "turns": 3, "seq": 5, "d": 8, "heads": 2, "ffn": 6, "vocab": 9, "layers": 2, "p": 0}, {"tokens": 9, "target": 9}),
    "mixed": (mixed, {"batch": 4, "seq": 5, "d": 8, "heads": 2, "ffn": 6, "vocab": 9, "layers": 2}, {"tokens": 9, "target": 9}),
}  # fmt: skip
