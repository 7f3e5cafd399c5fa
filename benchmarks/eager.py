"""The transformer of programs/models/gpt.hap by hand: once as plain tensor calls, once as an nn.Module.

`Eager` does the instructions of our program one after another, without autograd, as somebody would who has the formulas: it is what
the runner's own overhead is measured against. `Module` is the same model for DistributedDataParallel.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

aten = torch.ops.aten
EPS = 1e-5


class Eager:
    """Parameters by hapdsl's names; `step` trains them with Adam and returns the loss."""

    def __init__(self, params: Mapping[str, Tensor], layers: int, lr: float = 0.0003) -> None:
        self.p = {n: t.clone() for n, t in params.items()}
        self.m = {n: torch.zeros_like(t) for n, t in self.p.items()}
        self.v = {n: torch.zeros_like(t) for n, t in self.p.items()}
        self.layers, self.lr, self.count = layers, lr, 0

    def step(self, tokens: Tensor, target: Tensor) -> Tensor:
        p, kept = self.p, []
        self.count += 1
        x = F.embedding(tokens, p["embed"])
        for layer in range(self.layers):
            w = {n: p[f"layer{layer}.{n}"] for n in NAMES}
            n = F.layer_norm(x, w["ln1.weight"].shape, w["ln1.weight"], w["ln1.bias"], EPS)
            q = torch.einsum("bsd,dhe->bhse", n, w["wq"])
            k = torch.einsum("bsd,dhe->bhse", n, w["wk"])
            v = torch.einsum("bsd,dhe->bhse", n, w["wv"])
            c = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            r = x + torch.einsum("bhse,hed->bsd", c, w["wo"])
            l = F.layer_norm(r, w["ln2.weight"].shape, w["ln2.weight"], w["ln2.bias"], EPS)  # noqa: E741
            f = l @ w["w1"]
            g = F.gelu(f)
            kept.append((w, x, n, q, k, v, c, r, l, f, g))
            x = r + g @ w["w2"]
        z = x @ p["head"]
        rows = z.shape[0] * z.shape[1]
        loss = -torch.log_softmax(z, -1).gather(-1, target.unsqueeze(-1)).sum() / rows
        dz = torch.softmax(z, -1)
        dz.scatter_add_(-1, target.unsqueeze(-1), dz.new_full((), -1.0).expand(*target.shape, 1))
        dz = dz * (1 / rows)
        grads = {"head": _tn(x, dz)}
        dx = dz @ p["head"].mT
        del z, dz
        while kept:
            dx, own = _back(dx, *kept.pop())
            grads |= {f"layer{len(kept)}.{n}": t for n, t in own.items()}
        grads["embed"] = aten.embedding_dense_backward(dx, tokens, p["embed"].shape[0], -1, False)
        for name in list(grads):
            self.adam(name, grads.pop(name))
        return loss

    def adam(self, name: str, g: Tensor, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> None:
        self.m[name] = self.m[name].lerp(g, 1 - beta1)
        self.v[name] = self.v[name].mul(beta2).addcmul_(g, g, value=1 - beta2)
        spread = self.v[name].sqrt().div_((1 - beta2**self.count) ** 0.5).add_(eps)
        self.p[name] = torch.addcdiv(self.p[name], self.m[name], spread, value=-self.lr / (1 - beta1**self.count))


NAMES = ("ln1.weight", "ln1.bias", "wq", "wk", "wv", "wo", "ln2.weight", "ln2.bias", "w1", "w2")


def _tn(x: Tensor, g: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1]).mT @ g.reshape(-1, g.shape[-1])


def _back(dy: Tensor, w, x, n, q, k, v, c, r, l, f, g) -> tuple[Tensor, dict[str, Tensor]]:  # type: ignore[no-untyped-def] # noqa: E741
    """The gradients of one layer: of its input, and of its parameters."""
    own = {"w2": _tn(g, dy)}
    df = aten.gelu_backward(dy @ w["w2"].mT, f)
    own["w1"] = _tn(l, df)
    dr, own["ln2.weight"], own["ln2.bias"] = _norm_back(r, w["ln2.weight"], df @ w["w1"].mT)
    dr = dy + dr
    dc = torch.einsum("bsd,hed->bhse", dr, w["wo"])
    own["wo"] = torch.einsum("bhse,bsd->hed", c, dr)
    dq, dk, dv = _attention_back(q, k, v, dc)
    dn = None
    for name, d in (("wv", dv), ("wk", dk), ("wq", dq)):
        own[name] = torch.einsum("bsd,bhse->dhe", n, d)
        part = torch.einsum("bhse,dhe->bsd", d, w[name])
        dn = part if dn is None else dn + part
    dx, own["ln1.weight"], own["ln1.bias"] = _norm_back(x, w["ln1.weight"], dn)
    return dr + dx, own


def _norm_back(x: Tensor, weight: Tensor, g: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    _, mean, rstd = torch.native_layer_norm(x, weight.shape, weight, None, EPS)
    return aten.native_layer_norm_backward(g, x, weight.shape, mean, rstd, weight, weight, [True, True, True])


def _attention_back(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    out, norms = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)
    return aten._scaled_dot_product_flash_attention_for_cpu_backward(g, q, k, v, out, norms, 0.0, True)


class Module(nn.Module):
    """The model for autograd; `forward` returns the loss."""

    def __init__(self, params: Mapping[str, Tensor], layers: int) -> None:
        super().__init__()
        self.layers = layers
        self.p = nn.ParameterDict({n.replace(".", "_"): nn.Parameter(t.clone()) for n, t in params.items()})

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        x = F.embedding(tokens, self.p["embed"])
        for layer in range(self.layers):
            w = {n: self.p[f"layer{layer}.{n}".replace(".", "_")] for n in NAMES}
            n = F.layer_norm(x, w["ln1.weight"].shape, w["ln1.weight"], w["ln1.bias"], EPS)
            q, k, v = (torch.einsum("bsd,dhe->bhse", n, w[m]) for m in ("wq", "wk", "wv"))
            c = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + torch.einsum("bhse,hed->bsd", c, w["wo"])
            n = F.layer_norm(x, w["ln2.weight"].shape, w["ln2.weight"], w["ln2.bias"], EPS)
            x = x + F.gelu(n @ w["w1"]) @ w["w2"]
        return F.cross_entropy((x @ self.p["head"]).flatten(0, 1), target.flatten())
