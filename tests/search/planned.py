"""Example models and clusters as they are planned here, and a model of any depth."""

from __future__ import annotations

from functools import cache

from hapdsl.cluster import Cluster
from hapdsl.graph.build import build, operators
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.load import load
from tests.texts import PROGRAMS

from .small import cluster

SMALL = {
    "mlp": {},
    "gpt": {"layers": 1, "d": 32, "heads": 4, "ffn": 64, "seq": 16, "vocab": 128},
    "cnn": {"channels": 4, "features": 8, "hidden": 16},
}


@cache
def example(name: str) -> TrainingGraph:
    bundle = load(PROGRAMS / "models" / f"{name}.hap")
    return build(bundle.models[name], bundle.defs, operators(bundle.ops), SMALL[name])


@cache
def machines(name: str) -> Cluster:
    return cluster((PROGRAMS / "clusters" / f"{name}.hap").read_text(encoding="utf-8"))


def deep(layers: int) -> str:
    params = "\n".join(f"    param w{k} : f32[d, d]" for k in range(layers))
    calls = "\n".join(f"    u{k} = matmul(h{k}, w{k})\n    h{k + 1} = relu(u{k})" for k in range(layers))
    return f"""model deep(batch = 256, d = 128) {{
    input h0 : f32[batch, d]
{params}
{calls}
    loss = sum(h{layers}, [0, 1])
    train loss with sgd(lr = 0.1)
}}"""
