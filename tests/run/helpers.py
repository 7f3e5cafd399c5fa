"""Small programs that only move one or several tensors about."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hapdsl.graph.program import METHODS, Instruction, Layout, Program, Value, conversion
from hapdsl.graph.training import DimensionClass, Tensor, TrainingGraph
from hapdsl.run.context import DTYPES
from hapdsl.run.pieces import ranges, slices
from hapdsl.theory.placements import Placements


def inputs_of(shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str]) -> TrainingGraph:
    """Inputs x0, x1 … with a dimension class for each dim: class `x0.1` is dim 1 of x0, in units of single elements."""
    tensors, classes = {}, {}
    for k, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True)):
        name = f"x{k}"
        own = tuple(f"{name}.{d}" if n > 1 else None for d, n in enumerate(shape))
        tensors[name] = Tensor(name, shape, dtype, "input", own)
        classes.update({c: DimensionClass(c, shape[d], ((name, d),)) for d, c in enumerate(own) if c is not None})
    return TrainingGraph("moves", {}, tensors, [], classes, None)


def mover(
    graph: TrainingGraph, layout: Layout, path: Sequence[Sequence[Placements]], method: str | None = None
) -> Program:
    """Load every tensor at `path[0]` (one placement each) and move all of them, in one message a step, along the path."""
    names = list(graph.tensors)
    at = [Value(n, p) for n, p in zip(names, path[0], strict=True)]
    instructions = [Instruction("input", (), (v,)) for v in at]
    for targets in path[1:]:
        to = [Value(n, p) for n, p in zip(names, targets, strict=True)]
        axis = next(a for a, (p, q) in enumerate(zip(at[0].placement, to[0].placement, strict=True)) if p != q)
        op = conversion(at[0].placement[axis], to[0].placement[axis])
        assert op is not None
        used = method if method in METHODS.get(op, ()) else None
        instructions.append(Instruction(op, tuple(at), tuple(to), method=used, axis=axis))
        at = to
    return Program("moves", graph, layout, instructions)


def partials(whole: torch.Tensor, program: Program, value: Value, draw: random.Random) -> list[torch.Tensor]:
    """What each device holds of `value`: shards of random parts that add up to `whole` over the P axes."""
    coordinates = program.layout.coordinates
    axes = [a for a, p in enumerate(value.placement) if p.kind == "P"]
    keys = sorted({tuple(int(c[a]) for a in axes) for c in coordinates})
    source = torch.Generator().manual_seed(draw.getrandbits(60))
    parts = {}
    for key in keys[1:]:
        part = torch.randint(-8, 8, whole.shape, generator=source)
        parts[key] = part.bool() if whole.dtype == torch.bool else part.to(whole.dtype)
    first = whole.clone()
    for part in parts.values():
        first = first - part
    parts[keys[0]] = first
    return [
        parts[tuple(int(c[a]) for a in axes)][slices(ranges(program, value, d))].clone()
        for d, c in enumerate(coordinates)
    ]


SHAPES = [(7, 5), (6, 4, 3), (9, 2)]


SHARES = {
    "uneven": [[1, 3, 2, 1], [2, 1, 1, 1]],
    "one has none": [[0, 4, 3, 0], [1, 0, 2, 2]],
    "one has all": [[0, 0, 7, 0], [5, 0, 0, 0]],
}


@dataclass
class Case:
    program: Program
    held: dict[Value, list[torch.Tensor]]
    whole: dict[str, torch.Tensor]


def spread(counts: list[int], units: int) -> np.ndarray:
    """The pattern of `counts`, for another number of units: the difference goes to the largest."""
    shares = np.array(counts)
    shares[int(shares.argmax())] += units - shares.sum()
    return shares if (shares >= 0).all() else np.array([units, 0, 0, 0])


def case(graph, layout, path, method, seed) -> Case:
    draw = random.Random(seed)
    program = mover(graph, layout, path, method)
    source = torch.Generator().manual_seed(seed)
    whole, held = {}, {}
    for (name, tensor), placement in zip(graph.tensors.items(), path[0], strict=True):
        value = torch.randint(-20, 20, tensor.shape, generator=source)
        dtype = DTYPES[tensor.dtype]
        whole[name] = value > 0 if dtype == torch.bool else value.to(dtype)
        first = Value(name, placement)
        held[first] = partials(whole[name], program, first, draw)
    return Case(program, held, whole)
