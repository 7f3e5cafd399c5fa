"""Modules that index by tensors, lay borders around, and reparametrize their weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm


class Indexed(nn.Module):
    """Elements by numbers that come with the batch, that are constants, and that are counted from the end."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 5)
        self.table, self.prices = nn.Parameter(torch.randn(7, 2, 5)), nn.Parameter(torch.randn(7))
        self.register_buffer("order", torch.tensor([2, 0, 3, 3, 1]))

    def forward(self, x: Tensor, at: Tensor, one: Tensor) -> Tensor:
        h = self.fc(x)  # [batch, 4, 5]
        batch = torch.arange(x.shape[0])
        spots = h[batch[:, None], at] * h.gather(1, at[:, :, None].expand(-1, -1, 5)).tanh()  # [batch, 3, 5]
        found = (spots + self.table[at].sum(2) + self.prices[at][:, :, None]).mean()
        found = found + (h[batch, one] * h[batch, :, one][:, :1]).mean() + h[:, self.order].tanh()[:, 1:-1].mean()
        found = found + h.index_select(2, self.order[:2]).sigmoid().mean() + (h[..., at[0]] ** 2).mean()
        found = found + torch.take_along_dim(h, one[:, None, None], 1).mean() + (h[:, one] * h[:, :1]).tanh().mean()
        return found + (F.one_hot(one, 5) * h[:, -1].log_softmax(-1)).sum(-1).mean()


class Bordered(nn.Module):
    """Weights by length and direction, borders of an image, what is cut off, and products of two tensors by a third."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = weight_norm(nn.Linear(8, 36))
        self.conv = weight_norm(nn.Conv2d(1, 3, 3, padding=1, padding_mode="reflect"))
        self.mixed = weight_norm(nn.Linear(6, 6), dim=None)
        self.bilinear = nn.Bilinear(6, 6, 4)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        y = self.conv(self.fc(x).view(-1, 1, 6, 6)).tanh()
        y = F.pad(y, (2, 1, 0, 3), mode="replicate")[:, :, :, 1:7] + F.pad(y, (0, 0, -1, 4), mode="circular") ** 2
        y = self.mixed(y.mean((1, 2)))
        return F.cross_entropy(self.bilinear(y, y.sigmoid()), label)


class FromTheEnd(nn.Module):
    """Of sequences of any length: the last elements, all but the last, neighbours, mirrored borders."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        found = (
            y[:, -1].tanh().mean() + (y[:, -3:] ** 2).mean() + (y[:, :-1] * y[:, 1:]).mean() + y[:, 1:-2].exp().mean()
        )
        found = found + (y * y.roll(2, 1)).mean() + (y * y.roll(-1, 1)).mean()
        for mode in ("reflect", "replicate", "circular"):
            found = found + F.pad(y.transpose(1, 2), (3, 1), mode=mode).sin().mean()
        return found
