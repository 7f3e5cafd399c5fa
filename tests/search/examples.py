"""The models and clusters of programs/, small enough for tests."""

from __future__ import annotations

from functools import cache

from hapdsl.cluster import Cluster
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang import nodes
from hapdsl.workbench import Workbench
from tests.texts import PROGRAMS

# Sizes at which computing and communicating weigh about the same on CPU clusters, and every class has several units.
SMALL: dict[str, dict[str, int]] = {
    "accumulate": {"batch": 4, "turns": 2, "seq": 8, "d": 16, "heads": 4, "ffn": 32, "vocab": 64, "layers": 1},
    "bert": {"batch": 4, "seq": 8, "d": 16, "heads": 4, "ffn": 32, "vocab": 64, "layers": 1},
    "bert_moe": {"batch": 4, "seq": 8, "d": 16, "heads": 4, "ffn": 32, "vocab": 64, "layers": 2},
    "cnn": {"batch": 16, "channels": 4, "features": 8, "hidden": 16},
    "decoder": {"batch": 4, "seq": 8, "d": 16, "heads": 4, "ffn": 32, "vocab": 64, "layers": 1},
    "dlrm": {"batch": 16, "d": 8, "h1": 16, "h2": 8, **{f"r{i}": 32 for i in range(1, 9)}},
    "encoder": {"batch": 8, "layers": 1, "d": 16, "heads": 4, "ffn": 32},
    "gpt": {"batch": 4, "seq": 16, "d": 32, "heads": 4, "ffn": 64, "vocab": 128, "layers": 1},
    "gpt2": {"batch": 4, "seq": 8, "d": 16, "heads": 4, "ffn": 32, "vocab": 64, "layers": 1},
    "layer": {"batch": 8},
    "llama": {"batch": 4, "seq": 8, "d": 16, "heads": 4, "kv": 2, "ffn": 32, "vocab": 64, "layers": 1},
    "lora": {"batch": 4, "seq": 8, "d": 16, "heads": 4, "ffn": 32, "vocab": 64, "layers": 1, "rank": 2},
    "mixtral": {"batch": 4, "seq": 8, "d": 16, "heads": 4, "kv": 2, "ffn": 32, "vocab": 64, "layers": 1, "experts": 4},
    "mlp": {"batch": 32, "d": 24, "hidden": 32},
    "resnet": {"batch": 4, "size": 32, "w1": 4, "w2": 4, "w3": 4, "w4": 4},
    "rezero": {"batch": 4, "seq": 8, "d": 16, "heads": 4, "ffn": 32, "vocab": 64, "layers": 1},
    "unet": {"batch": 4, "size": 16, "w1": 4, "w2": 4, "w3": 4, "w4": 4, "w5": 4, "groups": 2},
    "vgg19": {"batch": 8, "c1": 4, "c2": 8, "c3": 8, "c4": 8, "c5": 8, "wide": 32},
    "vit": {"batch": 8, "layers": 1, "d": 16, "heads": 4, "ffn": 32},
    "vit_digits": {"batch": 16, "layers": 1, "d": 16, "heads": 4, "hidden": 32},
}


MODELS = tuple(SMALL)


@cache
def example(name: str, layers: int | None = None) -> TrainingGraph:
    """The small training graph of a model; `layers` deep, where it has layers."""
    settings = SMALL[name] if layers is None else {**SMALL[name], "layers": layers}
    return Workbench(PROGRAMS / "models" / f"{name}.hap").graph(name, settings)


@cache
def clusters() -> dict[str, Cluster]:
    """Every example cluster by name."""
    benches = [Workbench(file) for file in sorted((PROGRAMS / "clusters").glob("*.hap"))]
    return {c.name: b.cluster(c.name) for b in benches for c in b.bundle.of_main(nodes.Cluster)}
