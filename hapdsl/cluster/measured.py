"""`measured` tables: what a profile saw of a collective, or of an operator on one kind of device.

    measured all_gather_grouped        { 1 MiB = 3 ms, 64 MiB = 140 ms }    # even shares
    measured all_gather_grouped at 3.2 { 1 MiB = 4 ms, 64 MiB = 190 ms }    # the largest share is 3.2 times an even one
    measured matmul on v100            { 1 MFLOP = 12 us, 1 GFLOP = 110 us }
    measured matmul on v100            { 1 MiB = 14 us, 64 MiB = 190 us }   # by bytes as well: the larger counts

`hapdsl.cluster.describe` writes them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hapdsl.cluster.hardware import Curve, OpCurve
from hapdsl.graph.program import METHODS
from hapdsl.lang import nodes, units
from hapdsl.lang.diagnostics import HapError, Report
from hapdsl.lang.nodes import Quantity, Span

# A collective as such (then the table holds for all its methods), or one method of it.
MEASURABLE = (
    *METHODS,
    *(f"{kind}_{method}" for kind, methods in METHODS.items() for method in methods),
)
MOST_BYTES, MOST_SECONDS, MOST_SKEWED = 1e18, 1e6, 1e5
BEYOND = 1e3


def read_measured(statements: Sequence[nodes.Measured], report: Report) -> dict[str, Curve]:
    """Curves by collective, of the statements without `on`. Reports HAP403 a collective measured twice, HAP408 a point out of range,
    HAP414 too few points or points that don't grow, HAP415 an unknown collective, HAP418 sizes in bits."""
    found: dict[str, dict[float, Curve]] = {}
    for statement in statements:
        kind = statement.kind
        skew = 1.0 if statement.skew is None else float(statement.skew)
        if statement.device is not None:
            continue
        if kind not in MEASURABLE:
            known = f"known: {', '.join(METHODS)} and their methods; an operator is measured on a device: `measured {kind} on …`"
            report.add("HAP415", f"there is no collective '{kind}'", statement.span, known)
        elif skew in found.get(kind, ()):
            report.add(
                "HAP403",
                f"'{kind}' is measured twice",
                statement.span,
                "keep one table, or say `at` which skew the other was measured",
            )
        if statement.skew is not None and (kind in METHODS or kind.startswith("all_reduce")):
            help = "leave `at` out, or name a method: `measured all_gather_grouped at 2.5 { … }`"
            report.add("HAP415", f"'{kind}' isn't measured by its shares", statement.span, help)
        elif not 1 <= skew <= MOST_SKEWED:
            limits = f"1 (even) to {MOST_SKEWED:g}: how many times an even share the largest one is"
            report.add("HAP408", f"measured {kind}: a skew is out of range", statement.span, limits)
        points = _points(statement, report)
        if points is not None and _grows(statement, points, report):
            found.setdefault(kind, {}).setdefault(skew, Curve(points))
    return {kind: _joined(curves) for kind, curves in found.items()}


def _joined(curves: dict[float, Curve]) -> Curve:
    """One curve of those by skew. Its own points lie on or below all of them, so that bounds made of it hold for any shares."""
    if len(curves) == 1:
        return next(iter(curves.values()))
    starts = (curve.start for curve in curves.values())  # there, too, a curve is bent
    sizes = sorted({*(size for curve in curves.values() for size, _ in curve.points), *(s for s in starts if s > 0)})
    sizes = [sizes[0] / BEYOND, *sizes, sizes[-1] * BEYOND]  # beyond the tables, too, it is the least that counts
    least = tuple((size, min(curve.seconds(size) for curve in curves.values())) for size in sizes)
    return Curve(least, tuple(sorted(curves.items())))


def read_operators(
    statements: Sequence[nodes.Measured], kinds: Collection[str], report: Report
) -> dict[str, dict[str, OpCurve]]:
    """By kind of device, curves by operator ("matmul", "matmul.f16"), of the statements with `on`: seconds by FLOP, or by bytes.

    Reports what `read_measured` does, and HAP402 for an unknown device; a collective with `on` is HAP415.
    """
    found: dict[str, dict[str, OpCurve]] = {}
    for statement in statements:
        if statement.device is None:
            continue
        if statement.kind in MEASURABLE:
            help = "leave `on` out: it joins devices"
            report.add("HAP415", f"'{statement.kind}' isn't measured on one device", statement.span, help)
        if statement.device not in kinds:
            known = f"known: {', '.join(kinds) or 'none is declared'}"
            report.add("HAP402", f"there is no device '{statement.device}'", statement.span, known)
        if statement.skew is not None:
            report.add("HAP415", f"'{statement.kind}' has no shares on one device", statement.span, "leave `at` out")
        curves = found.setdefault(statement.device, {})
        in_flop = bool(statement.points) and units.dimension_of(statement.points[0][0].unit) == "FLOP"
        before = curves.get(statement.kind)
        if before is not None and (before.other is not None or before.bytes != in_flop):
            message = f"'{statement.kind}' is measured twice on '{statement.device}'"
            report.add("HAP403", message, statement.span, "keep one table by FLOP and one by bytes")
        points = _points(statement, report, "FLOP" if in_flop else "memory")
        if points is not None and _grows(statement, points, report):
            curves[statement.kind] = OpCurve(Curve(points), not in_flop, before)
    return found


def _points(
    statement: nodes.Measured, report: Report, size_in: str = "memory"
) -> tuple[tuple[float, float], ...] | None:
    """(bytes or FLOP, seconds) of every point; None where one is wrong."""
    points = []
    for size, time in statement.points:
        x = _convert(size, size_in, statement, report)
        y = _convert(time, "time", statement, report)
        if x is None or y is None:
            return None
        if not 0 < x <= MOST_BYTES:
            _out_of_range(statement, "a size", size.span, report)
            return None
        if not 0 <= y <= MOST_SECONDS:
            _out_of_range(statement, "a time", time.span, report)
            return None
        points.append((x, y))
    return tuple(points)


def _convert(quantity: Quantity, dimension: str, statement: nodes.Measured, report: Report) -> float | None:
    if dimension == "memory" and "bit" in quantity.unit:
        what = f"measured {statement.kind}: sizes are counted in bytes, found {quantity.unit}"
        report.add("HAP418", what, quantity.span, "write `1 MiB = 3 ms`")
        return None
    try:
        return units.to_si(quantity, dimension)
    except HapError as wrong:
        for d in wrong.diagnostics:
            report.add(d.code, f"measured {statement.kind}: {d.message}", quantity.span, "write `1 MiB = 3 ms`")
        return None


def _out_of_range(statement: nodes.Measured, what: str, span: Span, report: Report) -> None:
    limits = f"sizes are positive and up to {MOST_BYTES:g} bytes, times not negative and up to {MOST_SECONDS:g} s"
    report.add("HAP408", f"measured {statement.kind}: {what} is out of range", span, limits)


def _grows(statement: nodes.Measured, points: tuple[tuple[float, float], ...], report: Report) -> bool:
    """Two points at least; sizes grow and times don't shrink, or a message would get cheaper as it grows."""
    what = f"measured {statement.kind}"
    if len(points) < 2:
        report.add(
            "HAP414", f"{what} has {len(points)} of the two points that make a line", statement.span, "add a size"
        )
        return False
    for (x0, y0), (x1, y1), (size, time) in zip(points, points[1:], statement.points[1:], strict=False):
        if x1 <= x0:
            report.add("HAP414", f"{what}: sizes must grow from point to point", size.span, "sort the points")
            return False
        if y1 < y0:
            help = "take the average where measurements cross"
            report.add("HAP414", f"{what}: a larger message can't take less time", time.span, help)
            return False
    return True
