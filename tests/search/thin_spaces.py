"""Spaces so thin that every program of them can be tried, in every order of its lines."""

from __future__ import annotations

import itertools

import numpy as np

from hapdsl.cluster import Cluster
from hapdsl.graph.training import TrainingGraph
from hapdsl.search.prices import cutting_planes
from hapdsl.search.shares import Shares

from .orders import Orders
from .small import CLUSTERS, MODELS, Tried, cluster, cuts, everything, spare, thinned, training

CUTS = ("even", "by speed", "lopsided", "zero")
CASES = [(m, c, CUTS[k % 4]) for k, (m, c) in enumerate(itertools.product(MODELS, CLUSTERS))]


class Space:
    """A space thinned to a few dozen programs; its bound, its cheapest program as written and in any order."""

    def __init__(self, graph: TrainingGraph, made: Cluster, shares: Shares, seed: int, most: int = 32) -> None:
        for k in range(60):
            self.tried = Tried(
                graph, made, shares, restriction=thinned(graph, np.random.default_rng([k, seed]), 0.5 * 0.95**k)
            )
            every = (a for a in everything(self.tried.space.graph) if not spare(self.tried.space.graph, a))
            found = list(itertools.islice(every, most + 1))
            if 4 <= len(found) <= most:
                break
        self.programs = [self.tried.program(a) for a in found]
        self.bound = cutting_planes(self.tried.space.graph).bound
        self.canonical = min(self.tried.seconds(a) for a in found)

    def ordered(self, grouping: str) -> float:
        orders = Orders(self.tried.graph, self.tried.machines, self.tried.space.pricer, grouping)
        return min(orders.cheapest(p) for p in self.programs)


def space(model: str, machines: str, cut: str) -> Space:
    graph, made = training(MODELS[model]), cluster(CLUSTERS[machines])
    return Space(graph, made, cuts(graph, made)[cut], CASES.index((model, machines, cut)))
