"""Which collectives may share a message, and what they cost at least when they do.

Gradients on their way to an update, parameters on their way to their first reader and updated parameters on their way
back are small and many; the scheduler groups them into buckets of BUCKET bytes, so that a plan of many small parameters
is not a plan of many small messages.

A bound can't know the groups. It splits the price of a message into what one more byte costs at least (`light`) and
what a message costs however small it is (`floor`): any message takes at least its floor + the sum of the light prices of its operands.
How many messages there are at least, it knows in one of two ways. Where everything of a kind fits into a bucket or so: one, if there
is any, which takes a variable (a *flag*). Where more is sent, or where flags would make tables too wide, each operand pays its part of a floor:
parts that never come to more than one floor in a message that is sent as soon as it holds a bucket (`Parts`). Parts say little where the large
tensors stay at home and only small ones travel; so flags may be asked for instead of them, for a second bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from hapdsl.cluster.hardware import Cluster, Curve, weightless
from hapdsl.cost.collectives import best_method, candidates, collective_seconds
from hapdsl.graph.program import COLLECTIVES
from hapdsl.graph.training import TrainingGraph

BUCKET = 25 * 2**20  # bytes; a full bucket is sent
MANY = 1.5  # messages; where there may be more of a kind, they are counted by their operands' parts
PARAMS = ("param", "frozen", "buffer")  # loaded as they are held, and sent by messages to be read otherwise
LOADED_ONLY = ("input", "state", "seed")  # loaded as they are read, so that none is ever sent

# Shared messages that a bound may count, each at most once: what moves, and the kinds of collective that count. Gradients,
# parameters and updated parameters travel at different times, so they never share a message.
SHARED: dict[str, tuple[str, tuple[str, ...]]] = {
    "all_reduce of gradients": ("gradients", ("all_reduce",)),
    "reduce_scatter of gradients": ("gradients", ("reduce_scatter",)),
    "all_gather of gradients": ("gradients", ("all_gather",)),
    "all_to_all of gradients": ("gradients", ("all_to_all",)),
    "all_gather of parameters": ("params", ("all_gather",)),
    "all_to_all of parameters": ("params", ("all_to_all",)),
    "updated parameters": ("updated", COLLECTIVES),
}


class Buckets:
    """Knows for each tensor whether its collectives may be grouped with others, and how messages are counted.

    `groups` are the tensors that may travel together, by what SHARED calls them; `smallest` is the least number of bytes that a message of
    theirs can carry, `usual` what one does where all travel, and `parts` says by shared message what operands pay of a floor.
    """

    def __init__(self, training: TrainingGraph) -> None:
        self.gradients = {
            name
            for name, k in training.producer.items()
            if training.nodes[k].section != "update"
            and training.readers[name]
            and all(training.nodes[r].section == "update" for r in training.readers[name])
        }
        self.params = {t.name for t in training.of_kind(*PARAMS)}
        self.updated = {new for old, new in training.updates.items() if old in self.params}
        self.groups = {"gradients": self.gradients, "params": self.params, "updated": self.updated}
        self._group = {name: what for what, names in reversed(self.groups.items()) for name in names}
        self._bytes = {n: t.bytes for n, t in training.tensors.items()}
        together = {what: sum(self._bytes[n] for n in names) for what, names in self.groups.items()}
        self._together = {what: float(total) for what, total in together.items()}
        self.smallest = min((self._bytes[n] for n in self._group), default=0)
        self.usual = min(BUCKET, max(together.values()))
        self.parts: dict[str, Parts] = {}
        for shared, (what, kinds) in SHARED.items():
            # One whole of a tensor, or two shards at most.
            repeats = 1 if set(kinds) <= {"all_reduce", "all_gather"} else 2
            # Updated parameters wait for the end of the step, and are sent in one message whatever their size.
            bucket = math.inf if what == "updated" else BUCKET
            self.parts[shared] = Parts([self._bytes[n] for n in sorted(self.groups[what])], repeats, bucket)

    def joins(self, tensor: str) -> bool:
        """May a message of a tensor carry others as well?"""
        return tensor in self._group

    def group(self, tensor: str) -> str:
        """What a tensor travels with: "gradients", "params", "updated", or "" by itself."""
        return self._group.get(tensor, "")

    def together(self, tensor: str) -> float:
        """The bytes of everything that a tensor may travel with: no message of it, in which each stands once, holds more."""
        return self._together[self.group(tensor)]

    @property
    def flagged(self) -> tuple[str, ...]:
        """The kinds of shared message of which there may be one or so; the others are better counted by parts."""
        return tuple(s for s in SHARED if self.parts[s].most <= MANY)

    def part(self, tensor: str, kind: str, once: Sequence[str] = ()) -> tuple[str, float] | None:
        """What a conversion of a tensor pays of a floor: (which of SHARED, part); None where it is counted by a flag.

        Those of `once` are counted by flags instead: one message at most, but whole as soon as there is any.
        """
        what = self.group(tensor)
        for shared, parts in self.parts.items():
            if shared not in once and SHARED[shared][0] == what and kind in SHARED[shared][1]:
                return shared, parts.part(self._bytes[tensor])
        return None


class Parts:
    """The part of a message's floor that each operand pays at least.

    A message is sent once it holds a bucket of bytes, so all of its operands but the last come to less than that. With any size m:
    an operand of b bytes counts min(b, m), those before the last come to at most a bucket, and the last, of which one tensor may stand n
    times in a message, to n m; nor can a message hold more than all tensors n times. So what it holds counts at most
    W = min(bucket + n m, n x sum of min(b, m)), and an operand pays min(b, m) / W. `m` is the size (of the tensors at hand)
    for which all of them together pay most, and `most` what they pay.
    """

    def __init__(self, sizes: Sequence[int], repeats: int, bucket: float = BUCKET) -> None:
        found = []
        for m in sorted(set(sizes)):
            held = sum(min(b, m) for b in sizes)
            whole = min(bucket + repeats * m, repeats * held)
            found.append((held / whole if whole else 0.0, m, whole))
        self.most, self.size, self.whole = max(found, default=(0.0, 0, 0.0))

    def part(self, size: int) -> float:
        return min(size, self.size) / self.whole if self.whole else 0.0


class Split:
    """The prices of a cluster's messages as a floor and a price per byte.

    `smallest` is the least number of bytes (whole tensors) that any message holds, `usual` what it may well hold. Formulas split into latency and
    bandwidth. A measured curve splits as a line that lies under it from `smallest` on does (`_below`): its value at nothing, and its rate. (The
    curve's own value at nothing would leave no rate wherever small messages all take the same time: bytes would be free.)
    """

    def __init__(self, cluster: Cluster, smallest: float, usual: float) -> None:
        self.cluster = cluster
        self.smallest, self.usual = smallest, usual
        rates = {kind: self._rate(curve) for kind, curve in cluster.measured.items()}
        self.light = replace(weightless(cluster), measured=rates)

    def floor(self, shared: str) -> float:
        """Seconds that any message of one of SHARED takes beside its bytes: the least over kinds and methods."""
        if len(self.cluster) < 2:
            return 0.0
        measured = self.cluster.measured
        found = []
        for kind, method in [(k, m) for k in SHARED[shared][1] for m in candidates(k, self.cluster, len(self.cluster))]:
            curve = measured.get(f"{kind}_{method}") or measured.get(kind)
            if curve is not None:
                found.append(_below(curve, self.smallest, self.usual)[0])
            else:
                found.append(collective_seconds(kind, method, np.zeros(len(self.cluster)), 0.0, self.cluster))
        return min(found)

    def chord(self, most: float) -> float:
        """Seconds that each byte adds to an all_reduce of up to `most` bytes, at least, beside what one without bytes takes.

        The least of several lines (a tree for short messages, a ring for long ones) lies above its chord, which is steeper than the flattest line.
        0 where curves were measured, which may bend either way.
        """
        if most <= 0 or any(kind.startswith("all_reduce") for kind in self.cluster.measured):
            return 0.0
        none, whole = (best_method("all_reduce", (), size, self.cluster)[1] for size in (0.0, most))
        return (whole - none) / most

    def _rate(self, curve: Curve) -> Curve:
        return Curve(((0.0, 0.0), (1.0, _below(curve, self.smallest, self.usual)[1])))


def _below(curve: Curve, smallest: float, usual: float) -> tuple[float, float]:
    """(a, r) of a line under a curve from `smallest` bytes on: of those through its corners the highest at `usual` bytes.

    For any rate r from 0 up to the curve's last slope and its least f(b) / b, a = min f(b) - r b over the corners is right: f is made of straight lines.
    """
    (b0, s0), (b1, s1) = curve.points[-2:]
    corners = [
        (b, curve.seconds(b)) for b in (max(smallest, 1.0), *(b for b, _ in curve.points if b > max(smallest, 1.0)))
    ]
    most = max(0.0, min([(s1 - s0) / (b1 - b0), *(f / b for b, f in corners)]))
    rates = {0.0, most, *((g - f) / (c - b) for (b, f), (c, g) in combinations(corners, 2))}
    lines = [(min(f - r * b for b, f in corners), r) for r in sorted(rates) if 0 <= r <= most]
    return max(((max(0.0, a), r) for a, r in lines), key=lambda line: line[0] + line[1] * usual)
