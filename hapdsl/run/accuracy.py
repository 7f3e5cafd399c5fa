"""How often a trained model is right about samples that it hasn't seen."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

import torch
from torch import Tensor

from hapdsl.graph.training import Node, TrainingGraph
from hapdsl.lang.diagnostics import error
from hapdsl.run.data import Batch
from hapdsl.run.reference import Reference
from hapdsl.run.threads import one_thread
from hapdsl.theory.dtypes import FLOATS


def evaluate(graph: TrainingGraph, held: dict[str, Tensor], samples: Batch, allow: Set[str] = frozenset()) -> float:
    """The share of `samples` whose label has the largest output: the forward pass on one device, without dropout.

    `held` are parameters and buffers. Samples go through in batches of the model's own size, the last one filled up.
    Raises HapError HAP712 where the model has no output [batch, classes] beside a label [batch].
    """
    graph = graph.undivided
    label = next((t for t in graph.of_kind("input") if t.dtype not in FLOATS and len(t.shape) == 1), None)
    fits = [
        n
        for n in graph.outputs
        if label and len(graph.tensors[n].shape) == 2 and graph.tensors[n].shape[0] == label.shape[0]
    ]
    if label is None or not fits:
        raise error(
            "HAP712",
            "accuracy needs an output [batch, classes] and a label [batch]",
            help="add `output z` to the model",
        )
    executor = Reference(graph, allow=allow, keep=[fits[0]], nodes=_forward(graph, fits[0]))
    size, total, right = label.shape[0], len(samples[label.name]), 0
    with torch.no_grad(), one_thread():
        for start in range(0, total, size):
            chosen = (torch.arange(start, start + size)) % total
            made = executor.step({**held, **{n: t[chosen] for n, t in samples.items()}})[fits[0]]
            hits = made.argmax(-1) == samples[label.name][chosen]
            right += int(hits[: min(size, total - start)].sum())
    return right / total


def _forward(graph: TrainingGraph, output: str) -> list[Node]:
    """The calls that an output depends on, with dropout switched off."""
    wanted, found = {output}, []
    for node in reversed(graph.nodes):
        if any(t in wanted for t in node.outputs):
            wanted.update(node.inputs)
            if node.op == "dropout":
                still = replace(node.instance, attributes={**node.instance.attributes, "p": 0.0})
                node = replace(node, instance=still)
            found.append(node)
    return found[::-1]
