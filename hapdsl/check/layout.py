"""Shares as written become a Layout: units per device of every class, on every mesh axis."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hapdsl.graph.program import Layout
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, Report, error
from hapdsl.theory.expressions import evaluate

Mesh = tuple[tuple[str, int], ...]


@dataclass
class Cuts:
    """A layout and the classes whose shares are left to the search (even meanwhile)."""

    layout: Layout
    free: frozenset[str] = field(default_factory=frozenset)


def largest_remainder(weights: Sequence[float], units: int) -> np.ndarray:
    """Whole units in proportion to non-negative `weights`: floors first, then one each by largest remainder.

    Equal remainders go to the larger weight, then to the earlier device. Returns int array [devices] that sums to `units`.
    """
    exact = np.asarray(weights, dtype=np.float64)
    exact = exact / exact.sum() * units
    shares = np.floor(exact + 1e-12).astype(np.int64)
    rest = exact - shares
    order = sorted(range(len(shares)), key=lambda d: (-round(rest[d], 12), -exact[d], d))
    for d in order[: units - int(shares.sum())]:
        shares[d] += 1
    return shares


def statements(program: nodes.Program, *kinds: type) -> list[nodes.Statement]:
    return [s for s in program.body if isinstance(s, kinds)]


def mesh_of(program: nodes.Program, devices: int | None) -> Mesh:
    """The mesh of a program: as written, else one axis over the cluster's devices, else as many as its shares list.

    Raises HapError: HAP501 when nothing tells how many devices there are, HAP502 when they don't agree.
    """
    written = [s for s in program.body if isinstance(s, nodes.Mesh)]
    if written:
        axes = written[0].axes
        total = math.prod(size for _, size in axes)
        if len({name for name, _ in axes}) < len(axes) or any(size < 1 for _, size in axes):
            raise error("HAP502", "mesh axes need names of their own and at least one device", written[0].span)
        if devices is not None and total != devices:
            raise error("HAP502", f"the mesh has {total} devices, the cluster {devices}", written[0].span)
        return axes
    if devices is None:
        for statement in program.body:
            if isinstance(statement, nodes.Shares | nodes.Ratio) and isinstance(statement.values, nodes.Items):
                devices = len(_numbers(statement.values))
                break
    if devices is None:
        raise error("HAP501", f"nothing says how many devices '{program.name}' runs on", program.span, "write `on CLUSTER` behind the model, or shares")  # fmt: skip
    return (("devices", devices),)


def read_layout(program: nodes.Program, graph: TrainingGraph, mesh: Mesh, report: Report) -> Cuts:
    """The layout that a program writes. Classes without shares are cut evenly and reported as free.

    Reports HAP503 unknown class, HAP504 wrong count, HAP505 wrong sum, HAP506 negative, HAP507 twice, HAP508 an axis.
    """
    total = math.prod(size for _, size in mesh)
    shares: dict[str, dict[tuple[int, ...], np.ndarray]] = {}
    bare = Layout(mesh)
    for statement in program.body:
        if not isinstance(statement, nodes.Shares | nodes.Ratio):
            continue
        try:
            _read(statement, graph, bare, shares)
        except HapError as stop:
            report.extend(stop.diagnostics)
    free = frozenset(c for c in graph.classes if c not in shares)
    for name, cls in graph.classes.items():
        own = shares.setdefault(name, {})
        for axis, (_, size) in enumerate(mesh):
            if (axis,) not in own:
                even = Layout.even(cls.units, size)
                own[(axis,)] = np.array([even[c[axis]] for c in bare.coordinates], dtype=np.int64)
    assert total == bare.devices
    return Cuts(Layout(mesh, shares), free)


def _read(statement: nodes.Shares | nodes.Ratio, graph: TrainingGraph, mesh: Layout, shares: dict) -> None:
    if isinstance(statement.values, nodes.Hole):
        return
    if statement.layers is not None:
        raise error("HAP509", "shares of some layers only can't be used yet", statement.span, "leave `[… in …]` out: the class has one list")  # fmt: skip
    cls = graph.classes.get(statement.cls)
    if cls is None:
        near = difflib.get_close_matches(statement.cls, graph.classes, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"it has: {', '.join(list(graph.classes)[:12])}"
        raise error("HAP503", f"the model has no dimension class '{statement.cls}'", statement.span, hint)
    names = [name for name, _ in mesh.mesh]
    if statement.axis is not None and statement.axis not in names:
        raise error("HAP508", f"the mesh has no axis '{statement.axis}'", statement.span, f"it has: {', '.join(names)}")
    if statement.axis is None and len(names) > 1 and not isinstance(statement.values.items[0], nodes.Items):
        raise error("HAP508", f"shares of '{cls.name}' over which axis?", statement.span, f"shares {cls.name} over {names[0]} = …")
    own = shares.setdefault(cls.name, {})
    if statement.values.items and isinstance(statement.values.items[0], nodes.Items):
        _read_rows(statement, cls.units, mesh, own)
        return
    axis = names.index(statement.axis) if statement.axis is not None else 0
    size = mesh.mesh[axis][1]
    numbers = _numbers(statement.values)
    if len(numbers) != size:
        raise error("HAP504", f"{len(numbers)} numbers for {size} devices", statement.span, "one number per device, in the cluster's order")
    if (axis,) in own:
        raise error("HAP507", f"'{cls.name}' has shares already", statement.span, "leave one of the two out")
    units = _units(statement, numbers, cls.units, cls.name)
    own[(axis,)] = np.array([units[c[axis]] for c in mesh.coordinates], dtype=np.int64)


def _read_rows(statement: nodes.Shares | nodes.Ratio, units: int, mesh: Layout, own: dict) -> None:
    """`[[4, 2], [1, 1]]`: one row per position on the outer axis, so both axes cut the class together."""
    if len(mesh.mesh) != 2:
        raise error("HAP504", "rows of shares need a mesh of two axes", statement.span)
    assert isinstance(statement.values, nodes.Items)
    rows = [_numbers(r) for r in statement.values.items if isinstance(r, nodes.Items)]
    outer, inner = mesh.mesh[0][1], mesh.mesh[1][1]
    if len(rows) != outer or any(len(r) != inner for r in rows):
        raise error("HAP504", f"expected {outer} rows of {inner} numbers", statement.span)
    flat = _units(statement, [n for r in rows for n in r], units, statement.cls)
    table = np.array(flat, dtype=np.int64).reshape(outer, inner)
    own[(0, 1)] = table.reshape(-1)
    own[(0,)] = np.repeat(table.sum(axis=1), inner)


def _units(statement: nodes.Shares | nodes.Ratio, numbers: list[float], units: int, name: str) -> list[int]:
    if any(n < 0 or not math.isfinite(n) for n in numbers):
        raise error("HAP506", f"'{name}' has a negative share", statement.span, "shares count units: 0 or more")
    if isinstance(statement, nodes.Ratio):
        if sum(numbers) <= 0:
            raise error("HAP506", f"the weights of '{name}' add up to 0", statement.span, "at least one must be positive")
        return [int(n) for n in largest_remainder(numbers, units)]
    if any(n != int(n) for n in numbers):
        raise error("HAP506", f"shares of '{name}' must be whole units", statement.span, f"write: ratio {name} = …")
    if sum(numbers) != units:
        hint = ", ".join(str(n) for n in largest_remainder(numbers, units)) if sum(numbers) > 0 else ""
        raise error("HAP505", f"shares of '{name}' add up to {int(sum(numbers))}, it has {units} units", statement.span, hint and f"in this proportion: [{hint}]")  # fmt: skip
    return [int(n) for n in numbers]


def _numbers(items: nodes.Items) -> list[float]:
    """The numbers of a list; `2 * 76` stands for two of them."""
    found: list[float] = []
    for item in items.items:
        if isinstance(item, nodes.Binary) and item.op == "*":
            count = evaluate(item.left, {})
            if not isinstance(count, int) or not 0 < count <= 1_000_000:
                raise error("HAP504", "a count in front of `*` must be a whole number from 1", item.span)
            found += [evaluate(item.right, {})] * count
        else:
            found.append(evaluate(item, {}))
    return found
