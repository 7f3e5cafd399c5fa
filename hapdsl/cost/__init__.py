"""What a program costs on a cluster: seconds and bytes."""

from hapdsl.cost.collectives import best_method, collective_seconds, wired_seconds
from hapdsl.cost.compute import compute_dtype, compute_seconds
from hapdsl.cost.evaluate import Cost, Stage, evaluate
from hapdsl.cost.memory import Memory
from hapdsl.cost.pricing import Price, Pricer

__all__ = [
    "Cost", "Memory", "Price", "Pricer", "Stage", "best_method", "collective_seconds", "compute_dtype",
    "compute_seconds", "evaluate", "wired_seconds",
]  # fmt: skip
