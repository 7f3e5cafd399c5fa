"""What a run's traced steps say: a Chrome trace like the prediction's, and how long each instruction took beside its price.

A message takes from the moment at which the last rank of its group has started it (or its stream was free) until it has arrived, and what its
operands take to be packed and unpacked: that is what a profile measures of it. Waiting for a slower rank is nobody's.

Of a message in several phases (tree, hierarchical) only its finish knows when it has arrived, and only there it goes on. Where something was
computed between its start and its finish, it counts from when the last rank began to finish it: what of its first phase went beside computing is
in nobody's seconds, and no table is corrected by them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hapdsl.cluster.calibrate import SIZES, Ran, Sent
from hapdsl.cluster.hardware import Cluster, Curve
from hapdsl.cost.collectives import collective_seconds
from hapdsl.cost.compute import compute_dtype, flops_done
from hapdsl.cost.evaluate import Cost
from hapdsl.draw.trace import COMMUNICATION, COMPUTE, describe, named
from hapdsl.graph.program import METHODS, Instruction, Program
from hapdsl.run.tracing import Traces

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Happened:
    """One thing on all devices: instruction, stream, float arrays [devices] of its start and end, and of what counts as its seconds."""

    instruction: int
    stream: int
    starts: Floats
    ends: Floats
    seconds: Floats


def happened(program: Program, traces: Traces) -> list[list[Happened]]:
    """By traced step what happened, in order. Cost: O(steps × events × devices)."""
    numbers = [k for k, i in enumerate(program.instructions) if i.op != "free"]
    return [list(_step(program, numbers, traces.events, times)) for times in traces.times]


def _step(
    program: Program, numbers: Sequence[int], events: Sequence[tuple[str, int, int]], times: Floats
) -> Iterator[Happened]:
    devices = times.shape[1]
    started: dict[int, tuple[int, Floats]] = {}
    free = np.zeros(devices)  # since when the communication stream is
    for at, ((kind, number, _), row) in enumerate(zip(events, times, strict=True)):
        k = numbers[number]
        begin, end = row[:, 0], row[:, 1]
        if kind == "start":
            started[number] = at, row
        elif kind == "finish":
            began, before = started.pop(number)
            known, beside = before[:, 2] > 0, at - began > 1
            arrived = np.where(known, before[:, 2], end)
            ready, seconds = np.zeros(devices), np.zeros(devices)
            for group in program.layout.groups(program.instructions[k].axis):
                since = begin if beside and not known[group].any() else before[:, 0]
                ready[group] = max(since[group].max(), free[group].max())
                there = max(arrived[group].max(), ready[group].max())
                unpacked = (end - np.maximum(begin, arrived))[group].max()
                seconds[group] = there - ready[group] + max(unpacked, 0.0)
                free[group] = there
            yield Happened(k, COMMUNICATION, before[:, 0], np.maximum(arrived, before[:, 1]), seconds)
            yield Happened(k, COMPUTE, begin, end, np.zeros(devices))  # waiting, and unpacking
        else:
            yield Happened(k, COMPUTE, begin, end, end - begin)


def seconds(program: Program, traces: Traces) -> Floats:
    """Measured seconds of each instruction, all turns of a step together, the median over traced steps: float array [instructions, devices]."""
    found = np.zeros((len(traces.times), len(program.instructions), program.layout.devices))
    for k, step in enumerate(happened(program, traces)):
        for event in step:
            found[k, event.instruction] += event.seconds
    return np.asarray(np.median(found, axis=0)) if len(found) else found.sum(axis=0)


def hidden(program: Program, traces: Traces) -> frozenset[int]:
    """The instructions whose messages went beside computing without anybody knowing for how long: their seconds are too few."""
    numbers = [k for k, i in enumerate(program.instructions) if i.op != "free"]
    began: dict[int, int] = {}
    found = set()
    for at, (kind, number, _) in enumerate(traces.events):
        if kind == "start":
            began[number] = at
        elif kind == "finish" and at - began[number] > 1 and not traces.times[:, began[number], :, 2].all():
            found.add(numbers[number])
    return frozenset(found)


def kind_of(instruction: Instruction) -> str:
    """What instructions are summed up under: an operator, a collective with its method, or what moves nothing."""
    if instruction.is_collective:
        return f"{instruction.op} {instruction.method or METHODS[instruction.op][0]}"
    return instruction.op


@dataclass(frozen=True)
class Row:
    """Instructions of one kind: how many, and their seconds a step, each on its slowest device, as predicted and as measured."""

    kind: str
    count: int
    predicted_s: float
    measured_s: float


def rows(program: Program, cost: Cost | None, measured: Floats) -> list[Row]:
    """By kind of instruction, the longest first. Without a cost nothing is predicted."""
    found: dict[str, Row] = {}
    for k, instruction in enumerate(program.instructions):
        if instruction.op == "free":
            continue
        kind = kind_of(instruction)
        old = found.get(kind, Row(kind, 0, 0.0, 0.0))
        predicted = float(cost.per_instruction_s[k].max(initial=0.0)) if cost is not None else 0.0
        found[kind] = Row(
            kind, old.count + 1, old.predicted_s + predicted, old.measured_s + float(measured[k].max(initial=0.0))
        )
    return sorted(found.values(), key=lambda r: -r.measured_s)


def trace_text(program: Program, traces: Traces, devices: Sequence[str] | None = None) -> str:
    """The Chrome trace of all traced steps, one behind the other: the format of `hapdsl draw -o trace.json`, with the step in each event."""
    names = devices or [f"device {d}" for d in range(program.layout.devices)]
    events = named(names)
    words = [describe(program, i, k) for k, i in enumerate(program.instructions)]
    before = 0.0
    for number, step in zip(traces.steps, happened(program, traces), strict=True):
        last = 0.0
        for event in step:
            said = words[event.instruction]
            waits = event.stream == COMPUTE and said["tid"] == COMMUNICATION
            for d in range(len(names)):
                start, end = float(event.starts[d]), float(event.ends[d])
                last = max(last, end)
                if end <= start:
                    continue
                one: dict[str, Any] = {
                    **said,
                    "ph": "X",
                    "ts": (before + start) * 1e6,
                    "dur": (end - start) * 1e6,
                    "pid": d,
                    "tid": event.stream,
                }
                one["args"] = {**said["args"], "step": number}
                events.append({**one, "name": f"wait for {said['name']}", "cat": "wait"} if waits else one)
        before += last
    totals = {"program": program.name, "measured": True, "steps": list(traces.steps)}
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": totals}, allow_nan=False)


def calls(program: Program, cluster: Cluster, cost: Cost, measured: Floats) -> Iterator[Ran]:
    """Every operator call on every device that has a part of it; of a turn, where there are several."""
    for k, instruction in enumerate(program.instructions):
        node = instruction.node
        if node is None:
            continue
        lengths = program.index_lengths(instruction)
        flops = np.broadcast_to(np.asarray(flops_done(node, lengths, cluster), dtype=float), program.layout.devices)
        moved = sum(
            (program.local_bytes(v) for v in (*instruction.inputs, *instruction.outputs)),
            np.zeros(program.layout.devices),
        )
        times, dtype = program.graph.times(instruction.section), compute_dtype(node)
        for d, predicted in enumerate(cost.per_instruction_s[k]):
            if predicted > 0:
                yield Ran(
                    d,
                    node.op,
                    dtype,
                    float(flops[d]),
                    float(moved[d]),
                    float(predicted) / times,
                    float(measured[k, d]) / times,
                )


def messages(
    program: Program, cluster: Cluster, cost: Cost, measured: Floats, without: Set[int] = frozenset()
) -> Iterator[Sent]:
    """Every message of all devices but those of the instructions `without` (`hidden`); those of smaller groups say nothing about a table."""
    n = program.layout.devices
    for k, instruction in enumerate(program.instructions):
        if k in without or not instruction.is_collective or program.layout.mesh[instruction.axis][1] != n:
            continue
        kind, method = instruction.op, instruction.method or METHODS[instruction.op][0]
        points = tuple((size, collective_seconds(kind, method, np.full(n, size / n), size, cluster)) for size in SIZES)
        times = program.graph.times(instruction.section)
        predicted, seconds = float(cost.per_instruction_s[k].max()) / times, float(measured[k].max()) / times
        yield Sent(kind, method, predicted, seconds, Curve(points))
