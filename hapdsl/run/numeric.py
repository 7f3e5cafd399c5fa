"""A proven program tried out in numbers: what `hapdsl check --numeric` does.

Its model is shrunk until a step takes moments, its shares keep their proportions (a device without work stays without),
and the in-process executor runs it in float64 beside the model on one device.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from hapdsl.check.layout import largest_remainder
from hapdsl.check.split import split_of
from hapdsl.check.verify import verify
from hapdsl.check.write import literal, write
from hapdsl.graph.program import Program
from hapdsl.graph.training import DimensionClass, TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import Diagnostic, HapError, error
from hapdsl.run.initial import initial, random_inputs
from hapdsl.run.inprocess import InProcess, gather
from hapdsl.run.pieces import largest_gap
from hapdsl.run.reference import Reference, advance
from hapdsl.run.threads import one_thread
from hapdsl.theory.expressions import evaluate
from hapdsl.workbench import Workbench, evaluates

TOLERANCE = 1e-9  # float64; larger numbers are compared relatively
SMALL = 200_000  # elements of all tensors of a step: shrinking stops below
LARGEST = 300_000_000  # elements over all devices: beyond it nothing is tried
STEPS = 2  # the second one reads what the first one updated


@dataclass(frozen=True)
class Comparison:
    """The model's parameters it was tried with, and the largest difference of the loss, an output or an updated tensor."""

    settings: Mapping[str, Any]
    gap: float


def compare(bench: Workbench, tree: nodes.Program, seed: int = 0, allow: Set[str] = frozenset()) -> Comparison:
    """Run a proven program at a reduced size beside one device.

    Raises HapError: HAP740 where they differ by more than TOLERANCE (status 1), HAP741 for what is too large even so, and
    what kernels raise.
    """
    full = bench.checked(tree).program
    settings, graph = shrink(bench, tree, full)
    # As it would be written anew: what a line repeats of the model's attributes is of the full size.
    small = _resized(write(full), bench.graph_of(tree), graph, settings)
    checked = verify(small, graph, full.layout.devices)
    assert checked.ok, list(checked.diagnostics)
    program = checked.program
    if _elements(graph) * program.layout.devices > LARGEST:
        raise error(
            "HAP741",
            f"'{tree.name}' is too large to try in numbers on this machine",
            tree.span,
            "check a smaller model",
        )
    with one_thread(), torch.no_grad():
        name, gap = _largest_gap(program, seed, allow)
    if not gap <= TOLERANCE:
        message = f"'{tree.name}' differs from one device: {name} is off by {gap:.3g}"
        raise error("HAP740", message, tree.span, f"tried with {_shown(settings)}", status=1)
    return Comparison(settings, gap)


def _largest_gap(program: Program, seed: int, allow: Set[str]) -> tuple[str, float]:
    """The goal that differs most from one device after STEPS steps, and by how much."""
    graph = program.graph
    held = initial(graph, seed, torch.float64)
    inputs = random_inputs(graph, seed)
    executor = InProcess(program, torch.float64, seed, allow)
    executor.load(held)
    loss = [graph.loss] if graph.loss is not None else []
    goals = [*loss, *(n for n in (*graph.outputs, *graph.metrics) if _made(program, n)), *graph.updates.values()]
    alone = Reference(graph, torch.float64, seed, allow, goals)
    worst = ("", 0.0)
    for step in range(1, STEPS + 1):
        made = executor.step(inputs, step)
        one = alone.step({**held, **inputs}, step)
        for name in goals:
            gap = largest_gap(gather(program, made, name, TOLERANCE), one[name])
            worst = max(worst, (name, gap), key=lambda found: found[1])
        held = advance(graph, held, one)
    return worst


def _made(program: Program, tensor: str) -> bool:
    return any(v.tensor == tensor for i in program.instructions for v in i.outputs)


# -- the same program, smaller ---------------------------------------------------------


def shrink(bench: Workbench, tree: nodes.Program, full: Program) -> tuple[dict[str, Any], TrainingGraph]:
    """Parameters of the model, halved in turn while the graph stays the same but for its extents, until it is SMALL.

    A class keeps a unit for each device that has some of it. Returns the settings and their graph.
    Cost: some twenty elaborations of the model.
    """
    train = not evaluates(tree)
    settings = {**bench.settings(tree)}
    graph = bench.graph_of(tree)  # that of `full` may have classes of its own for some layers
    least = {name: _least(full, cls) for name, cls in graph.classes.items()}
    stuck: set[str] = set()
    while _elements(graph) > SMALL:
        whole = {k: v for k, v in graph.parameters.items() if type(v) is int and v > 1 and k not in stuck}
        if not whole:
            break
        name = max(whole, key=lambda k: whole[k])
        trial = {**settings, name: whole[name] // 2}
        smaller = _like(bench, tree.model, trial, train, graph, least)
        if smaller is None:
            stuck.add(name)
        else:
            settings, graph = trial, smaller
    return settings, graph


def _like(
    bench: Workbench,
    model: str,
    settings: Mapping[str, Any],
    train: bool,
    graph: TrainingGraph,
    least: Mapping[str, int],
) -> TrainingGraph | None:
    """The model's graph under other settings, if it has the same calls and its classes have units enough."""
    try:
        found = bench.graph(model, settings, train)
    except HapError:
        return None
    same = [(n.op, n.inputs, n.outputs) for n in found.nodes] == [(n.op, n.inputs, n.outputs) for n in graph.nodes]
    if not same or set(found.classes) != set(graph.classes):
        return None
    return found if all(cls.units >= least[name] for name, cls in found.classes.items()) else None


def _least(program: Program, cls: DimensionClass) -> int:
    """How many units a class needs: one for each device with some of it in some layers, and two where it can be cut at all."""
    cuts = [cut for name, own in program.layout.shares.items() if split_of(name)[0] == cls.name for cut in own.values()]
    return max([min(2, cls.units), *(int(np.count_nonzero(c)) for c in cuts)])


def _elements(graph: TrainingGraph) -> int:
    return sum(t.elements for t in graph.tensors.values())


def _resized(
    tree: nodes.Program, full: TrainingGraph, small: TrainingGraph, settings: Mapping[str, Any]
) -> nodes.Program:
    """The program's text for the smaller graph: parameters set, shares in proportion, no fingerprint."""
    body: list[nodes.Statement] = []
    for statement in tree.body:
        match statement:
            case nodes.Fingerprint():
                continue
            case nodes.Shares(cls=cls, values=nodes.Items() as values) if cls in small.classes:
                if small.classes[cls].units != full.classes[cls].units:
                    statement = replace(statement, values=_scaled(values, small.classes[cls].units))
        body.append(statement)
    args = tuple(nodes.Arg(k, literal(v)) for k, v in settings.items())
    return replace(tree, body=tuple(body), args=args)


def _scaled(values: nodes.Items, units: int) -> nodes.Items:
    """Shares in the same proportions that add up to `units`; rows stay rows, and who has some keeps some."""
    rows = [v for v in values.items if isinstance(v, nodes.Items)]
    numbers = [_numbers(row) for row in rows] if rows else [_numbers(values)]
    flat = np.array([n for row in numbers for n in row])
    # One unit each for who has some, the rest in proportion.
    has = (flat > 0).astype(np.int64)
    cut = has + largest_remainder([float(n) for n in flat], units - int(has.sum()))
    items = [nodes.Number(int(n)) for n in cut]
    if not rows:
        return nodes.Items(tuple(items))
    width = len(numbers[0])
    return nodes.Items(tuple(nodes.Items(tuple(items[k : k + width])) for k in range(0, len(items), width)))


def _numbers(items: nodes.Items) -> list[int]:
    found: list[int] = []
    for item in items.items:
        if isinstance(item, nodes.Binary):
            found += [evaluate(item.right, {})] * evaluate(item.left, {})
        else:
            found.append(evaluate(item, {}))
    return found


def as_words(found: Comparison) -> str:
    """For a person: what was tried and how close it came."""
    return f"equal to one device within {found.gap:.1g} ({_shown(found.settings)})"


def _shown(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} = {v}" for k, v in settings.items()) or "at full size"


def warning(problem: HapError) -> tuple[Diagnostic, ...]:
    """Findings of a trial that could not be made, as warnings."""
    return tuple(replace(d, severity="warning") if d.code == "HAP741" else d for d in problem.diagnostics)
