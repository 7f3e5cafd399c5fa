"""The share MILP: for a given program, whole units per kind of device that make its stages short (paper §6).

Variables: N[c, k] units of class c on all devices of kind k together, X[c, k] the largest share of one of them
(X >= N / devices of the kind), a time per stage for its slowest device, a time per message for its largest share. A stage
takes at least what each kind computes; a message what each kind's part of it makes of it, all its operands and both its
sides (an all_to_all between two classes) counted. Kernels are priced by the line through their price at the present
share and at all units, messages by the line through a fair and a whole share; both are exact at the present shares if
kernels are, and approximate elsewhere: rooflines bend, a device without work pays no launch, and another method may
become cheaper. Units of one kind are dealt out evenly, the larger shares to its first devices.

Solved by HiGHS through scipy; seconds are scaled to the longest stage. Equal stages are merged, so the size is
(distinct stages + messages) × kinds rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint
from scipy.sparse import coo_array

from hapdsl.check.layout import largest_remainder
from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.collectives import collective_seconds
from hapdsl.cost.memory import Memory
from hapdsl.graph.program import Instruction, Program, Value
from hapdsl.search.highs import milp
from hapdsl.search.shares import Shares, Stages, shares_of

SECONDS = 2.0  # HiGHS may take so long per call
Floats = NDArray[np.float64]


def propose(
    program: Program,
    cluster: Cluster,
    fixed: Mapping[str, np.ndarray] | None = None,
    stages: Stages | None = None,
    memory: Memory | None = None,
) -> list[Shares]:
    """Shares that the linear program likes: its integer optimum and its rounded relaxation, best guess first.

    `fixed` classes keep their shares. With `memory` (of the program under its own shares) what each device holds at its
    peak must fit. The list may be empty where HiGHS finds nothing in its time.
    """
    model = ShareModel(stages or Stages(program, cluster), dict(fixed or {}), memory)
    return [s for integer in (True, False) if (s := model.solve(integer)) is not None] if model.classes else []


def _class_of(instruction: Instruction, program: Program) -> str | None:
    """The class that an instruction's values are cut along; of several the first."""
    for value in (*instruction.inputs, *instruction.outputs):
        for p in value.placement:
            if p.kind == "S":
                return program.graph.tensors[value.tensor].classes[p.dim]
    return None


@dataclass(frozen=True)
class _Linear:
    """`base[k] + sum_c slope[c, k] X[c, k]` per kind of device."""

    base: Floats
    slope: Floats

    def at(self, x: Floats) -> Floats:
        return self.base + (self.slope * x).sum(axis=0)


class _Rows:
    """Rows of a linear program, entry by entry: whole ones would be (stages x kinds) x (classes x kinds) numbers, next to all of them zero."""

    def __init__(self) -> None:
        self.entries: list[float] = []
        self.places: list[tuple[int, int]] = []
        self.lower: list[float] = []
        self.upper: list[float] = []

    def add(self, row: Mapping[int, float], low: float, high: float) -> None:
        """The sum of columns, each times its entry, is between `low` and `high`."""
        for column, entry in row.items():
            if entry:
                self.entries.append(entry)
                self.places.append((len(self.lower), column))
        self.lower.append(low)
        self.upper.append(high)

    def constraint(self, columns: int) -> LinearConstraint:
        rows, at = np.array(self.places, dtype=np.int64).T
        matrix = coo_array((np.array(self.entries), (rows, at)), shape=(len(self.lower), columns))
        return LinearConstraint(matrix.tocsr(), self.lower, self.upper)


class ShareModel:
    """The linear program of one program (see the module). `classes` are the ones it may change."""

    def __init__(self, stages: Stages, fixed: Shares, memory: Memory | None = None) -> None:
        self.stages, self.program, self.cluster, self.fixed = stages, stages.program, stages.cluster, fixed
        self.kinds = self.cluster.kinds()
        self.heads = [kind[0] for kind in self.kinds]
        self.cls = [_class_of(i, self.program) for i in stages.distinct]
        used = set(self.cls) | {c for i in stages.distinct if i.is_collective for c in self._cut(i)}
        self.classes = [c for c in self.program.graph.classes if c in used and c not in fixed]
        self.number = {c: k for k, c in enumerate(self.classes)}
        self.units = np.array([self.program.graph.classes[c].units for c in self.classes], dtype=np.float64)
        self.work = self._work()
        self.messages = {h: self._message(stages.distinct[h]) for h in stages.heads if h is not None}
        self.room = self._room(memory) if memory is not None else []

    def _cut(self, instruction: Instruction) -> list[str | None]:
        tensors = self.program.graph.tensors
        values = (*instruction.inputs, *instruction.outputs)
        return [tensors[v.tensor].classes[p.dim] for v in values for p in v.placement if p.kind == "S"]

    # -- prices ----------------------------------------------------------------------

    def _work(self) -> list[_Linear]:
        """What each merged stage computes, per kind."""
        n = len(self.cluster)
        near, full = dict(shares_of(self.program.layout)), {}
        for name, whole in self.program.graph.classes.items():
            full[name] = np.full(n, whole.units)
            if name in self.number:
                inside = (near[name] > 0) & (near[name] < whole.units)
                near[name] = np.where(inside, near[name], max(1, round(whole.units / n)))
        near |= self.fixed
        low, high = self.stages.times(near)[:, self.heads], self.stages.times({**full, **self.fixed})[:, self.heads]
        base, slope = low.copy(), np.zeros_like(low)
        for k, cls in enumerate(self.cls):
            if cls is not None and cls in self.number:
                width = full[cls][self.heads] - near[cls][self.heads]
                slope[k] = np.where(width > 0, (high[k] - low[k]) / np.maximum(width, 1), 0.0)
                base[k] = low[k] - slope[k] * near[cls][self.heads]
        of_class = np.zeros((len(self.classes), len(self.cls)))
        for k, cls in enumerate(self.cls):
            if cls is not None and cls in self.number:
                of_class[self.number[cls], k] = 1.0
        rows = self.stages.counts
        return [_Linear(row @ base, of_class @ (row[:, None] * slope)) for row in rows]

    def _message(self, instruction: Instruction) -> list[_Linear]:
        """Seconds of a message as each kind's part on either side would have it; their largest counts."""
        kind, method, n = instruction.op, instruction.method, len(self.cluster)
        total = float(sum(self.program.graph.tensors[v.tensor].bytes for v in instruction.inputs))

        def price(largest: float) -> float:
            return collective_seconds(kind, method, np.full(n, largest), total, self.cluster)

        rate = (price(total) - price(total / n)) / max(total - total / n, 1.0) if kind != "all_reduce" else 0.0
        start = price(total) - rate * total
        sides = {"reduce_scatter": (instruction.outputs,), "all_to_all": (instruction.inputs, instruction.outputs)}
        found = []
        for side in sides.get(kind, (instruction.inputs,)):
            sizes = [self._bytes(v) for v in side]
            base = start + rate * sum((s.base for s in sizes), np.zeros(len(self.kinds)))
            found.append(_Linear(base, rate * sum((s.slope for s in sizes), self._nothing())))
        return found

    def _nothing(self) -> Floats:
        return np.zeros((len(self.classes), len(self.kinds)))

    def _bytes(self, value: Value) -> _Linear:
        """A value's bytes on a device of each kind."""
        tensor = self.program.graph.tensors[value.tensor]
        base, slope = np.zeros(len(self.kinds)), self._nothing()
        placement = value.placement[0]
        cls = tensor.classes[placement.dim] if placement.kind == "S" else None
        if cls is None:
            return _Linear(base + tensor.bytes, slope)
        each = tensor.bytes / self.program.graph.classes[cls].units
        if cls in self.number:
            slope[self.number[cls]] = each
            return _Linear(base, slope)
        # Given, or nothing that is computed or sent is cut along it: then it stays as it is.
        own = self.fixed[cls] if cls in self.fixed else shares_of(self.program.layout)[cls]
        return _Linear(each * own[self.heads], slope)

    def _room(self, memory: Memory) -> list[tuple[int, _Linear]]:
        """What a device of each kind holds at its present peak, in its memory."""
        found = []
        for k, device in enumerate(self.heads):
            at = memory.peak_instruction(device)
            alive = np.flatnonzero((memory.first <= at) & (memory.last >= at))
            base = np.full(len(self.kinds), float(memory.buffers[at, device]))
            slope = self._nothing()
            for r in alive:
                size = self._bytes(memory.values[int(r)])
                base, slope = base + size.base, slope + size.slope
            capacity = self.cluster.memories[device]
            found.append((k, _Linear(base / capacity, slope / capacity)))
        return found

    def seconds(self, shares: Mapping[str, np.ndarray]) -> float:
        """What the model thinks a step takes under whole shares."""
        x = np.array([[shares[c][kind].max() for kind in self.kinds] for c in self.classes], dtype=np.float64)
        x = x.reshape(len(self.classes), len(self.kinds))
        total = 0.0
        for count, head, work in zip(self.stages.multiplicity, self.stages.heads, self.work, strict=True):
            comm = max((float(m.at(x).max()) for m in self.messages[head]), default=0.0) if head is not None else 0.0
            total += float(count) * (comm + float(work.at(x).max()))
        return total

    # -- the program -----------------------------------------------------------------

    def solve(self, integer: bool) -> Shares | None:
        """Minimise; None where HiGHS finds nothing."""
        C, K, S = len(self.classes), len(self.kinds), len(self.work)
        heads = list(self.messages)
        first_x, first_t = C * K, 2 * C * K
        columns = first_t + S + len(heads)
        largest = [float((w.base + (w.slope * self.units[:, None]).sum(axis=0)).max()) for w in self.work]
        scale = max(largest, default=0.0) or 1.0
        cost = np.zeros(columns)
        rows = _Rows()

        def below(linear: _Linear, k: int, column: int) -> None:
            """One kind's part is at most the time in `column`."""
            x = {first_x + c * K + k: float(linear.slope[c, k]) / scale for c in range(C)}
            rows.add({**x, column: -1.0}, -np.inf, -float(linear.base[k]) / scale)

        for c in range(C):
            rows.add({c * K + k: 1.0 for k in range(K)}, self.units[c], self.units[c])
            for k, kind in enumerate(self.kinds):
                rows.add({c * K + k: 1.0, first_x + c * K + k: -float(len(kind))}, -np.inf, 0.0)
        for s, (count, work) in enumerate(zip(self.stages.multiplicity, self.work, strict=True)):
            cost[first_t + s] = count
            for k in range(K):
                below(work, k, first_t + s)
        for m, head in enumerate(heads):
            cost[first_t + S + m] = sum(
                n for n, h in zip(self.stages.multiplicity, self.stages.heads, strict=True) if h == head
            )
            for side in self.messages[head]:
                for k in range(K):
                    below(side, k, first_t + S + m)
        for k, size in self.room:
            x = {first_x + c * K + k: float(size.slope[c, k]) for c in range(C)}
            rows.add(x, -np.inf, 1.0 - float(size.base[k]))
        integrality = np.zeros(columns, dtype=np.int64)
        integrality[:first_t] = integer
        limit = np.full(columns, np.inf)
        limit[:first_t] = np.tile(np.repeat(self.units, K), 2)
        answer = milp(
            cost,
            constraints=rows.constraint(columns),
            bounds=Bounds(np.zeros(columns), limit),
            integrality=integrality,
            options={"time_limit": SECONDS, "mip_rel_gap": 1e-4},
        )
        if answer.x is None or not np.isfinite(answer.x).all():
            return None
        return self._dealt(answer.x[: C * K].reshape(C, K))

    def _dealt(self, totals: Floats) -> Shares:
        """Units per kind as units per device: evenly, the larger ones first; parts of units by largest remainder."""
        shares = dict(shares_of(self.program.layout))
        for c, cls in enumerate(self.classes):
            units = int(self.units[c])
            whole = np.rint(totals[c])
            if np.abs(whole - totals[c]).max() > 1e-5 or int(whole.sum()) != units:
                whole = largest_remainder(np.maximum(totals[c], 0.0).tolist(), units).astype(np.float64)
            shares[cls] = np.zeros(len(self.cluster), dtype=np.int64)
            for k, kind in enumerate(self.kinds):
                count = int(whole[k])
                shares[cls][kind] = [count // len(kind) + (i < count % len(kind)) for i in range(len(kind))]
        return shares
