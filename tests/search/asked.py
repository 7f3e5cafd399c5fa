"""A plan together with every choice that it could have taken otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from hapdsl.cluster import Cluster
from hapdsl.graph.program import Program
from hapdsl.graph.training import TrainingGraph
from hapdsl.search.alternatives import Alternatives
from hapdsl.search.planner import plan
from hapdsl.search.questions import Option, Question, questions

from .small import CLUSTERS, MODELS, cluster, training

RELATIVE = 1e-9
DEEP = """
model deep(batch = 12, d = 8, layers = 4) {
    input rows : f32[batch, d]
    x = relu(rows)
    repeat layer in layers {
        param w : f32[d, d]
        x = relu(matmul(x, w))
    }
    loss = sum(x, [0, 1])
    train loss with sgd(lr = 0.1)
}
"""


@dataclass(frozen=True)
class Planned:
    graph: TrainingGraph
    made: Cluster
    program: Program
    known: Alternatives

    @property
    def asked(self) -> list[tuple[Question, Option]]:
        every = (q for t in self.graph.tensors for q in questions(self.known.structure, t))
        return [(q, o) for q in every for o in q.options]


@cache
def planned(model: str, machines: str, objective: str = "sync") -> Planned:
    graph, made = training(MODELS.get(model, model)), cluster(CLUSTERS[machines])
    program = plan(graph, made, objective=objective, baselines=False).program
    return Planned(graph, made, program, Alternatives(program, made, objective))


def additive(p: Planned, assignment: tuple[int, ...]) -> float:
    return p.known.solved.space.graph.cost(assignment, p.known.solved.pricing.prices)


WIDE = """
model wide(batch = 4096, d = 8) {
    input x : f32[batch, d]
    param v : f32[d, d]
    param w : f32[d, d]
    h = relu(matmul(x, v))
    y = matmul(h, w)
    loss = sum(y, [0, 1])
    train loss with sgd(lr = 0.1)
}
"""
