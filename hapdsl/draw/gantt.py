"""A step as a Gantt chart (SVG): a row per device with its compute and its communication stream, idle time hatched.

Devices that do the same at the same times share a row. What is narrower than a pixel is drawn together with its neighbours. Every box has
a tooltip.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from hapdsl.cost.evaluate import Cost
from hapdsl.draw.picture import FONT, INK, LINE, QUIET
from hapdsl.draw.timeline import timeline
from hapdsl.draw.words import shares_in_words
from hapdsl.graph.program import Program
from hapdsl.lang.amounts import in_bytes, in_seconds

Floats = NDArray[np.float64]
COLOURS = {
    "forward": "#9cc4f7", "backward": "#f5b971", "update": "#b6a8ef",
    "all_reduce": "#e26d6d", "all_gather": "#3fa58b", "reduce_scatter": "#57b9d4", "all_to_all": "#c65f9c",
}  # fmt: skip
LEFT, CHART, RIGHT = 190, 1000, 170  # pixels: names, time, totals
TOP, LANE, GAP, BOTTOM = 74, 20, 12, 62
MOST_ROWS = 128
TEXT_FROM = 46  # pixels: a box that wide has a name


@dataclass(frozen=True)
class Bar:
    """Something that a stream does; `tip` is its tooltip, `count` the instructions in it."""

    start: float
    end: float
    colour: str
    name: str
    tip: str
    count: int = 1


@dataclass(frozen=True)
class Row:
    """Devices that do the same. `idle` are the stretches in which they compute nothing, `busy` the seconds in which they compute."""

    names: tuple[str, ...]
    compute: tuple[Bar, ...]
    communication: tuple[Bar, ...]
    idle: tuple[tuple[float, float], ...]
    busy: float

    @property
    def title(self) -> str:
        return self.names[0] if len(self.names) == 1 else f"{self.names[0]} and {len(self.names) - 1} more"


def gantt_svg(program: Program, cost: Cost, devices: Sequence[str] | None = None, kind: str = "overlap") -> str:
    """The chart's text. `devices` are their names in order; `kind` as in `hapdsl.draw.timeline`."""
    total = cost.seconds(kind)
    found = rows(program, cost, devices, kind)
    shown = found[:MOST_ROWS]
    height = TOP + len(shown) * (2 * LANE + GAP) + BOTTOM
    width = LEFT + CHART + RIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="{FONT}" font-size="11" fill="{INK}">',
        '<defs><pattern id="idle" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<rect width="6" height="6" fill="#f6f7f8"/><line x1="0" y1="0" x2="0" y2="6" stroke="{LINE}" stroke-width="1.2"/></pattern></defs>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(
            12,
            22,
            f"{program.name} for {program.graph.model}: {in_seconds(total)} a step, {'communication beside compute' if kind == 'overlap' else 'stage by stage'}",
            size=15,
            bold=True,
        ),
        _text(12, 40, "; ".join(line.removeprefix("shares ") for line in shares_in_words(program)[:4]), colour=QUIET),
        *_axis(total, height),
    ]
    for k, row in enumerate(shown):
        parts += _row(row, total, TOP + k * (2 * LANE + GAP))
    more = f"{len(found) - len(shown)} more rows aren't shown" if len(found) > len(shown) else ""
    parts += [*_legend(program, height - 22, more), "</svg>", ""]
    return "\n".join(parts)


def rows(program: Program, cost: Cost, devices: Sequence[str] | None = None, kind: str = "overlap") -> list[Row]:
    """What the chart shows, device by device; those that do the same are one row."""
    names = devices or [f"device {d}" for d in range(program.layout.devices)]
    starts, ends = timeline(program, cost, kind)
    total = cost.seconds(kind)
    alike: dict[bytes, list[int]] = {}
    for d in range(len(names)):
        alike.setdefault(np.ascontiguousarray(np.stack([starts[:, d], ends[:, d]])).tobytes(), []).append(d)
    found = []
    for members in alike.values():
        bars: tuple[list[Bar], list[Bar]] = ([], [])
        for k, instruction in enumerate(program.instructions):
            start, end = float(starts[k, members[0]]), float(ends[k, members[0]])
            if end <= start:
                continue
            value = str(instruction.outputs[0]) if instruction.outputs else ""
            what = f"{instruction.op} {instruction.method}" if instruction.method else instruction.op
            tip = f"{what} → {value}: {in_seconds(end - start)}"
            if instruction.is_collective:
                tip += f", {in_bytes(float(sum(program.graph.tensors[v.tensor].bytes for v in instruction.inputs)))}"
            colour = COLOURS.get(instruction.op if instruction.is_collective else instruction.section, LINE)
            bars[int(instruction.is_collective)].append(Bar(start, end, colour, instruction.op, tip))
        idle = tuple(_between(bars[0], total))
        busy = sum(b.end - b.start for b in bars[0])
        found.append(Row(tuple(names[d] for d in members), tuple(bars[0]), tuple(bars[1]), idle, busy))
    return found


def _between(bars: Sequence[Bar], total: float) -> Iterator[tuple[float, float]]:
    """Where no bar is, from 0 to `total`."""
    now = 0.0
    for bar in sorted(bars, key=lambda b: b.start):
        if bar.start > now:
            yield now, bar.start
        now = max(now, bar.end)
    if total > now:
        yield now, total


# -- SVG -----------------------------------------------------------------------------


def _row(row: Row, total: float, y: float) -> Iterator[str]:
    scale = CHART / total if total else 0.0
    yield _text(LEFT - 10, y + 14, row.title, anchor="end", bold=True)
    yield _text(LEFT - 10, y + LANE + 14, "communication", anchor="end", colour=QUIET)
    part = row.busy / total if total else 1.0
    yield _text(LEFT + CHART + 10, y + 14, f"computes {part * 100:.0f} %")
    yield _text(LEFT + CHART + 10, y + LANE + 14, f"idle {in_seconds(max(0.0, total - row.busy))}", colour=QUIET)
    for start, end in row.idle:
        tip = f"idle for {in_seconds(end - start)}"
        yield _box(LEFT + start * scale, y + 2, (end - start) * scale, LANE - 4, "url(#idle)", tip, "idle")
    yield f'<line x1="{LEFT}" x2="{LEFT + CHART}" y1="{y + LANE * 1.5:.1f}" y2="{y + LANE * 1.5:.1f}" stroke="#eceef1"/>'
    for lane, bars in ((0, row.compute), (1, row.communication)):
        for bar in _merged(bars, scale):
            x, w = LEFT + bar.start * scale, (bar.end - bar.start) * scale
            yield _box(x, y + lane * LANE + 2, w, LANE - 4, bar.colour, bar.tip, "bar")
            if w >= TEXT_FROM:
                letters = int((w - 8) / 6)
                name = bar.name if len(bar.name) <= letters else bar.name[: letters - 1] + "…"
                yield _text(x + 4, y + lane * LANE + 14, name, size=10)


def _merged(bars: Sequence[Bar], scale: float) -> Iterator[Bar]:
    """Neighbours of one colour that are narrower than a pixel become one bar."""
    held: Bar | None = None
    for bar in bars:
        narrow = (bar.end - bar.start) * scale < 1
        if held is not None and narrow and held.colour == bar.colour and (bar.start - held.end) * scale < 0.5:
            count = held.count + 1
            held = Bar(
                held.start, bar.end, held.colour, "", f"{count} instructions: {in_seconds(bar.end - held.start)}", count
            )
            continue
        if held is not None:
            yield held
        held = bar if not narrow else Bar(bar.start, bar.end, bar.colour, "", bar.tip)
        if not narrow:
            yield held
            held = None
    if held is not None:
        yield held


def _axis(total: float, height: float) -> Iterator[str]:
    bottom = height - BOTTOM + 4
    for value in _ticks(total):
        x = LEFT + value / total * CHART
        yield f'<line x1="{x:.2f}" x2="{x:.2f}" y1="{TOP - 8}" y2="{bottom}" stroke="#e5e7eb"/>'
        yield _text(x, TOP - 12, in_seconds(value), anchor="middle", colour=QUIET, size=10)


def _ticks(total: float) -> list[float]:
    """From 0 on in steps of 1, 2 or 5 of some power of ten, ten at most."""
    if not total:
        return []
    step = 10.0 ** math.floor(math.log10(total))
    step = next(s for s in (step / 10, step / 5, step / 2, step, step * 2) if total / s <= 10)
    return [k * step for k in range(int(total / step * (1 + 1e-12)) + 1)]


def _legend(program: Program, y: float, more: str) -> Iterator[str]:
    used = {i.op if i.is_collective else i.section for i in program.instructions}
    x = float(LEFT)
    for name, colour in (*((n, c) for n, c in COLOURS.items() if n in used), ("idle", "url(#idle)")):
        yield f'<rect x="{x:.0f}" y="{y - 10}" width="14" height="12" fill="{colour}" stroke="{LINE}" stroke-width="0.5"/>'
        yield _text(x + 20, y, name)
        x += 40 + 6.5 * len(name)
    if more:
        yield _text(x, y, more, colour=QUIET)


def _box(x: float, y: float, width: float, height: float, colour: str, tip: str, kind: str) -> str:
    edge = ' stroke="#ffffff" stroke-width="0.5"' if width > 3 else ""
    return f'<rect class="{kind}" x="{x:.2f}" y="{y:.1f}" width="{max(width, 0.25):.2f}" height="{height}" fill="{colour}"{edge}><title>{escape(tip)}</title></rect>'


def _text(
    x: float, y: float, words: str, anchor: str = "start", colour: str = INK, size: int = 11, bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}"{weight}>{escape(words)}</text>'
