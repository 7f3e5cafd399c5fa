"""What it costs to turn what a call gives into what a tensor is offered as; the same answers for bound and schedule."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.pricing import Pricer
from hapdsl.graph.program import Layout, Value, conversion
from hapdsl.search.messages import Split
from hapdsl.search.offers import Offer, Route, steps
from hapdsl.search.structure import Structure
from hapdsl.theory.placements import Placement

Sizes = NDArray[np.int64] | NDArray[np.float64]


class Conversions:
    """Prices of single conversions, and the cheapest routes, under given shares; remembered by kind of tensor.

    A conversion by itself costs what the exact evaluator says. One that may share a message costs what it adds to any
    message at least: its bytes on one device, and its part of the latency where many messages are sent.
    """

    def __init__(self, structure: Structure, layout: Layout, cluster: Cluster, pricer: Pricer) -> None:
        self.structure, self.layout, self.cluster, self.pricer = structure, layout, cluster, pricer
        self.training, self.buckets = structure.training, structure.buckets
        self._prices: dict[tuple[int, Placement, Placement], float] = {}
        self._routes: dict[tuple[int, Placement, Offer], Route | None] = {}

    def share(self, other: Conversions) -> None:
        """Remember together with those of another structure that has the same kinds, under the same shares."""
        self._prices, self._routes = other._prices, other._routes

    @cached_property
    def split(self) -> Split:
        return Split(self.cluster, self.buckets.smallest, self.buckets.usual)

    @cached_property
    def biggest(self) -> int:
        """The device that holds most of everything.

        A message is as long as its largest share of all operands together, so at least as long as the sum of what one
        device has of each. Any device is right; this one is a good guess.
        """
        parts = [s[(0,)] / max(1, int(s[(0,)].sum())) for s in self.layout.shares.values()]
        return int(np.sum(parts, axis=0).argmax()) if parts else 0

    def route(self, name: str, source: Placement, offer: Offer) -> Route | None:
        """The cheapest way to make `offer` of a tensor from `source`; None where there is none."""
        key = (self.structure.tensor_kind[name], source, offer)
        if key not in self._routes:
            sources = self.structure.wish(name).sources
            self._routes[key] = steps(source, offer, lambda p, q: self.seconds(name, p, q), sources)
        return self._routes[key]

    def seconds(self, name: str, source: Placement, target: Placement) -> float:
        """Seconds of one collective, by its cheapest method; what it adds to a message where it may share one."""
        key = (self.structure.tensor_kind[name], source, target)
        found = self._prices.get(key)
        if found is None:
            kind = conversion(source, target)
            assert kind is not None
            shares, total = self.sizes(name, kind, source, target)
            cluster = self.split.light if self.buckets.joins(name) else self.cluster
            found = self.pricer.alone(kind, Value(name, (source,)), Value(name, (target,)), cluster, (shares, total))
            if kind == "all_reduce" and self.buckets.joins(name):
                found = max(found, total * self.split.chord(self.buckets.together(name)))
            part = self.buckets.part(name, kind, self.structure.messages)
            if part is not None:
                found += part[1] * self.split.floor(part[0])
            found = self._prices[key] = found * self.training.times(self.structure.converted_in(name))
        return found

    def sizes(self, name: str, kind: str, source: Placement, target: Placement) -> tuple[Sizes, float]:
        """(bytes per device, bytes in all) that decide a collective's price.

        An all_to_all is as long as the larger of what is sent and what arrives, of all its operands together: at least their mean, which is a sum.
        """
        before, after = (self.pricer.sent(Value(name, (p,))) for p in (source, target))
        larger = (before + after) / 2 if self.buckets.joins(name) else np.maximum(before, after)
        shares = {"reduce_scatter": after, "all_to_all": larger}.get(kind, before)
        total = float(shares.max() if kind == "all_reduce" else shares.sum())
        if self.buckets.joins(name):
            shares = np.full_like(shares, shares[self.biggest])
        return shares, total
