"""Four models of programs/models as ordinary PyTorch modules, with the weights of our graph: what DDP, FSDP2 and DTensor are given.

Each takes a rank's inputs by name and returns the sum of its loss over rows, so that shares of any size add up to the mean over the global batch.
`tensor_parallel` says how its matrices are cut (Megatron's way: columns, then rows), `blocks` what FSDP gathers at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from torch.nn import functional as F

Values = Mapping[str, Tensor]  # parameters by hapdsl's names


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A layer of torch's with our weight [inside, outside]; merged dims (heads, d / heads) are one."""
    made = nn.Linear(weight.shape[0], weight.shape[1], bias=bias is not None)
    with torch.no_grad():
        made.weight.copy_(weight.mT)
        if bias is not None:
            made.bias.copy_(bias.reshape(-1))
    return made


def norm(weight: Tensor, bias: Tensor) -> nn.LayerNorm:
    made = nn.LayerNorm(len(weight))
    with torch.no_grad():
        made.weight.copy_(weight)
        made.bias.copy_(bias)
    return made


class Model(nn.Module):
    """What a rank trains: of its inputs by name, the sum of the loss over its rows."""

    def blocks(self) -> list[nn.Module]:
        """What FSDP gathers at a time; the rest goes with the whole."""
        return []

    def tensor_parallel(self) -> dict[str, Any]:
        """DTensor's styles by the modules' names; what isn't named stays whole."""
        return {}


class Mlp(Model):
    def __init__(self, w: Values, settings: Mapping[str, int]) -> None:
        super().__init__()
        self.first, self.second = linear(w["w1"], w["b1"]), linear(w["w2"])

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(self.second(torch.relu(self.first(x))), label, reduction="sum")

    def blocks(self) -> list[nn.Module]:
        return [self.first, self.second]

    def tensor_parallel(self) -> dict[str, Any]:
        return {"first": ColwiseParallel(), "second": RowwiseParallel()}


class Vgg19(Model):
    """Convolutions stay whole under tensor parallelism, as in PyTorch's recipes; the wide layers at the end are cut."""

    def __init__(self, w: Values, settings: Mapping[str, int]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for group, convs in zip(range(1, 6), (2, 2, 4, 4, 4), strict=True):
            for k in range(convs):
                name = f"group{group}.first" if k == 0 else f"group{group}.next.{k - 1}.conv"
                weight = w[f"{name}.weight"]
                conv = nn.Conv2d(weight.shape[1], weight.shape[0], 3, padding=1)
                conv.load_state_dict({"weight": weight, "bias": w[f"{name}.bias"]})
                layers += [conv, nn.ReLU()]
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(7))
        self.fc1, self.fc2 = (linear(w[f"fc{k}.linear.weight"], w[f"fc{k}.linear.bias"]) for k in (1, 2))
        self.fc3 = linear(w["fc3.weight"], w["fc3.bias"])

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        h = self.features(image).flatten(1)
        return F.cross_entropy(self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(h))))), label, reduction="sum")

    def blocks(self) -> list[nn.Module]:
        return [self.features, self.fc1, self.fc2, self.fc3]

    def tensor_parallel(self) -> dict[str, Any]:
        return {"fc1": ColwiseParallel(), "fc2": RowwiseParallel()}


class Attention(nn.Module):
    def __init__(self, w: Values, at: str, causal: bool) -> None:
        super().__init__()
        d = w[f"{at}.wq"].shape[0]
        self.width, self.causal = w[f"{at}.wq"].shape[2], causal
        self.q, self.k, self.v = (linear(w[f"{at}.w{n}"].reshape(d, d), w.get(f"{at}.b{n}")) for n in "qkv")
        self.o = linear(w[f"{at}.wo"].reshape(d, d), w.get(f"{at}.bo"))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (-1, self.width)).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2))


ATTENTION = {"q": ColwiseParallel(), "k": ColwiseParallel(), "v": ColwiseParallel(), "o": RowwiseParallel()}


class GptBlock(nn.Module):
    def __init__(self, w: Values, at: str) -> None:
        super().__init__()
        self.ln1, self.ln2 = (norm(w[f"{at}.ln{k}.weight"], w[f"{at}.ln{k}.bias"]) for k in (1, 2))
        self.attention = Attention(w, at, causal=True)
        self.up, self.down = linear(w[f"{at}.w1"]), linear(w[f"{at}.w2"])

    def forward(self, x: Tensor) -> Tensor:
        r = x + self.attention(self.ln1(x))
        return r + self.down(F.gelu(self.up(self.ln2(r))))


class Gpt(Model):
    def __init__(self, w: Values, settings: Mapping[str, int]) -> None:
        super().__init__()
        self.embed = nn.Embedding.from_pretrained(w["embed"].clone(), freeze=False)
        self.layers = nn.ModuleList(GptBlock(w, f"layer.{k}.block") for k in range(settings["layers"]))
        self.head = linear(w["head"])

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), target.flatten(), reduction="sum")

    def blocks(self) -> list[nn.Module]:
        return [*self.layers, self.embed, self.head]

    def tensor_parallel(self) -> dict[str, Any]:
        found = {f"layers.{k}.attention.{n}": p for k in range(len(self.layers)) for n, p in ATTENTION.items()}
        for k in range(len(self.layers)):
            found |= {f"layers.{k}.up": ColwiseParallel(), f"layers.{k}.down": RowwiseParallel()}
        head = ColwiseParallel(output_layouts=Replicate())
        return {**found, "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()), "head": head}


class Mixture(nn.Module):
    """The two best experts of each token, with room for so many; `route` is the benchmark's own, on torch calls that autograd knows."""

    def __init__(self, w: Values, at: str, capacity: int) -> None:
        super().__init__()
        self.gate, self.capacity = linear(w[f"{at}.gate"]), capacity
        first, second = w[f"{at}.w1"], w[f"{at}.w2"]
        self.up = nn.ModuleList(linear(e) for e in first)
        self.down = nn.ModuleList(linear(e) for e in second)

    def forward(self, x: Tensor) -> Tensor:
        gates = torch.softmax(self.gate(x), -1)
        best, chosen = gates.topk(2, dim=-1)
        b, s, e = gates.shape
        asked = F.one_hot(chosen, e).transpose(1, 2).reshape(b, 2 * s, e)
        slots = ((asked.cumsum(1) - 1) * asked).sum(-1).reshape(b, 2, s).transpose(1, 2)
        served = slots < self.capacity
        place = torch.where(served, chosen * self.capacity + slots, 0)
        weights = torch.where(served, best / best.sum(-1, keepdim=True), 0.0)
        nothing = gates.new_zeros(b, s, e * self.capacity)
        combine = nothing.scatter_add(-1, place, weights).unflatten(-1, (e, self.capacity))
        dispatch = nothing.scatter_add(-1, place, served.to(gates.dtype)).unflatten(-1, (e, self.capacity))
        sent = torch.einsum("bsec,bsd->becd", dispatch, x)
        worked = [down(F.gelu(up(sent[:, k]))) for k, (up, down) in enumerate(zip(self.up, self.down, strict=True))]
        return torch.einsum("bsec,becd->bsd", combine, torch.stack(worked, 1))


class BertBlock(nn.Module):
    def __init__(self, w: Values, at: str, capacity: int) -> None:
        super().__init__()
        self.attention = Attention(w, f"{at}.attend", causal=False)
        self.norm1, self.norm2 = (norm(w[f"{at}.norm{k}.norm.weight"], w[f"{at}.norm{k}.norm.bias"]) for k in (1, 2))
        self.mixture: Mixture | None = None
        if f"{at}.mixture.gate" in w:
            self.mixture = Mixture(w, f"{at}.mixture", capacity)
        else:
            feed = f"{at}.feed_forward"
            self.up, self.down = (linear(w[f"{feed}.w{k}"], w[f"{feed}.b{k}"]) for k in (1, 2))

    def forward(self, x: Tensor) -> Tensor:
        r = self.norm1(x + self.attention(x))
        f = self.mixture(r) if self.mixture is not None else self.down(F.gelu(self.up(r)))
        return self.norm2(r + f)

    def tensor_parallel(self) -> dict[str, Any]:
        found: dict[str, Any] = {f"attention.{n}": p for n, p in ATTENTION.items()}
        if self.mixture is None:
            return {**found, "up": ColwiseParallel(), "down": RowwiseParallel()}
        for k in range(len(self.mixture.up)):
            found |= {f"mixture.up.{k}": ColwiseParallel(), f"mixture.down.{k}": RowwiseParallel()}
        return found


class BertMoe(Model):
    def __init__(self, w: Values, settings: Mapping[str, int]) -> None:
        super().__init__()
        names = ("token", "position", "kind")
        self.tables = nn.ModuleDict(
            {n: nn.Embedding.from_pretrained(w[f"embed.{n}"].clone(), freeze=False) for n in names}
        )
        self.norm = norm(w["embed.norm.weight"], w["embed.norm.bias"])
        capacity = (5 * settings["seq"] + 2 * settings["experts"] - 1) // (2 * settings["experts"])
        kinds = ("encoder", "sparse_encoder")
        self.layers = nn.ModuleList(
            BertBlock(w, f"pair.{k}.{kind}", capacity) for k in range(settings["layers"] // 2) for kind in kinds
        )
        self.head = linear(w["masked_loss.weight"], w["masked_loss.bias"])

    def forward(self, tokens: Tensor, kinds: Tensor, target: Tensor) -> Tensor:
        e = self.tables["token"](tokens) + self.tables["kind"](kinds)
        x = self.norm(e + self.tables["position"](torch.arange(tokens.shape[1])))
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), target.flatten(), reduction="sum")

    def blocks(self) -> list[nn.Module]:
        return [*self.layers, *self.tables.values(), self.head]

    def tensor_parallel(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for k, layer in enumerate(self.layers):
            assert isinstance(layer, BertBlock)
            found |= {f"layers.{k}.{name}": how for name, how in layer.tensor_parallel().items()}
        return {**found, "head": ColwiseParallel(output_layouts=Replicate())}


MODELS: dict[str, type[Model]] = {"mlp": Mlp, "vgg19": Vgg19, "gpt": Gpt, "bert_moe": BertMoe}
