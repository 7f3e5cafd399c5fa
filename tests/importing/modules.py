"""Modules of our own, as somebody would write them by hand; each function is a factory for `hapdsl import`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


class Attention(nn.Module):
    """Causal, with one matrix for queries, keys and values."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, d // self.heads).transpose(1, 2) for z in self.qkv(x).split(d, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class ByHand(nn.Module):
    """Attention in single steps, with a mask of the module's own."""

    def __init__(self, d: int, heads: int, longest: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.register_buffer("mask", torch.tril(torch.ones(longest, longest)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (f(x).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(-2, -1) / (d // self.heads) ** 0.5
        scores = scores.masked_fill(self.mask[:t, :t] == 0, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).contiguous().view(b, t, d))


class Block(nn.Module):
    def __init__(self, d: int, heads: int, ffn: int, attention: type[nn.Module] = Attention) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = attention(d, heads)
        self.fc1, self.fc2 = nn.Linear(d, ffn), nn.Linear(ffn, d)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x))))


class Transformer(nn.Module):
    """Returns its own loss."""

    def __init__(
        self, layers: int = 2, d: int = 24, heads: int = 3, ffn: int = 48, attention: type[nn.Module] = Attention
    ) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(50, d), nn.Embedding(16, d)
        self.blocks = nn.ModuleList(Block(d, heads, ffn, attention) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, 50, bias=False)

    def forward(self, tokens: Tensor, labels: Tensor) -> dict[str, Tensor]:
        x = self.tok(tokens) + self.pos(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        z = self.head(self.norm(x))
        return {"loss": F.cross_entropy(z.reshape(-1, z.shape[-1]), labels.reshape(-1)), "logits": z}


def transformer() -> nn.Module:
    return Transformer()


def by_hand() -> nn.Module:
    return Transformer(attention=ByHand)


class Square(nn.Module):
    """Residual matrices from a width to itself, plain and transposed, and tokens mixed with tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.a, self.b = nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.randn(8, 8))
        self.mix = nn.Linear(6, 6)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.fc(x)
        x = x + x @ self.a
        x = x + torch.relu(x @ self.b.t())
        x = x + self.mix(x.transpose(1, 2)).transpose(1, 2)
        return self.head(x[:, -1])


class Numbered(nn.Module):
    """Layers whose own parts have numbers for names."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)) for _ in range(3))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.normalize(x + layer(x), dim=-1)
        return self.head(x)


class Functions(nn.Module):
    """A step of each kind that the models above don't take."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head = nn.Linear(8, 12), nn.Linear(12, 4)
        self.scale = nn.Parameter(torch.ones(12))

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        y = (y - y.mean(-1, keepdim=True)) / (y.std(-1, keepdim=True) + 0.1)
        y = y + y.var(0) + y.abs().sqrt().rsqrt().clamp(0.5, 2) - y.sin() * y.cos()
        y = torch.stack([F.elu(y), F.softplus(y), F.leaky_relu(y), F.hardswish(y)], 1).sum(1) * self.scale
        y = torch.cat(y.chunk(3, -1)[::-1], -1) + torch.linspace(0, 1, 12) + torch.roll(y, 5, -1)
        y = y[:, None].expand(-1, 2, -1).mean(1) - y.amax(-1, keepdim=True) + y.softmax(0)
        y = torch.einsum("bi,bj->bij", y, F.relu6(y)).sum(-1) ** 2 * 0.01 + 1 / (y.exp() + 1)
        y = y + (y.unsqueeze(2) * torch.tanh(y).unsqueeze(1)).sum(2) * 0.1
        y = F.pad(y, (0, 3)).reshape(y.shape[0], 5, 3)[:, :4].flatten(1)
        return self.head(y)


class Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x
        return x * 2


class Unknown(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), Median())

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Median(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.median(dim=-1).values


class InPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        y.t()[0].add_(1)
        return y


class Harmless(nn.Module):
    """Changes in place that nobody else sees."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu_(self.fc(x)) * 2
        y += 1
        return y.mul_(0.5)


class Complex(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 1j).abs()


class KeywordOnly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x: Tensor, *, scale: float, flag: bool = False) -> Tensor:
        return self.fc(x) * scale


class Cubic(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.vector_norm(x, 3)


class Tabled(nn.Module):
    """A table that is neither parameter nor buffer, and a parameter drawn around others."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.normal(torch.zeros(8), torch.ones(8)))
        self.table = torch.randn(8)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.table


class Several(nn.Module):
    """One argument that holds two tensors; a result that has two names, and one that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, pair: tuple[Tensor, Tensor], mask: Tensor) -> dict[str, Tensor]:
        y = self.fc(pair[0]) + pair[1] * mask
        return {"count": (y > 0).sum(), "y": y, "again": y, "spread": y.var()}


def fails() -> nn.Module:
    raise ValueError("no")


def nothing() -> int:
    return 1


class Choices(nn.Module):
    """Comparisons and choices on data, sums along a dim, parts that are overwritten, and what is made of others."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head = nn.Linear(8, 12), nn.Linear(12, 4)
        self.slope = nn.Parameter(torch.full((12,), 0.2))
        self.conv = nn.Conv1d(12, 6, 3, stride=2, padding=1, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        up = torch.where(y > 0.1, y * y, -y) + torch.where(y <= 0, 0.5, y) + torch.where(y != 0, y, 2.0)
        up = up + torch.maximum(y, y.flip(-1)) - torch.minimum(y, y.roll(1, -1)).masked_fill(y.ge(0.3) & ~(y > 1), 0.25)
        up = (
            up
            + y.cumsum(-1) * 0.1
            + y.abs().pow(1.5)
            + torch.erf(y)
            + F.glu(torch.cat([y, up], -1))
            + F.mish(y)
            + F.prelu(y, self.slope)
        )
        up = (
            up
            + y.amax(-1, keepdim=True)
            + y.min(-1, keepdim=True).values
            + torch.logsumexp(y, 0, keepdim=True)
            + F.logsigmoid(y)
            + F.selu(y)
            + F.celu(y, 2.0)
        )
        up = up + y.gather(1, y.argmax(-1, keepdim=True)) + (y > y.mean()) * 0.5 + torch.log1p(y.abs()) + 1.5**y
        whole = torch.zeros_like(y)
        whole[:, 2:] = y[:, :-2]
        whole[:, 0] = 0.75
        whole[:, 3:5] += 1
        up = up + whole + torch.cat([y[:, ::2], y[:, 1::2]], 1)
        up = (
            up
            + y[torch.arange(y.shape[0]), y.argmax(-1)][:, None]
            + y.clamp(max=0.5)
            + torch.baddbmm(y[:, None], y[:, None], torch.eye(12, dtype=y.dtype).expand(y.shape[0], 12, 12), beta=0.5)[
                :, 0
            ]
        )
        wide = self.conv(up[:, :, None] * y[:, None, :8])
        return self.head(up) + wide.mean(1)


class Losses(nn.Module):
    """A module that returns the sum of several losses."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Tensor, label: Tensor, target: Tensor) -> Tensor:
        y = self.fc(x)
        few = (
            F.cross_entropy(y, label, label_smoothing=0.1)
            + F.cross_entropy(y, label, ignore_index=2)
            + F.nll_loss(F.log_softmax(y, -1), label)
        )
        far = (
            F.l1_loss(y, target)
            + F.smooth_l1_loss(y, target, beta=0.5)
            + F.huber_loss(y, target, delta=0.3)
            + F.mse_loss(y, target, reduction="sum")
        )
        share = target.softmax(-1)
        return (
            few
            + far
            + F.binary_cross_entropy_with_logits(y, share)
            + F.kl_div(F.log_softmax(y, -1), share, reduction="sum")
        )


class Recurrent(nn.Module):
    """Gates in turns: the width of what a turn leaves is that of what the next one's matrix makes, in four parts."""

    def __init__(self, width: int = 5) -> None:
        super().__init__()
        self.width = width
        self.fed, self.kept = nn.Linear(8, 4 * width), nn.Linear(width, 4 * width, bias=False)
        self.out = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = c = torch.tanh(x[:, 0, : self.width])
        for turn in range(x.shape[1]):
            i, f, g, o = (self.fed(x[:, turn]) + self.kept(h)).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        score = self.out(h).squeeze(-1)
        return {"loss": score.softmax(0).log().mean().neg(), "score": score}


class Contrast(nn.Module):
    """Scores of a batch by itself, read along both of its indices."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: Tensor, y: Tensor, label: Tensor) -> dict[str, Tensor]:
        z = self.q(x) @ self.k(y).T
        return {"loss": F.cross_entropy(z, label) + F.cross_entropy(z.T, label) + F.mse_loss(z, z.T)}
