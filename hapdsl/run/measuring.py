"""Measuring the cluster at hand: operators on every device, the links between them, and every collective by every method.

All ranks measure a point at the same time, as they compute at the same time in a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from hapdsl.cluster.machine import total_memory
from hapdsl.cluster.seen import Figures, LinkSample, MoveSample, OpSample, Sample, Seen
from hapdsl.graph.program import METHODS, Instruction, Layout, Program, Value
from hapdsl.graph.training import DimensionClass, Tensor, TrainingGraph
from hapdsl.lang.diagnostics import HapError
from hapdsl.run import levels
from hapdsl.run.backends import Backend
from hapdsl.run.distributed import groups
from hapdsl.run.everybody import texts
from hapdsl.run.groups import Group
from hapdsl.run.lower import Exchange, lower
from hapdsl.run.moves import Move
from hapdsl.run.probes import ESSENTIAL, HEAVY, PRODUCTS, SPEEDS, Probe, ladder, narrow
from hapdsl.run.timing import STAGE, Timing, every, slowest
from hapdsl.theory.library import standard
from hapdsl.theory.placements import P, R, S

SMALLEST = 1024  # bytes of the smallest message
LARGEST = 256 * 2**20
BESIDE = 4 * 2**20  # of one that is sent while something is computed
TOO_LONG_S = 10.0  # a point that takes longer ends its series
MOST_PAIRS = 60
ROOM = 8  # times what a padded message holds: less memory than that is too little to measure it with
PLACES = {"all_reduce": (P, R), "all_gather": (S(0), R), "reduce_scatter": (P, S(0)), "all_to_all": (S(0), S(1))}


@dataclass(frozen=True)
class Extent:
    """How much is measured. `largest` is the largest message in bytes; `quick` takes fewer operators and sizes, and shorter batches."""

    largest: int = LARGEST
    quick: bool = False
    only: tuple[str, ...] = ()  # these operators, where any are named

    @property
    def most(self) -> float:
        """Bytes that the largest operator call moves."""
        return 4 * 2**20 if self.quick else 32 * 2**20

    @property
    def step(self) -> int:
        """From one size of a message to the next."""
        return 16 if self.quick else 4

    @property
    def sizes(self) -> list[int]:
        """Of messages, in bytes."""
        found = [SMALLEST]
        while found[-1] < self.largest:
            found.append(min(found[-1] * self.step, self.largest))
        return found


@dataclass
class Point:
    """One thing to measure. `series` and `weight` predict how long `take` takes; it returns None where a rank can't do it."""

    label: str
    series: str
    weight: float
    take: Callable[[], Sample | None]


Report = Callable[[int, int, float, str, Sample | None], None]  # done, of how many, seconds left, what, its sample


def begin(backend: Backend) -> Seen:
    """What a rank knows of all others before anything is measured. The process group must be up."""
    names = levels.node_names()
    device = backend.device()
    cuda = device.type == "cuda"
    own = (
        torch.cuda.get_device_properties(device).total_memory
        if cuda
        else total_memory() / names.count(names[dist.get_rank()])
    )
    kinds = texts(torch.cuda.get_device_name(device) if cuda else "cpu")
    return Seen(tuple(names), every(float(own)), tuple(kinds))


def measure(seen: Seen, extent: Extent, backend: Backend, report: Report) -> None:
    """Measure on this rank, with all others at work on the same, and add every sample to `seen`.

    `report` is called behind each point. Cost: a minute or two on four local processes, with quick extent ten seconds.
    """
    points = _Measuring(seen, extent, backend).points()
    took: dict[str, tuple[float, float]] = {}  # by series: weight and seconds of its last point
    for done, point in enumerate(points, 1):
        sample = None
        if point.series not in took or took[point.series][1] < TOO_LONG_S:
            start = time.perf_counter()
            sample = point.take()
            took[point.series] = (point.weight, slowest(time.perf_counter() - start))  # all ranks decide alike
            if sample is not None:
                seen.samples.append(sample)
        report(done, len(points), _left(points[done:], took), point.label, sample)


def _left(points: Sequence[Point], took: dict[str, tuple[float, float]]) -> float:
    """Seconds that the points to come will take: each as the last one of its series, and where that was long, more by its size."""
    typical = float(np.median([s for _, s in took.values()]))
    total = 0.0
    for point in points:
        weight, seconds = took.get(point.series, (point.weight, typical))
        if seconds < TOO_LONG_S:
            total += seconds * (max(1.0, point.weight / weight) if seconds > 2 * typical else 1.0)
    return total


class _Measuring:
    def __init__(self, seen: Seen, extent: Extent, backend: Backend) -> None:
        self.seen, self.extent, self.backend = seen, extent, backend
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.device = backend.device()
        self.timing = Timing(self.device, *((0.015, 3) if extent.quick else (0.04, 5)))
        self.groups: dict[str, Group] = {}
        self.stage: Callable[[], None] | None = None  # what is computed before a message

    def points(self) -> list[Point]:
        """Devices, links, then collectives from small to large: breaking off late loses least."""
        found = [
            Point("launch", "launch", 1, self.launch),
            Point("memory bandwidth", "memory", 1, self.copies),
            *self.operators(),
        ]
        if self.size > 1:
            found += self.pairs()
            found += [Point(p.__name__, "interference", 1, p) for p in (self.interference, self.delay)]
            found += sorted(self.collectives(), key=lambda p: p.weight)
        return found

    def operators(self) -> Iterator[Point]:
        quick = self.extent.quick
        for name, decl in standard().items():
            if name not in (self.extent.only or (ESSENTIAL if quick else (name,))):
                continue
            for dtype in SPEEDS if name == "matmul" or (name in HEAVY and not quick) else ("f32",):
                most = self.extent.most if dtype == "f32" else self.extent.most / 8
                probes = [*ladder(decl, most, (22.7 if quick else 8.0) / (2 if name in PRODUCTS else 1), dtype)]
                if dtype == "f32" and not quick:
                    probes += narrow(decl)
                for probe in probes:
                    size = f"{probe.flops:.2g} FLOP" if probe.by_flop else f"{probe.moved:.2g} bytes"
                    yield Point(
                        f"{probe.table}, {size}", probe.table, probe.flops + probe.moved, partial(self.operator, probe)
                    )

    def pairs(self) -> Iterator[Point]:
        """The first devices of all nodes, and neighbours within nodes."""
        nodes, large = self.seen.nodes, min(self.extent.largest, 2**20 if self.extent.quick else 8 * 2**20)
        firsts = [nodes.index(n) for n in dict.fromkeys(nodes)]
        chosen = [(a, b) for i, a in enumerate(firsts) for b in firsts[i + 1 :]][:MOST_PAIRS]
        chosen += [(r, r + 1) for r in range(self.size - 1) if nodes[r] == nodes[r + 1]]
        for a, b in chosen:
            for size in (SMALLEST, large):
                yield Point(f"link {a} - {b}, {size} bytes", f"link {size}", size, partial(self.pair, a, b, size))

    def collectives(self) -> Iterator[Point]:
        split = 1 < len(set(self.seen.nodes)) < self.size
        for kind, methods in METHODS.items():
            for method in methods:
                if method == "hierarchical" and not split:
                    continue
                for largest in (None,) if kind == "all_reduce" else (None, *self.skews()):
                    for size in self.extent.sizes:
                        if ROOM * max(largest or 0.0, 1 / self.size) * self.size * size > min(self.seen.memory):
                            continue
                        label = f"{kind} {method}, {size} bytes" + (f", {largest:.0%} on one" if largest else "")
                        yield Point(
                            label,
                            f"{kind} {method} {largest}",
                            size,
                            partial(self.collective, kind, method, size, largest),
                        )

    def skews(self) -> tuple[float, ...]:
        """Parts of the tensor that the fastest device has where shares are uneven."""
        return (0.75,) if self.size == 2 else (0.5,) if self.extent.quick else (0.5, 0.85)

    # -- single points -----------------------------------------------------------------

    def launch(self) -> Sample:
        a, b = torch.ones(1, device=self.device), torch.ones(1, device=self.device)
        return Figures("launches", every(self.timing.alone(lambda k: torch.add(a, b))))

    def copies(self) -> Sample:
        count = (4 if self.extent.quick else 16) * 2**20
        source, target = torch.ones(count, device=self.device), torch.empty(count, device=self.device)
        return Figures("copies", tuple(8 * count / s for s in every(self.timing.alone(lambda k: target.copy_(source)))))

    def operator(self, probe: Probe) -> Sample | None:
        own = -1.0
        try:
            sets = probe.operands(self.device)
            probe.call(sets[0])
        except (HapError, RuntimeError):
            sets = []
        dist.barrier()
        if sets:
            own = self.timing.alone(lambda k: probe.call(sets[k % len(sets)]))
        seconds = every(own)
        return (
            OpSample(probe.table, probe.by_flop, probe.flops, probe.moved, seconds, probe.tiled)
            if min(seconds) > 0
            else None
        )

    def pair(self, a: int, b: int, size: int) -> Sample:
        """There and back between two ranks; the others wait."""
        buffer = torch.ones(size // 4, device=self.device)

        def act() -> None:
            for source, target in ((a, b), (b, a)):
                if self.rank == source:
                    self.backend.send(buffer, target).wait()
                elif self.rank == target:
                    self.backend.receive(buffer, source).wait()

        return LinkSample(a, b, size, self.timing.together(act) / 2)

    def collective(self, kind: str, method: str, size: int, largest: float | None) -> Sample:
        move, total, most = self.move(kind, method, size, largest)
        local = torch.ones(move.expected[0], device=self.device)
        if self.stage is None:
            self.stage = self.timing.computing(STAGE * self.timing.batch_s)
        seconds = self.timing.behind(self.stage, lambda: move.start([local]).finish())
        return MoveSample(kind, method, total, most, seconds)

    @cached_property
    def beside(self) -> tuple[float, float]:
        """How much computing and a message of some length take from each other on this rank; measured when it is first asked for, by all ranks."""
        move, _, _ = self.move("all_reduce", METHODS["all_reduce"][0], min(self.extent.largest, BESIDE), None)
        local = torch.ones(move.expected[0], device=self.device)
        return self.timing.beside(lambda: move.start([local]))

    def interference(self) -> Sample:
        return Figures("interference", every(self.beside[0]))

    def delay(self) -> Sample:
        return Figures("delay", every(self.beside[1]))

    def move(self, kind: str, method: str, size: int, largest: float | None) -> tuple[Move, float, float]:
        """A collective of one tensor as a program would have it; bytes of the tensor and of its largest share.

        Of an all_to_all one dim is cut unevenly: then what the largest share sends away grows with it, as its price does.
        """
        columns = 64 if kind == "all_to_all" else 1
        units = max(self.size, size // 4 // columns)
        shape = (units, columns) if columns > 1 else (units,)
        classes = {f"x.{d}": DimensionClass(f"x.{d}", n, (("x", d),)) for d, n in enumerate(shape)}
        graph = TrainingGraph(
            "messages", {}, {"x": Tensor("x", shape, "f32", "param", tuple(classes))}, [], classes, None
        )
        cuts: dict[str, dict[tuple[int, ...], Any]] = {
            name: {(0,): self.shares(c.units, largest if name == "x.0" else None)} for name, c in classes.items()
        }
        layout = Layout((("devices", self.size),), cuts)
        before, after = (Value("x", (p,)) for p in PLACES[kind])
        steps = [Instruction("param", (), (before,)), Instruction(kind, (before,), (after,), method=method)]
        program = Program("messages", graph, layout, steps)
        lowered = lower(program, [self.rank])
        step = lowered.steps[1]
        assert isinstance(step.work, Exchange)
        if method not in self.groups:
            self.groups[method] = groups(program, self.rank, self.backend)[0]
        held = {"reduce_scatter": (after,), "all_to_all": (before, after)}.get(kind, (before,))
        most = float(max(program.local_bytes(v).max() for v in held))
        return Move(step.work, self.groups[method], lowered, step), float(graph.tensors["x"].bytes), most

    def shares(self, units: int, largest: float | None) -> Any:
        """Even ones, or a part for the fastest device and the rest for the others evenly."""
        if largest is None:
            return Layout.even(units, self.size)
        own = round(units * largest)
        others = iter(Layout.even(units - own, self.size - 1))
        return np.array([own if d == self.fastest else int(next(others)) for d in range(self.size)], dtype=np.int64)

    @property
    def fastest(self) -> int:
        samples = [s.seconds for s in self.seen.ops if s.table == "matmul"]
        return int(np.argmin(samples[-1])) if samples else 0
