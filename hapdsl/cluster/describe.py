"""From what a profile has seen to a `cluster` block: kinds of devices, nodes, links, and curves as `measured` tables.

Devices are of one kind where their hardware has one name and they take as long for the same calls, within a fifth at the median. A device's peaks are the best
that any operator has reached on it; `efficiency` says what those come to that weren't measured, `interference` what computing and messages take from each other. Links are what two devices alone see
of them: formulas made of them hold where a group is no whole cluster, and whatever was measured with all devices goes before.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np

from hapdsl.cluster import machine
from hapdsl.cluster.fit import monotone, tile
from hapdsl.cluster.hardware import in_whole_tiles, lookup
from hapdsl.cluster.seen import LinkSample, MoveSample, OpSample, Seen
from hapdsl.graph.program import METHODS
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error
from hapdsl.lang.parse import parse

ALIKE = 1.2  # how many times as long devices of one kind may take
NEAR_CARDS = 1.1  # and how far the cards of nodes may be apart that count as the network's
LAUNCHES = 10  # that a call takes at least which tells of tiles
NOISE = 0.1  # of what a large message takes: what bytes take at least, as a small one may have been held up
_TIMES = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


def describe(seen: Seen, name: str, note: str = "") -> nodes.Cluster:
    """The block of a cluster called `name`, with `note` as the comment above it. Raises HapError HAP428 where nothing was measured."""
    if not any(isinstance(s, OpSample | MoveSample) for s in seen.samples):
        raise error("HAP428", "nothing has been measured yet", status=1)
    kinds = sort_out(seen)
    lines = [f"# {line}" for line in note.split("\n") if line]
    lines += [
        f"cluster {word(name)} {{",
        *_devices(seen, kinds),
        *_hosts(seen, kinds),
        *_operators(seen, kinds),
        *_collectives(seen),
        "}",
    ]
    block = parse("\n".join(lines) + "\n", "<profile>").items[0]
    assert isinstance(block, nodes.Cluster)
    return block


def word(text: str) -> str:
    """A name of the language made of any text."""
    plain = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    return plain if plain and not plain[0].isdigit() else f"c_{plain}".rstrip("_")


# -- kinds of devices -------------------------------------------------------------------


def sort_out(seen: Seen) -> list[str]:
    """The kind of each device: `cpu` where all are alike, else `cpu_1`, `cpu_2` … from the fastest."""
    times = np.array([s.seconds for s in seen.ops]) if seen.ops else np.ones((1, len(seen)))
    pace = np.median(times / times.min(axis=1, keepdims=True), axis=0)
    found = [""] * len(seen)
    for hardware in dict.fromkeys(seen.kinds):
        members = sorted((d for d in range(len(seen)) if seen.kinds[d] == hardware), key=lambda d: pace[d])
        sorts: list[list[int]] = []
        for d in members:
            if not sorts or pace[d] > ALIKE * pace[sorts[-1][0]]:
                sorts.append([])
            sorts[-1].append(d)
        for number, sort in enumerate(sorts, 1):
            for d in sort:
                found[d] = word(hardware).lower() + (f"_{number}" if len(sorts) > 1 else "")
    return found


def _members(kinds: Sequence[str]) -> dict[str, list[int]]:
    return {kind: [d for d, k in enumerate(kinds) if k == kind] for kind in sorted(dict.fromkeys(kinds))}


def _mean(values: Sequence[float], members: Iterable[int]) -> float:
    return float(np.exp(np.mean([math.log(values[d]) for d in members])))


def _devices(seen: Seen, kinds: Sequence[str]) -> Iterator[str]:
    launches, copies = (seen.figures(name) for name in ("launches", "copies"))
    for kind, members in _members(kinds).items():
        speeds: dict[str, float] = {}
        reached: list[float] = []  # FLOP/s of each operator that is measured by FLOP, at best
        bandwidth = _mean(copies, members) if copies else machine.CORE_BANDWIDTH
        best = bandwidth
        for table, samples in _tables(seen.ops):
            dtype = table.partition(".")[2] or "f32"
            flops = max(s.flops / min(s.seconds[d] for d in members) for s in samples)
            best = max(best, *(s.moved / min(s.seconds[d] for d in members) for s in samples))
            if flops > 0:  # a transposition says nothing of how fast a device computes
                speeds[dtype] = max(speeds.get(dtype, 0.0), flops)
            if any(s.by_flop for s in samples) and dtype == "f32":
                reached.append(flops)
        speeds.setdefault("f32", machine.CORE_FLOPS)
        compute = ", ".join(f"{dtype} = {_up(speed / 1e9)} GFLOP/s" for dtype, speed in speeds.items())
        launch = _seconds(_mean(launches, members) if launches else machine.LAUNCH)
        general = float(np.median(reached)) / speeds["f32"] if reached else 1.0
        efficiency = f"compute = {_part(general)}, memory = {_part(bandwidth / best)}"
        interference = _interference(seen, members)
        found = _tiles(seen, members)
        tiles = (
            f", tile = {{ {', '.join(f'{op} = {t}' for op, t in found.items())} }}"
            if max(found.values(), default=1) > 1
            else ""
        )
        yield (
            f"    device {kind} {{ compute = {{ {compute} }}, memory = {min(seen.memory[d] for d in members) / 2**20:.0f} MiB, "
            f"bandwidth = {_up(best / 1e9)} GB/s, launch = {launch}, efficiency = {{ {efficiency} }}{tiles}{interference} }}"
        )


def _interference(seen: Seen, members: Sequence[int]) -> str:
    """What computing and messages of some devices take from each other, nothing where that is nothing."""
    parts = {}  # rounded down, as both together are at most 1
    for part, name in (("compute", "interference"), ("message", "delay")):
        values = seen.figures(name)
        parts[part] = math.floor(100 * float(np.mean([values[d] for d in members])) + 1e-6) / 100 if values else 0.0
    written = ", ".join(f"{part} = {value}" for part, value in parts.items() if value)
    return f", interference = {{ {written} }}" if written else ""


def _tiles(seen: Seen, members: Sequence[int]) -> dict[str, int]:
    """By operator the length of its tiles on some devices, 1 where there are none: of those whose calls differ in what may be tiled."""
    launches = seen.figures("launches")
    least = LAUNCHES * _mean(launches, members) if launches else 0.0
    found = {}
    for table, samples in _tables(seen.ops):
        if len({s.tiled for s in samples}) > 1:
            taken = [(s.flops, s.tiled, _mean(s.seconds, members)) for s in samples]
            found[table] = tile(t for t in taken if t[2] >= least)
    return found


def _tables(samples: Iterable[OpSample]) -> Iterator[tuple[str, list[OpSample]]]:
    by_table: dict[str, list[OpSample]] = {}
    for sample in samples:
        by_table.setdefault(sample.table, []).append(sample)
    yield from by_table.items()


# -- nodes and links ---------------------------------------------------------------------


def _hosts(seen: Seen, kinds: Sequence[str]) -> Iterator[str]:
    runs = [[d for d, _ in run] for _, run in groupby(enumerate(seen.nodes), key=lambda pair: pair[1])]
    where = {d: k for k, run in enumerate(runs) for d in run}
    cards = _cards(seen, where, len(runs))
    fastest = max((c for c in cards if c), default=machine.LOOPBACK.bandwidth)
    declared: dict[str, str] = {}
    order: list[str] = []
    for run, card in zip(runs, cards, strict=True):
        parts = ", ".join(f"{len(list(same))} * {kind}" for kind, same in groupby(kinds[d] for d in run))
        over = f" over {_link(*_between(seen, run))}" if len(run) > 1 else ""
        own = f" uplink {{ bandwidth = {_bandwidth(card)} }}" if card and card * NEAR_CARDS < fastest else ""
        text = f"{parts}{over}{own}"
        label = next((n for n, t in declared.items() if t == text), None)
        if label is None:
            label = f"node_{len(declared) + 1}"
            declared[label] = text
        order.append(label)
    for label, text in declared.items():
        yield f"    node {label} = {text}"
    if len(runs) > 1:
        listed = ", ".join(f"{len(list(same))} * {label}" for label, same in groupby(order))
        latencies = [s.seconds for s in _small(seen) if where[s.source] != where[s.target]]
        yield f"    network {listed} over {_link(fastest, max(latencies, default=machine.LOOPBACK.latency))}"


def _small(seen: Seen) -> list[LinkSample]:
    """What the smallest message took: a latency, as good as it gets."""
    least = min((s.size for s in seen.links), default=0)
    return [s for s in seen.links if s.size == least]


def _speeds(seen: Seen) -> dict[tuple[int, int], float]:
    """Bytes/s by pair of devices, latency taken off; on a busy machine a small message may take as long as a large one, and no link is
    infinitely fast."""
    small = {(s.source, s.target): s for s in _small(seen)}
    found = {}
    for s in seen.links:
        first = small.get((s.source, s.target))
        if first is not None and s.size > first.size:
            found[s.source, s.target] = (s.size - first.size) / max(s.seconds - first.seconds, NOISE * s.seconds)
    return found


def _cards(seen: Seen, where: dict[int, int], count: int) -> list[float | None]:
    """Of each node the bytes/s to whom it reaches fastest: what is slower there is the other's card."""
    found: list[float | None] = [None] * count
    for (a, b), speed in _speeds(seen).items():
        if where[a] != where[b]:
            for node in (where[a], where[b]):
                found[node] = max(found[node] or 0.0, speed)
    return found


def _between(seen: Seen, run: Sequence[int]) -> tuple[float, float]:
    """Bandwidth and latency within a node: its slowest pair's."""
    speeds = [speed for (a, b), speed in _speeds(seen).items() if a in run and b in run]
    latencies = [s.seconds for s in _small(seen) if s.source in run and s.target in run]
    return min(speeds, default=machine.LOOPBACK.bandwidth), max(latencies, default=machine.LOOPBACK.latency)


def _link(bandwidth: float, latency: float) -> str:
    return f"{{ bandwidth = {_bandwidth(bandwidth)}, latency = {_seconds(latency)} }}"


# -- measured tables -----------------------------------------------------------------------


def _operators(seen: Seen, kinds: Sequence[str]) -> Iterator[str]:
    for kind, members in _members(kinds).items():
        tiles = _tiles(seen, members)
        for table, samples in _tables(seen.ops):
            op, _, dtype = table.partition(".")
            length = lookup(tiles, op, dtype or "f32") or 1
            for by_flop in (True, False):
                chosen = [s for s in samples if s.by_flop == by_flop]
                points = monotone(
                    (float(in_whole_tiles(s.size, s.tiled, length)) if by_flop else s.size, _mean(s.seconds, members))
                    for s in chosen
                )
                yield from table_lines(f"{table} on {kind}", points, by_flop)


def _collectives(seen: Seen) -> Iterator[str]:
    for kind, methods in METHODS.items():
        for method in methods:
            chosen = [s for s in seen.moves if (s.kind, s.method) == (kind, method)]
            by_skew: dict[float, list[tuple[float, float]]] = {}
            for s in chosen:
                whole = kind == "all_reduce" or method == "grouped"
                skew = round(len(seen) * s.largest / s.total, 1) if method == "grouped" else 1.0
                by_skew.setdefault(max(skew, 1.0), []).append((s.total if whole else len(seen) * s.largest, s.seconds))
            for skew, samples in sorted(by_skew.items()):
                yield from table_lines(
                    f"{kind}_{method}" + (f" at {skew:g}" if skew > 1 else ""), monotone(samples), False
                )


def table_lines(what: str, points: Sequence[tuple[float, float]], by_flop: bool) -> Iterator[str]:
    """The statement of a table; none of fewer than two points."""
    if len(points) > 1:
        listed = ", ".join(
            f"{_flop(size) if by_flop else _bytes(size)} = {_seconds(seconds)}" for size, seconds in points
        )
        yield f"    measured {what} {{ {listed} }}"


# -- amounts as text ------------------------------------------------------------------------


def _seconds(value: float) -> str:
    unit, factor = next(((u, f) for u, f in _TIMES if value >= f), _TIMES[-1])
    return f"{float(f'{value / factor:.4g}')!r} {unit}"


def _bytes(value: float) -> str:
    unit, factor = next(((u, f) for u, f in (("MiB", 2**20), ("KiB", 2**10)) if value >= f), ("B", 1))
    return f"{float(f'{value / factor:.6g}')!r} {unit}"


def _flop(value: float) -> str:
    unit, factor = next(
        ((u, f) for u, f in (("GFLOP", 1e9), ("MFLOP", 1e6), ("kFLOP", 1e3)) if value >= f), ("FLOP", 1.0)
    )
    return f"{float(f'{value / factor:.6g}')!r} {unit}"


def _bandwidth(value: float) -> str:
    return f"{float(f'{value / 1e6:.4g}')!r} MB/s"


def _up(value: float) -> str:
    """Three digits, rounded up: nothing may have been faster than a peak."""
    digits = 2 - math.floor(math.log10(value))
    return repr(float(math.ceil(value * 10**digits - 1e-9) / 10**digits))


def _part(value: float) -> str:
    return repr(min(1.0, max(0.001, float(f"{value:.3g}"))))
