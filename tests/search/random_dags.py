"""Random training DAGs of a few calls: fan-out, activations kept for the backward pass, parameters used twice, calls of several results."""

from __future__ import annotations

import numpy as np

from hapdsl.cluster import Cluster
from hapdsl.graph.training import TrainingGraph
from hapdsl.search.shares import Shares, proportional

from .small import CLUSTERS, cluster, training

SHAPES = {
    "batch, d": ("[0, 1]", "batch = 12, d = 6"),
    "batch, s, d": ("[0, 1, 2]", "batch = 6, s = 4, d = 6"),
    "batch, h, s, d": ("[0, 1, 2, 3]", "batch = 4, h = 3, s = 2, d = 4"),
}
UNARY = ("relu", "gelu", "tanh", "neg", "softmax")
OPTIMIZERS = ("sgd", "momentum", "adam")


def random_model(rng: np.random.Generator, largest: int = 25) -> str:
    """The text of a model over activations of one shape, whose training graph has at most `largest` calls, most of the time."""
    shape = str(rng.choice(list(SHAPES), p=[0.6, 0.3, 0.1]))
    dims, settings = SHAPES[shape]
    params: dict[str, str] = {}
    lines: list[str] = []
    values, unread = ["x"], {"x"}

    def param(dims: str) -> str:
        name = f"w{len(params)}"
        params[name] = dims
        return name

    def known(dims: str) -> str:
        """A parameter of this shape: one that there is already, or a new one."""
        had = [p for p, s in params.items() if s == dims]
        return str(rng.choice(had)) if had and rng.random() < 0.4 else param(dims)

    def pick() -> str:
        value = values[-1 - min(int(rng.geometric(0.55)) - 1, len(values) - 1)]
        unread.discard(value)
        return value

    kinds = {"product": 0.3, "unary": 0.2, "binary": 0.2, "bias": 0.1, "norm": 0.1, "gram": 0.05, "scores": 0.05}
    if shape == "batch, h, s, d":
        kinds["attention"] = 0.5
    names, odds = list(kinds), np.array(list(kinds.values())) / sum(kinds.values())
    for k in range(int(rng.integers(1, 5))):
        kind, out = rng.choice(names, p=odds), f"v{k}"
        if kind == "product":
            text = f"matmul({pick()}, {known('d, d')})"
        elif kind == "unary":
            text = f"{rng.choice(UNARY)}({pick()})"
        elif kind == "binary":
            text = f"{rng.choice(['add', 'mul', 'sub'])}({pick()}, {pick()})"
        elif kind == "bias":
            text = f"{rng.choice(['add', 'mul'])}({pick()}, {known('d')})"
        elif kind == "norm":
            text = f"layer_norm({pick()}, {known('d')}, {known('d')})"
        elif kind == "gram":  # a product with what was made of activations
            lines.append(f"    g{k} = matmul_tn({pick()}, {pick()})")
            text = f"matmul({pick()}, g{k})"
        elif kind == "scores":
            if shape == "batch, d":
                lines.append(f"    g{k} = matmul_nt({pick()}, {pick()})")
                text = f"matmul(g{k}, {pick()})"
            else:
                lines.append(f"    g{k} = bmm_nt({pick()}, {pick()})")
                text = f"bmm(g{k}, {pick()})"
        else:
            text = f"attention({pick()}, {pick()}, {pick()})"
        lines.append(f"    {out} = {text}")
        values.append(out)
        unread.add(out)
    unread.discard("x")
    total, *others = sorted(unread)  # all that nothing reads is added up: the loss depends on every parameter
    for k, value in enumerate(others):
        lines.append(f"    t{k} = add({total}, {value})")
        total = f"t{k}"
    if not params or rng.random() < 0.5:
        lines.append(f"    y = matmul({total}, {known('d, d')})")
        total = "y"
    lines.append(f"    loss = {rng.choice(['sum', 'mean'])}({total}, {dims})")
    body = [f"    input x : f32[{shape}]", *(f"    param {p} : f32[{s}]" for p, s in params.items()), *lines]
    return "model random({}) {{\n{}\n    train loss with {}(lr = 0.1)\n}}".format(
        settings, "\n".join(body), rng.choice(OPTIMIZERS)
    )


def random_case(
    rng: np.random.Generator, least: int = 5, largest: int = 25
) -> tuple[str, TrainingGraph, Cluster, Shares]:
    """A model of `least` to `largest` calls, one of the small clusters, and shares of any kind: even, by speed, uneven, some zero."""
    while True:
        text = random_model(rng, largest)
        graph = training(text)
        if least <= len(graph.nodes) <= largest:
            break
    made = cluster(CLUSTERS[str(rng.choice(list(CLUSTERS)))])
    n = len(made)
    way = int(rng.integers(4))
    if way < 2:
        shares = proportional(graph, [np.ones(n), made.speeds("f32")][way])
    else:  # every class is cut in its own way, with empty shares now and then
        shares = {
            c.name: rng.multinomial(c.units, rng.dirichlet(np.full(n, 2.0 if way == 2 else 0.4)))
            for c in graph.classes.values()
        }
    return text, graph, made, shares
