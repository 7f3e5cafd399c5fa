"""Shares as written become a Layout: units per device of every class, on every mesh axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from hapdsl.check.split import split_name
from hapdsl.graph.program import MOST_DEVICES, Layout
from hapdsl.graph.training import DimensionClass, TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, Report, error
from hapdsl.lang.near import near
from hapdsl.theory.expressions import evaluate

Mesh = tuple[tuple[str, int], ...]
Dealt = nodes.Shares | nodes.Ratio
Cut = dict[tuple[int, ...], np.ndarray]  # by mesh axes: units per device


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
    exact = exact / exact.max()  # so that no sum overflows
    exact = exact / exact.sum() * units
    shares = np.floor(exact + 1e-12).astype(np.int64)
    rest = exact - shares
    order = sorted(range(len(shares)), key=lambda d: (-round(rest[d], 12), -exact[d], d))
    for d in order[: units - int(shares.sum())]:
        shares[d] += 1
    return shares


# -- the mesh ----------------------------------------------------------------------


def mesh_of(program: nodes.Program, devices: int | None) -> Mesh:
    """The mesh of a program: as written, else one axis over the cluster's devices, else as many as its shares list.

    Raises HapError: HAP501 when nothing tells how many devices there are, HAP502 when they don't agree.
    """
    written = [s for s in program.body if isinstance(s, nodes.Mesh)]
    if len(written) > 1:
        raise error("HAP502", "a program has one mesh", written[1].span, f"the first is in line {written[0].span.line}")
    if written:
        axes = written[0].axes
        total = math.prod(size for _, size in axes)
        if len({name for name, _ in axes}) < len(axes) or any(size < 1 for _, size in axes):
            raise error("HAP502", "mesh axes need names of their own and at least one device", written[0].span)
        if total > MOST_DEVICES:
            raise error("HAP502", f"the mesh has {total} devices, the most is {MOST_DEVICES}", written[0].span)
        if devices is not None and total != devices:
            raise error(
                "HAP502",
                f"the mesh has {total} devices, the cluster {devices}",
                written[0].span,
                "the axes multiply to the number of devices",
            )
        return axes
    if devices is None:
        devices = next(_listed(program), None)
    if devices is None:
        raise error("HAP501", f"nothing says how many devices '{program.name}' runs on", program.span, "write `on CLUSTER` behind the model, or shares")  # fmt: skip
    return (("devices", devices),)


def _listed(program: nodes.Program) -> Iterator[int]:
    """How many devices each list of shares is for; a list that can't be read is reported with the shares."""
    for statement in program.body:
        if isinstance(statement, nodes.Shares | nodes.Ratio) and isinstance(statement.values, nodes.Items):
            try:
                count = len(_numbers(statement.values))
            except HapError:
                continue
            if count:
                yield count


# -- shares ------------------------------------------------------------------------


def read_layout(program: nodes.Program, graph: TrainingGraph, mesh: Mesh, report: Report) -> Cuts:
    """The layout that a program writes. Classes without shares are cut evenly and reported as free.

    Reports HAP503 unknown class, HAP504 wrong count, HAP505 wrong sum, HAP506 negative, HAP507 twice, HAP508 an axis.
    """
    bare = Layout(mesh)
    shares: dict[str, Cut] = {}
    for statement in program.body:
        if isinstance(statement, nodes.Shares | nodes.Ratio):
            try:
                _read(statement, graph, bare, shares)
            except HapError as stop:
                report.extend(stop.diagnostics)
    free = frozenset(c for c in graph.classes if c not in shares)
    for name, cls in graph.classes.items():
        own = shares.setdefault(name, {})
        for axis, (_, size) in enumerate(mesh):
            if (axis,) not in own:
                own[(axis,)] = _along(bare, axis, Layout.even(cls.units, size))
    return Cuts(Layout(mesh, shares), free)


def _along(mesh: Layout, axis: int, units: Sequence[int] | np.ndarray) -> np.ndarray:
    """Units per position on an axis as units per device."""
    return np.asarray(units, dtype=np.int64)[mesh.coordinates[:, axis]]


def _read(statement: Dealt, graph: TrainingGraph, mesh: Layout, shares: dict[str, Cut]) -> None:
    name = statement.cls if statement.layers is None else split_name(statement.cls, statement.layers)
    cls = graph.classes.get(name)
    if cls is None and statement.layers is not None and statement.cls in graph.classes:
        return  # turns that couldn't be split off, which was said there
    if cls is None:
        hint = near(statement.cls, graph.classes, f"it has: {', '.join(list(graph.classes)[:12])}")
        raise error("HAP503", f"the model has no dimension class '{statement.cls}'", statement.span, hint)
    names = [name for name, _ in mesh.mesh]
    if statement.axis is not None and statement.axis not in names:
        raise error("HAP508", f"the mesh has no axis '{statement.axis}'", statement.span, f"it has: {', '.join(names)}")
    if isinstance(statement.values, nodes.Hole):
        return
    items = statement.values.items
    own = shares.get(cls.name, {})
    if any(isinstance(i, nodes.Items) for i in items):
        found = _rows(statement, cls, mesh)
    elif statement.axis is None and len(names) > 1:
        raise error(
            "HAP508",
            f"shares of '{cls.name}' over which axis?",
            statement.span,
            f"shares {cls.name} over {names[0]} = …",
        )
    else:
        axis = names.index(statement.axis) if statement.axis is not None else 0
        size = mesh.mesh[axis][1]
        numbers = _numbers(statement.values)
        if len(numbers) != size:
            raise error(
                "HAP504",
                f"{len(numbers)} numbers for {size} devices",
                statement.span,
                "one number per device, in the cluster's order",
            )
        found = {(axis,): _along(mesh, axis, _units(statement, numbers, cls))}
    if set(found) & set(own):
        raise error("HAP507", f"'{cls.name}' has shares already", statement.span, "leave one of the two out")
    shares[cls.name] = {**own, **found}


def _rows(statement: Dealt, cls: DimensionClass, mesh: Layout) -> Cut:
    """`[[4, 2], [1, 1]]`: one row per position on the outer axis, so both axes cut the class together."""
    assert isinstance(statement.values, nodes.Items)
    if len(mesh.mesh) != 2:
        raise error("HAP504", "rows of shares need a mesh of two axes", statement.span, "write one number per device")
    if statement.axis is not None:
        raise error("HAP508", "rows of shares are over both axes", statement.span, f"shares {cls.name} = [[…], …]")
    rows = [_numbers(r) for r in statement.values.items if isinstance(r, nodes.Items)]
    outer, inner = mesh.mesh[0][1], mesh.mesh[1][1]
    if len(statement.values.items) != outer or len(rows) != outer or any(len(r) != inner for r in rows):
        raise error(
            "HAP504",
            f"expected {outer} rows of {inner} numbers",
            statement.span,
            "a row per position on the first axis",
        )
    table = np.array(_units(statement, [n for r in rows for n in r], cls), dtype=np.int64).reshape(outer, inner)
    return {(0, 1): table.reshape(-1), (0,): np.repeat(table.sum(axis=1), inner)}


def _units(statement: Dealt, numbers: Sequence[float], cls: DimensionClass) -> list[int]:
    name, units = cls.name, cls.units
    if any(n < 0 for n in numbers):
        raise error("HAP506", f"'{name}' has a negative share", statement.span, "shares count units: 0 or more")
    if isinstance(statement, nodes.Ratio):
        if not any(numbers):
            raise error(
                "HAP506", f"the weights of '{name}' add up to 0", statement.span, "at least one must be positive"
            )
        return [int(n) for n in largest_remainder(numbers, units)]
    if any(n != int(n) for n in numbers):
        raise error("HAP506", f"shares of '{name}' must be whole units", statement.span, f"write: ratio {name} = …")
    total = sum(int(n) for n in numbers)
    if total != units:
        hint = ", ".join(str(n) for n in largest_remainder(numbers, units)) if total else ""
        raise error("HAP505", f"shares of '{name}' add up to {total}, it has {units} units", statement.span, hint and f"in this proportion: [{hint}]")  # fmt: skip
    return [int(n) for n in numbers]


def _numbers(items: nodes.Items) -> list[float]:
    """The numbers of a list; `2 * 76` stands for two of them. Raises HapError HAP504 for anything else, or too many."""
    found: list[float] = []
    for item in items.items:
        count: object = 1
        value = item
        if isinstance(item, nodes.Binary) and item.op == "*":
            count, value = evaluate(item.left, {}), item.right
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise error("HAP504", "a count in front of `*` must be a whole number from 1", item.span)
        if len(found) + count > MOST_DEVICES:
            raise error("HAP504", f"more than {MOST_DEVICES} numbers", item.span)
        number = evaluate(value, {})
        if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) < 2**63:
            raise error("HAP504", "shares are lists of numbers", item.span, "one per device: [4, 2, 1, 1]")
        found += [number] * count
    return found
