"""Shares for a given program: a mixed-integer linear program proposes, the exact evaluator decides.

One integer variable per dimension class and kind of device, in units; one per stage for its slowest device. The program can't hold
the true cost: kernels are priced by a line through two points of their roofline, an all_to_all between two classes by
the larger of two lines. So its incumbent, the rounded relaxation and one-unit neighbours are all priced exactly, and the best is
kept. Units that kinds of several devices can't share evenly are dealt out one by one, to the fastest devices first.

Solved by HiGHS through scipy; seconds are scaled to the largest coefficient. Cost: stages are merged when their rows are
equal, so the size is (distinct stages) × (kinds of device) rows, (classes × kinds + stages) columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from hapdsl.check.layout import largest_remainder
from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.evaluate import stages_of
from hapdsl.cost.pricing import Pricer
from hapdsl.graph.program import Instruction, Layout, Program
from hapdsl.graph.training import TrainingGraph

SECONDS = 3.0  # HiGHS may take so long per call
Shares = dict[str, np.ndarray]  # units per device by class


def layout_of(shares: Mapping[str, np.ndarray], devices: int) -> Layout:
    """A layout on one axis."""
    return Layout((("devices", devices),), {c: {(0,): np.asarray(s, dtype=np.int64)} for c, s in shares.items()})


def shares_of(layout: Layout) -> Shares:
    return {c: s[(0,)] for c, s in layout.shares.items()}


def proportional(training: TrainingGraph, weights: Iterable[float]) -> Shares:
    """All classes in proportion to `weights`, by largest remainder."""
    listed = list(weights)
    return {c.name: largest_remainder(listed, c.units) for c in training.classes.values()}


class Stages:
    """A program's stages, equal ones merged: what it takes to price the same instructions under other shares.

    `seconds(shares)` is the synchronous cost of the program's instructions in their order, methods of collectives
    included; a scheduler might choose other methods for other shares, so it is never below what that would find. Cost of
    a call: O(distinct instructions × devices).
    """

    def __init__(self, program: Program, cluster: Cluster) -> None:
        self.program, self.cluster = program, cluster
        pricer = Pricer(program.graph, program.layout, cluster)
        lines = [pricer.line(i) for i in program.instructions]
        self.distinct: list[Instruction] = []
        number: dict[int, int] = {}
        merged: dict[tuple[int | None, tuple[tuple[int, int], ...]], int] = {}
        for stage in stages_of(lines):
            head: int | None = None
            counts: dict[int, int] = {}
            for line in lines[stage.first : stage.last + 1]:
                if not (line.instruction.is_compute or line.instruction.is_collective):
                    continue
                k = number.setdefault(id(line.price), len(number))
                if k == len(self.distinct):
                    self.distinct.append(line.instruction)
                if line.instruction.is_collective:
                    head = k
                else:
                    counts[k] = counts.get(k, 0) + 1
            key = (head, tuple(sorted(counts.items())))
            merged[key] = merged.get(key, 0) + 1
        self._lines = lines  # prices are told apart by identity: keep them alive
        self.heads = [head for head, _ in merged]
        self.multiplicity = np.array(list(merged.values()), dtype=np.float64)
        self.counts = np.zeros((len(merged), len(self.distinct)))
        for row, (_, counts_) in enumerate(merged):
            for k, n in counts_:
                self.counts[row, k] = n

    def times(self, shares: Mapping[str, np.ndarray]) -> np.ndarray:
        """Seconds of each distinct instruction on each device, float array [instructions, devices]."""
        pricer = Pricer(self.program.graph, layout_of(shares, len(self.cluster)), self.cluster)
        found = np.zeros((len(self.distinct), len(self.cluster)))
        for k, instruction in enumerate(self.distinct):
            found[k] = pricer.price(instruction).seconds
        return found

    def seconds(self, shares: Mapping[str, np.ndarray]) -> tuple[float, np.ndarray]:
        """The synchronous cost, and how long each device computes in all."""
        times = self.times(shares)
        work = self.counts @ times
        comm = np.array([0.0 if h is None else times[h].max() for h in self.heads])
        return float(self.multiplicity @ (comm + work.max(axis=1, initial=0.0))), self.multiplicity @ work


def propose(
    program: Program, cluster: Cluster, fixed: Mapping[str, np.ndarray] | None = None, stages: Stages | None = None
) -> list[Shares]:
    """Shares that the linear program likes: its integer optimum and its rounded relaxation, best guess first.

    `fixed` classes keep their shares. The list may be empty where HiGHS finds nothing in its time.
    """
    model = _Model(stages or Stages(program, cluster), dict(fixed or {}))
    return [s for integer in (True, False) if (s := model.solve(integer)) is not None] if model.classes else []


@dataclass(frozen=True)
class _Stage:
    """A row per kind of device: base[k] + sum_c slope[c, k] x[c, k] <= T; communication: base + slope[c] max_k x[c, k]."""

    base: np.ndarray
    slope: np.ndarray
    comm_slope: np.ndarray


class _Model:
    def __init__(self, stages: Stages, fixed: Shares) -> None:
        self.stages, self.program, self.cluster, self.fixed = stages, stages.program, stages.cluster, fixed
        self.kinds = self.cluster.kinds()
        self.cls = [_class_of(i, self.program) for i in stages.distinct]
        self.classes = [c for c in self.program.graph.classes if c in self.cls and c not in fixed]
        self.number = {c: k for k, c in enumerate(self.classes)}
        self.merged = self._rows()

    # -- prices ----------------------------------------------------------------------

    def _rows(self) -> list[tuple[_Stage, float]]:
        """Every kernel and message as a line through its prices at a fair share and at all units."""
        near = {c.name: max(1, round(c.units / len(self.cluster))) for c in self.program.graph.classes.values()}
        full = {c.name: c.units for c in self.program.graph.classes.values()}
        low, high = self._times(near), self._times(full)
        base, slope = low.copy(), np.zeros_like(low)
        for k, cls in enumerate(self.cls):
            if cls in self.number and full[cls] > near[cls]:
                slope[k] = (high[k] - low[k]) / (full[cls] - near[cls])
                base[k] = low[k] - slope[k] * near[cls]
        heads = [kind[0] for kind in self.kinds]
        of_class = np.zeros((len(self.classes), len(self.cls)))
        for k, cls in enumerate(self.cls):
            if cls in self.number:
                of_class[self.number[cls], k] = 1.0
        rows = []
        for row, head in enumerate(self.stages.heads):
            counts = self.stages.counts[row]
            comm = np.zeros(len(self.classes))
            if head is not None and self.cls[head] in self.number:
                comm[self.number[self.cls[head] or ""]] = slope[head].max()
            weighted = counts[:, None] * slope[:, heads]
            rows.append((_Stage(counts @ base[:, heads], of_class @ weighted, comm), float(self.stages.multiplicity[row])))
        return rows

    def _times(self, units: Mapping[str, int]) -> np.ndarray:
        n = len(self.cluster)
        return self.stages.times({c: np.full(n, u, dtype=np.int64) for c, u in units.items()} | self.fixed)

    # -- the program -----------------------------------------------------------------

    def solve(self, integer: bool) -> Shares | None:
        """Minimise; None where HiGHS finds nothing. Columns: x[c, k], then M[c], then r[c], then T[s]."""
        C, K, S = len(self.classes), len(self.kinds), len(self.merged)
        columns = C * K + 2 * C + S
        scale = max((float(np.abs(s.base).max() + (s.slope * self._units()[:, None]).max(initial=0.0)) for s, _ in self.merged), default=0.0) or 1.0
        cost = np.zeros(columns)
        rows: list[np.ndarray] = []
        lower: list[float] = []
        upper: list[float] = []
        for c, cls in enumerate(self.classes):
            units = self.program.graph.classes[cls].units
            row = np.zeros(columns)
            row[c * K : (c + 1) * K] = [len(k) for k in self.kinds]
            row[C * K + C + c] = 1
            rows.append(row)
            lower.append(units)
            upper.append(units)
            for k in range(K):
                row = np.zeros(columns)
                row[c * K + k], row[C * K + c] = 1, -1
                rows.append(row)
                lower.append(-np.inf)
                upper.append(0)
        for s, (stage, count) in enumerate(self.merged):
            cost[C * K + 2 * C + s] += count
            cost[C * K : C * K + C] += count * stage.comm_slope / scale
            for k in range(K):
                row = np.zeros(columns)
                row[[c * K + k for c in range(C)]] = stage.slope[:, k] / scale
                row[C * K + 2 * C + s] = -1
                rows.append(row)
                lower.append(-np.inf)
                upper.append(-stage.base[k] / scale)
        integrality = np.zeros(columns, dtype=np.int64)
        integrality[: C * K] = integer
        limit = np.full(columns, np.inf)
        limit[: C * K] = np.repeat(self._units(), K)
        limit[C * K + C : C * K + 2 * C] = len(self.cluster) - 1 if integer else 0
        answer = milp(
            cost,
            constraints=LinearConstraint(csr_array(np.array(rows)), lower, upper),
            bounds=Bounds(np.zeros(columns), limit),
            integrality=integrality,
            options={"time_limit": SECONDS, "mip_rel_gap": 1e-4},
        )
        if answer.x is None or not np.isfinite(answer.x).all():
            return None
        return self._dealt(answer.x[: C * K].reshape(C, K), integer)

    def _units(self) -> np.ndarray:
        return np.array([self.program.graph.classes[c].units for c in self.classes], dtype=np.float64)

    def _dealt(self, x: np.ndarray, integer: bool) -> Shares:
        speeds = self.cluster.speeds("f32")
        shares = dict(shares_of(self.program.layout))
        for c, cls in enumerate(self.classes):
            units = self.program.graph.classes[cls].units
            per_device = np.zeros(len(self.cluster))
            for k, kind in enumerate(self.kinds):
                per_device[kind] = max(0.0, x[c, k])
            if not integer:
                shares[cls] = largest_remainder((per_device if per_device.sum() > 0 else speeds).tolist(), units)
                continue
            whole = np.rint(per_device).astype(np.int64)
            order = sorted(range(len(whole)), key=lambda d: (-speeds[d], d))
            rest = units - int(whole.sum())
            for step in range(abs(rest)):
                d = order[step % len(order)]
                if rest < 0:
                    d = int(whole.argmax())
                whole[d] += 1 if rest > 0 else -1
            shares[cls] = whole
        return shares


def _class_of(instruction: Instruction, program: Program) -> str | None:
    """The class that an instruction's values are cut along; of several the first."""
    for value in (*instruction.inputs, *instruction.outputs):
        for p in value.placement:
            if p.kind == "S":
                return program.graph.tensors[value.tensor].classes[p.dim]
    return None


def neighbours(shares: Shares, free: Iterable[str], busiest: int, idlest: int) -> list[Shares]:
    """Shares that differ in one unit of one class, moved from the busiest device to the idlest."""
    found = []
    for cls in free:
        if shares[cls][busiest] > 0 and busiest != idlest:
            moved = shares[cls].copy()
            moved[busiest] -= 1
            moved[idlest] += 1
            found.append({**shares, cls: moved})
    return found


Price = Callable[[Shares], float]


def descend(shares: Shares, cost: float, price: Price, free: list[str], busy: Callable[[Shares], np.ndarray], most: int) -> tuple[Shares, float]:
    """Follow one-unit moves as long as they pay, at most `most` exact evaluations."""
    spent = 0
    improved = True
    while improved and spent < most:
        improved = False
        load = busy(shares)
        for candidate in neighbours(shares, free, int(load.argmax()), int(load.argmin())):
            spent += 1
            found = price(candidate)
            if found < cost * (1 - 1e-9):
                shares, cost, improved = candidate, found, True
                break
            if spent >= most:
                break
    return shares, cost
