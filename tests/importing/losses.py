"""Modules whose losses the theory has no single operator for; each adds several up."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASS_WEIGHTS = (1.0, 2.0, 0.5, 3.0)


class Base(nn.Module):
    """A layer in front, weights of classes as a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 4)
        self.weighted = nn.CrossEntropyLoss(weight=torch.tensor(CLASS_WEIGHTS))
        self.register_buffer("weights", torch.tensor(CLASS_WEIGHTS))


class OfClasses(Base):
    """Class weights, smoothing, labels that don't count, shares for labels, in all reductions; and each row's loss by a weight of its own."""

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        z, w = self.fc(x), self.weights
        found = self.weighted(z, label) + F.cross_entropy(z, label, w, label_smoothing=0.2, reduction="sum")
        found = found + F.cross_entropy(z, label, w, ignore_index=2) + F.nll_loss(F.log_softmax(z, -1), label, w)
        found = found + F.cross_entropy(z, label, label_smoothing=0.1, ignore_index=1)
        found = found + F.cross_entropy(z, label, w, label_smoothing=0.1, ignore_index=1)
        found = found + F.cross_entropy(z, F.softmax(x[:, :4], -1), w, label_smoothing=0.1)
        found = found + F.nll_loss(F.softmax(z, -1).log(), label, ignore_index=3, reduction="sum")
        each = F.cross_entropy(z, label, reduction="none", ignore_index=0) * x[:, 0]
        return found + each.mean()


class OfImages(Base):
    """Classes along dim 1 of three, labels that may be ignored."""

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        z = self.fc(x).transpose(1, 2)
        return F.cross_entropy(z, label, self.weights, label_smoothing=0.1) + F.nll_loss(z.log_softmax(1), label)


class OfYesAndNo(Base):
    """Binary cross entropies of logits and of probabilities, with weights, and losses of elements that are cut off or weighed later."""

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        z, w = self.fc(x), self.weights
        each = F.binary_cross_entropy_with_logits(z, target, reduction="none")
        found = (each * x[:, :4].sigmoid()).sum(1).mean()
        found = found + F.binary_cross_entropy_with_logits(z, target, weight=w, pos_weight=2 * w, reduction="sum")
        p = torch.cat([z.sigmoid(), (100 * z).sigmoid()], 1)  # far out: some are 0 or 1, and none may make a NaN
        found = found + F.binary_cross_entropy(p, torch.cat([target, target], 1), reduction="none").mean()
        found = found + F.binary_cross_entropy(z.sigmoid(), target, weight=w)
        return (
            found + F.mse_loss(z, target, reduction="none").mean() + F.smooth_l1_loss(z, target, reduction="none").sum()
        )


class LeavesOut(Base):
    """Of labels -1 don't count."""

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        z = self.fc(x)
        found = F.cross_entropy(z, label, ignore_index=-1) + F.nll_loss(z.log_softmax(-1), label, ignore_index=-1)
        found = found + F.cross_entropy(z, label, ignore_index=-1, label_smoothing=0.1)
        return found + F.nll_loss(z.sigmoid(), label, self.weights, ignore_index=-1, reduction="sum")


class OfAsManyClasses(nn.Module):
    """Classes whose number comes with the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 1)

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        z = self.fc(x) * counts
        one = F.one_hot(z.argmax(1), counts.shape[1])
        return F.cross_entropy(z, counts.softmax(1), label_smoothing=0.1) + (one * z.sin()).sum()


class OfDistances(Base):
    """Losses that go by distances, angles or the sign of a target."""

    def forward(self, x: Tensor, y: Tensor, sign: Tensor) -> Tensor:
        a, c, n = self.fc(x), self.fc(y), self.fc(x * y)
        found = F.cosine_similarity(a, c).sin().sum() + F.cosine_similarity(a[:, None], c[None], dim=-1).tanh().sum()
        found = found + F.cosine_embedding_loss(a, c, sign, margin=0.1) + F.pairwise_distance(a, c, keepdim=True).mean()
        found = found + F.triplet_margin_loss(a, c, n) + F.triplet_margin_loss(a, c, n, swap=True, reduction="sum")
        found = found + F.margin_ranking_loss(a[:, 0], c[:, 0], sign, margin=0.2)
        found = found + F.hinge_embedding_loss(F.pairwise_distance(a, c, p=1.0), sign, margin=2.0)
        found = found + F.soft_margin_loss(a[:, 1], sign, reduction="sum") + F.poisson_nll_loss(a, y[:, :4].abs())
        return found + F.poisson_nll_loss(a.exp(), y[:, :4].abs(), log_input=False)


class OfZeros(Base):
    """A target that is 0 in places says nothing there."""

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(self.fc(x).log_softmax(-1), target, reduction="batchmean")
