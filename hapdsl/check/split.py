"""Classes that a program cuts differently in some layers: `shares heads[layer in 0..6] = …`.

The graph that such a program is read against has one class more for each such statement: the dims of `heads` in the tensors of those
turns. Everything behind reads shares by class, so nothing else changes but one thing: operands that an index ties may now be cut
differently, and a line that reads such operands is no triple (`cut_alike`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from hapdsl.graph.program import Layout, Value
from hapdsl.graph.training import DimensionClass, Node, Tensor, TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, Report, error

_SPLIT = re.compile(r"(.*)\[(.*) in (\d+)\.\.(\d+)\]")


def split_name(cls: str, layers: nodes.Layers) -> str:
    """The name of the class that a statement splits off."""
    return f"{cls}[{layers.variable} in {layers.start}..{layers.stop}]"


def split_of(name: str) -> tuple[str, nodes.Layers | None]:
    """A class's own name and the turns it was split off for."""
    found = _SPLIT.fullmatch(name)
    return (found[1], nodes.Layers(found[2], int(found[3]), int(found[4]))) if found else (name, None)


def split(program: nodes.Program, graph: TrainingGraph, report: Report) -> TrainingGraph:
    """The graph with the classes that `program` splits off; the same graph where it splits none.

    Reports HAP507 turns that were split off already, HAP512 and HAP513 turns that the model doesn't have, HAP525 turns without such a dim.
    An unknown class is left to whoever reads the shares.
    """
    classes = dict(graph.classes)
    moved: dict[tuple[str, int], str] = {}
    for statement in program.body:
        if (
            isinstance(statement, nodes.Shares | nodes.Ratio)
            and statement.layers is not None
            and statement.cls in graph.classes
        ):
            name = split_name(statement.cls, statement.layers)
            if name in classes:
                continue  # a second axis
            try:
                members = tuple(_members(statement, statement.layers, graph))
                if any(m in moved for m in members):
                    raise error("HAP507", f"'{statement.cls}' has shares of its own in some of these turns already", statement.span, "let no two ranges overlap")  # fmt: skip
            except HapError as stop:
                report.extend(stop.diagnostics)
                continue
            classes[name] = DimensionClass(name, graph.classes[statement.cls].units, members)
            moved.update(dict.fromkeys(members, name))
    if not moved:
        return graph
    for name, cls in graph.classes.items():
        classes[name] = replace(cls, members=tuple(m for m in cls.members if m not in moved))
    tensors = {n: _reclassed(t, moved) for n, t in graph.tensors.items()}
    found = replace(graph, tensors=tensors, classes={n: c for n, c in classes.items() if c.members})
    # A cached property: the program still belongs to the model as it is.
    found.__dict__["fingerprint"] = graph.fingerprint
    return found


def _members(
    statement: nodes.Shares | nodes.Ratio, layers: nodes.Layers, graph: TrainingGraph
) -> Iterator[tuple[str, int]]:
    path = layers.variable
    if path not in graph.repeats:
        known = ", ".join(list(graph.repeats)[:8]) or "none"
        raise error("HAP512", f"the model has no repeat '{path}'", layers.span, f"it has: {known}")
    count = graph.repeats[path]
    if not 0 <= layers.start < layers.stop <= count:
        raise error("HAP513", f"'{path}' has the turns 0..{count}, not {layers.start}..{layers.stop}", layers.span, "turns count from 0, and the end is exclusive")  # fmt: skip
    prefixes = tuple(f"{path}.{k}." for k in range(layers.start, layers.stop))
    found = [m for m in graph.classes[statement.cls].members if m[0].startswith(prefixes)]
    if not found:
        raise error(
            "HAP525",
            f"no tensor of these turns has a dim of class '{statement.cls}'",
            statement.span,
            "give the class one list, in all layers",
        )
    yield from found


def _reclassed(tensor: Tensor, moved: dict[tuple[str, int], str]) -> Tensor:
    if not any((tensor.name, d) in moved for d in range(len(tensor.classes))):
        return tensor
    return replace(tensor, classes=tuple(moved.get((tensor.name, d), c) for d, c in enumerate(tensor.classes)))


def cut_alike(
    node: Node,
    inputs: tuple[Value, ...],
    outputs: tuple[Value, ...],
    graph: TrainingGraph,
    layout: Layout,
    span: nodes.Span,
) -> None:
    """Are all dims that share an index cut into the same pieces? Raises HapError HAP537 where they aren't.

    Costs nothing where no class is split: tied dims are of one class then.
    """
    first: dict[str, tuple[Value, str, np.ndarray]] = {}
    sides = [*zip(inputs, node.instance.operands, strict=True), *zip(outputs, node.instance.results, strict=True)]
    for value, dims in sides:
        for d, dim in enumerate(dims):
            axes = tuple(a for a, p in enumerate(value.placement) if p.kind == "S" and p.dim == d)
            cls = graph.tensors[value.tensor].classes[d]
            if not axes or not dim or cls is None:
                continue
            major = node.instance.major(dim)
            known = first.get(major)
            if known is not None and known[1] == cls:
                continue
            # In elements of the index: a class split off has as many units as the one it was part of, so far.
            pieces = np.stack(layout.units(cls, axes)) * node.instance.extents[major] // graph.classes[cls].units
            if known is None:
                first[major] = (value, cls, pieces)
            elif not np.array_equal(known[2], pieces):
                raise error("HAP537", f"{known[0]} and {value} are cut differently (classes {known[1]} and {cls})", span, f"gather one of them first, or give {split_of(cls)[0]} the same shares")  # fmt: skip
