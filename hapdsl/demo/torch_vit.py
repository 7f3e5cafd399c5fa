"""The digits transformer in plain PyTorch, with autograd and torch.optim: what the distributed run is compared with.

It shares no code with hapdsl's kernels or gradients, only the initial parameters and the batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F


class TorchVit:
    """`programs/models/vit_digits.hap` on one device; `parameters` are named as in the model."""

    def __init__(self, parameters: Mapping[str, Tensor], layers: int, patch: int, lr: float) -> None:
        self.layers, self.patch = layers, patch
        self.parameters = {name: p.clone().requires_grad_() for name, p in parameters.items()}
        self.optimizer = torch.optim.Adam(self.parameters.values(), lr=lr)

    def logits(self, image: Tensor) -> Tensor:
        """float [batch, classes] from float [batch, 8, 8]."""
        p = self.parameters
        x = self.patches(image) @ p["embed"] + p["position"]
        for layer in range(self.layers):
            x = self.encoder(x, f"layer.{layer}.encoder.")
        x = self.norm(x, "norm.")
        return x.mean(dim=1) @ p["head"] + p["bias"]

    def patches(self, image: Tensor) -> Tensor:
        """[batch, patches, pixels of a patch], row by row."""
        unfolded = F.unfold(image.unsqueeze(1), kernel_size=self.patch, stride=self.patch)
        return unfolded.transpose(1, 2)

    def norm(self, x: Tensor, prefix: str) -> Tensor:
        weight, bias = self.parameters[prefix + "weight"], self.parameters[prefix + "bias"]
        return F.layer_norm(x, weight.shape, weight, bias)

    def encoder(self, x: Tensor, prefix: str) -> Tensor:
        p = {name[len(prefix) :]: t for name, t in self.parameters.items() if name.startswith(prefix)}
        n = self.norm(x, prefix + "ln1.")
        q, k, v = (torch.tensordot(n, p[f"attend.w{w}"], dims=([2], [0])).transpose(1, 2) for w in "qkv")
        c = F.scaled_dot_product_attention(q, k, v)
        x = x + torch.tensordot(c.transpose(1, 2), p["attend.wo"], dims=([2, 3], [0, 1]))
        h = F.gelu(self.norm(x, prefix + "ln2.") @ p["feed_forward.w1"] + p["feed_forward.b1"])
        return x + h @ p["feed_forward.w2"] + p["feed_forward.b2"]

    def train(self, batches: Iterable[Mapping[str, Tensor]]) -> list[float]:
        """One optimizer step per batch; the loss of each."""
        losses = []
        for batch in batches:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.logits(batch["image"]), batch["label"])
            loss.backward()
            self.optimizer.step()
            losses.append(float(loss.detach()))
        return losses

    @torch.no_grad()
    def accuracy(self, image: Tensor, label: Tensor) -> float:
        """The share of images that are classified rightly, 0 to 1."""
        return float((self.logits(image).argmax(dim=1) == label).double().mean())
