"""The sizes at which the language models, the image models and the recommender are planned: such that each kind of cut pays somewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WIDE = {"batch": 1, "seq": 10, "d": 60, "heads": 5, "ffn": 250, "vocab": 300, "layers": 2}
DEEP = {"batch": 5, "seq": 16, "d": 20, "heads": 5, "ffn": 500, "vocab": 25, "experts": 5}
LANGUAGE: dict[str, tuple[dict[str, int], str]] = {
    "bert": ({"batch": 10, "seq": 6, "d": 20, "heads": 5, "ffn": 30, "vocab": 25, "layers": 1}, "10 GB/s"),
    "bert_moe": ({**DEEP, "layers": 2}, "0.3 GB/s"),
    "gpt2": (WIDE, "10 GB/s"),
    "llama": ({**WIDE, "d": 80, "heads": 10, "kv": 5, "layers": 1}, "10 GB/s"),
    "mixtral": ({**DEEP, "heads": 10, "kv": 5, "layers": 1}, "0.3 GB/s"),
}


@dataclass(frozen=True)
class Case:
    """A model at a size, and the links between the devices. Of weights of devices all shares follow, else they are searched."""

    model: str
    settings: Mapping[str, int]
    bandwidth: str
    weights: tuple[int, ...] = ()


def tables(rows: int) -> dict[str, int]:
    return {f"r{k}": rows * k for k in range(1, 9)}


DENSE = {"numbers": 5, "bag": 2, "h1": 20, "h2": 20}
CASES = {
    "vgg19": Case(
        "vgg19", {"batch": 5, "c1": 5, "c2": 5, "c3": 10, "c4": 10, "c5": 10, "wide": 500, "classes": 5}, "1 GB/s"
    ),
    "vit": Case(
        "vit",
        {"batch": 10, "layers": 2, "d": 20, "heads": 5, "ffn": 100, "size": 8, "patch": 4, "classes": 5},
        "1 GB/s",
    ),
    "unet": Case(
        "unet",
        {"batch": 5, "size": 16, "w1": 10, "w2": 10, "w3": 20, "w4": 20, "w5": 40, "groups": 5, "classes": 5},
        "1 GB/s",
        (3, 1, 1),
    ),
    "resnet": Case(
        "resnet", {"batch": 8, "size": 40, "w1": 4, "w2": 3, "w3": 4, "w4": 4, "classes": 4}, "1 GB/s", (3, 1, 0)
    ),
    "dlrm": Case("dlrm", {**DENSE, "batch": 50, "d": 10, **tables(500)}, "1 GB/s"),
    "dlrm of narrow tables": Case("dlrm", {**DENSE, "batch": 5, "d": 2, **tables(5000)}, "1 GB/s"),
}
