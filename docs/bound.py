"""The picture of the bound in docs/proof.md: what programs cost at most and at least under every weight of two devices, worked out by the search itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from hapdsl.draw.picture import FONT, INK, LINE, MARK, QUIET
from hapdsl.graph.program import Layout
from hapdsl.lang.resources import programs_folder
from hapdsl.search.eliminate import eliminate
from hapdsl.search.factors import Array, Assignment
from hapdsl.search.prices import cutting_planes
from hapdsl.search.schedule import Scheduler
from hapdsl.search.space import Space
from hapdsl.workbench import Workbench

PAIR = """
cluster pair {
    device fast { compute = 9 TFLOP/s, memory = 16 GiB, bandwidth = 900 GB/s, launch = 5 us }
    device slow { compute = 3 TFLOP/s, memory = 16 GiB, bandwidth = 300 GB/s, launch = 5 us }
    node host = 1 * fast, 1 * slow over { bandwidth = 10 GB/s, latency = 20 us }
}
"""
# Shares of the faster device, by speed but for these: each program has a device that waits, and not all the same one.
SHARES = {"batch": 7 / 8, "ffn": 1 / 2}
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 380, 70, 44, 30, 92
COLOURS = ("#2f6fb7", "#3fa58b", "#b6802a", "#8b5cb5", "#6b7280")


def bound_svg() -> str:
    """The chart: a line per program that was met, the concave bound under all of them, where eliminations were made, the best program's true cost."""
    text = (programs_folder() / "models" / "gpt.hap").read_text(encoding="utf-8") + PAIR
    bench = Workbench("pair.hap", text)
    graph, cluster = bench.graph("gpt"), bench.cluster()
    shares: dict[str, dict[tuple[int, ...], Array]] = {}
    for name, cls in graph.classes.items():
        first = round(cls.units * SHARES.get(name, 3 / 4))
        shares[name] = {(0,): np.array([first, cls.units - first])}
    space = Space(graph, Layout((("devices", 2),), shares), cluster)
    assert len(space.groups) == 2
    asked: list[tuple[float, float]] = []

    def solve(prices: Array) -> tuple[float, Assignment | None]:
        solved = eliminate(space.graph, prices)
        asked.append((float(prices[0]), solved.bound))
        return solved.bound, solved.best()

    pricing = cutting_planes(space.graph, solve=solve, tolerance=1e-6)
    scheduler = Scheduler(space.conversions)
    lines = []
    for assignment in pricing.minimisers:
        fixed, (fast, slow) = space.graph.plain(assignment), space.graph.component_sums(assignment)
        lines.append((fixed + slow, fixed + fast, scheduler.seconds(space.choice(assignment), "sync")))
    least = [(w, solve(np.array([w, 1 - w]))[0]) for w in np.linspace(0, 1, 101)]
    made = asked[: pricing.solves]
    return "\n".join(
        _chart(lines, least, made, (float(pricing.prices[0]), pricing.bound), min(true for *_, true in lines))
    )


def _chart(
    lines: Sequence[tuple[float, float, float]],
    least: Sequence[tuple[float, float]],
    made: Sequence[tuple[float, float]],
    highest: tuple[float, float],
    best: float,
) -> Iterator[str]:
    """`lines` are (seconds at weight 0, at weight 1, true seconds) of programs; the rest are (weight, seconds), and the best true seconds."""
    low = min(s for _, s in least) - 1e-3
    high = best + 1.2 * (best - low)
    step = 1e-3 * next(n for n in (1, 2, 5, 10, 20, 50) if (high - low) / n < 9e-3)

    def at(weight: float, seconds: float) -> tuple[float, float]:
        across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        return LEFT + weight * across, TOP + (high - seconds) / (high - low) * down

    def text(x: float, y: float, words: str, colour: str = INK, anchor: str = "start") -> str:
        apart = 'stroke="#ffffff" stroke-width="4" paint-order="stroke"'  # from lines behind it
        return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" {apart}>{escape(words)}</text>'

    def line(start: tuple[float, float], end: tuple[float, float], style: str) -> str:
        (a, b), (c, d) = at(*start), at(*end)
        return f'<line x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}" {style}/>'

    (left, bottom), (right, top) = at(0, low), at(1, high)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="{FONT}" font-size="12">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
        f'<clipPath id="frame"><rect x="{left}" y="{top}" width="{right - left}" height="{bottom - top}"/></clipPath>'
    )
    yield text(left, 24, "A line per program: its cost if every stage took the weighted mean of its devices")
    for weight in (0, 0.25, 0.5, 0.75, 1):
        x, _ = at(weight, low)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}" stroke="#e5e7eb"/>'
        yield text(x, bottom + 16, f"{weight:g}", QUIET, "middle")
    for seconds in np.arange(np.ceil(low / step) * step, high, step):
        yield text(left - 8, at(0, seconds)[1] + 4, f"{seconds * 1e3:.0f} ms", QUIET, "end")
        yield line((0, seconds), (1, seconds), 'stroke="#f1f2f4"')
    yield text((left + right) / 2, bottom + 32, "weight of the fast device; the slow one has the rest", QUIET, "middle")
    points = " ".join("{:.1f},{:.1f}".format(*at(*p)) for p in least)
    yield f'<polygon points="{left:.1f},{bottom:.1f} {points} {right:.1f},{bottom:.1f}" fill="#eef3fa"/>'
    yield '<g clip-path="url(#frame)">'
    for number, (start, end, _) in enumerate(lines):
        yield line((0, start), (1, end), f'stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="1.5"')
    yield "</g>"
    yield f'<polyline points="{points}" fill="none" stroke="{INK}" stroke-width="2.5"/>'
    yield line((0, best), (1, best), f'stroke="{MARK}" stroke-width="1.5" stroke-dasharray="6 4"')
    x, y = at(1, best)
    yield text(x - 6, y - 6, f"the best program met, truly priced: {best * 1e3:.2f} ms", MARK, "end")
    for number, (weight, seconds) in enumerate(made, 1):
        x, y = at(weight, seconds)
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#ffffff" stroke="{INK}" stroke-width="1.5"/>'
        yield text(x + 7, y + 15, str(number), QUIET)
    x, y = at(*highest)
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{INK}"/>'
    gap = (best - highest[1]) / best
    yield text(left, HEIGHT - 34, f"Shaded: no program costs so little. Highest at a weight of {highest[0]:.3f}: the bound, {highest[1] * 1e3:.2f} ms; gap {gap * 100:.2f} %.")  # fmt: skip
    yield text(
        left, HEIGHT - 16, f"Numbered: the {len(made)} eliminations, in the order in which they were made.", QUIET
    )
    yield f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}" fill="none" stroke="{LINE}"/></svg>\n'
