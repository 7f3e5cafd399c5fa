"""Random small models: elimination against HiGHS on the same space, two methods that share nothing but the tables."""

from __future__ import annotations

import numpy as np
import pytest

from hapdsl.search.eliminate import eliminate
from hapdsl.search.milp import solve_milp
from hapdsl.search.removal import order

from .small import CLUSTERS, Tried, cluster, cuts, training


def random_model(rng: np.random.Generator) -> str:
    """A model over square activations [batch, d]: products with new and with tied weights, relu, add, mul, a bias."""
    params: list[str] = []
    lines: list[str] = []
    values = ["x"]
    unread: set[str] = set()

    def param(shape: str) -> str:
        params.append(f"    param w{len(params)} : f32[{shape}]")
        return f"w{len(params) - 1}"

    def pick() -> str:
        """A recent value more often than an old one."""
        value = values[-1 - min(int(rng.geometric(0.6)) - 1, len(values) - 1)]
        unread.discard(value)
        return value

    square: list[str] = []
    for k in range(int(rng.integers(2, 6))):
        what = rng.choice(["matmul", "tied", "relu", "add", "mul", "bias"], p=[0.35, 0.15, 0.15, 0.15, 0.1, 0.1])
        if what == "matmul" or (what == "tied" and not square):
            square.append(param("d, d"))
            lines.append(f"    v{k} = matmul({pick()}, {square[-1]})")
        elif what == "tied":
            lines.append(f"    v{k} = matmul({pick()}, {square[int(rng.integers(len(square)))]})")
        elif what == "relu":
            lines.append(f"    v{k} = relu({pick()})")
        elif what == "bias":
            lines.append(f"    v{k} = add({pick()}, {param('d')})")
        else:
            lines.append(f"    v{k} = {what}({pick()}, {pick()})")
        values.append(f"v{k}")
        unread.add(f"v{k}")
    total, *others = sorted(unread)  # all that nothing reads is added up: the loss depends on every parameter
    for k, value in enumerate(others):
        lines.append(f"    t{k} = add({total}, {value})")
        total = f"t{k}"
    last = param("d, d")
    lines.append(f"    y = matmul({total}, {last})")
    lines.append("    loss = sum(y, [0, 1])")
    rule = rng.choice(["sgd", "momentum"])
    body = "\n".join(["    input x : f32[batch, d]", *params, *lines, f"    train loss with {rule}(lr = 0.1)"])
    return f"model random(batch = 12, d = 6) {{\n{body}\n}}"


@pytest.mark.parametrize("seed", range(48))
def test_two_methods_agree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    made = cluster(CLUSTERS[list(CLUSTERS)[seed % len(CLUSTERS)]])
    while True:  # shared messages tie everything to everything; a model that is too wide for elimination is left out
        graph = training(random_model(rng))
        shares = list(cuts(graph, made).values())[seed // len(CLUSTERS) % 4]
        tried = Tried(graph, made, shares, "overlap" if seed % 5 == 4 else "sync")
        table = tried.space.graph
        if order(table).peak <= 1e6:
            break
    prices = rng.dirichlet(np.ones(table.components))
    solved = eliminate(table, prices)
    best = solved.best()
    other = solve_milp(table, prices)
    assert other.reason == "gap" and other.assignment is not None
    assert other.cost == pytest.approx(solved.bound, rel=1e-6)
    assert table.cost(best, prices) == pytest.approx(solved.bound, rel=1e-9)
    assert solved.bound <= tried.seconds(best) * (1 + 1e-9)
    assert solved.bound <= tried.seconds(other.assignment) * (1 + 1e-9)
