"""What holds of the cost of any program: random shares, links and launches of the one that is priced by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hapdsl.cluster import Cluster, Interference, Link
from hapdsl.cost import Pricer, evaluate
from hapdsl.graph.program import Program, Value
from tests.cost import mlp_by_hand as hand


@st.composite
def cases(draw: st.DrawFn) -> tuple[Program, Cluster]:
    """Data parallelism on random devices and shares, its lines in a random order that keeps operands before use."""
    n = draw(st.integers(1, 5))
    shares = draw(st.lists(st.integers(0, 9), min_size=n, max_size=n).filter(any))
    g = hand.graph(batch=sum(shares))
    program = hand.data_parallel(g, shares, draw(st.sampled_from(["padded", "grouped"])))
    waiting, ordered = list(program.instructions), []
    done: set[Value] = set()
    while waiting:
        ready = [i for i in waiting if all(v in done for v in i.inputs)]
        chosen = draw(st.sampled_from(ready))
        waiting.remove(chosen)
        ordered.append(chosen)
        done.update(chosen.outputs)
    program.instructions = ordered
    speeds = draw(st.lists(st.floats(1, 1e4), min_size=n, max_size=n))
    link = Link(draw(st.floats(1, 1e4)), draw(st.floats(0, 1)))
    made = hand.cluster(speeds, draw(st.floats(1, 1e5)), link, draw(st.floats(0, 0.1)))
    taken = [(0.0, 0.0), (0.3, 0.0), (0.3, 0.4), (0.3, 0.7), (0.8, 0.1), (1.0, 0.0), (0.0, 1.0)]
    beside = draw(st.lists(st.sampled_from(taken), min_size=n, max_size=n))
    devices = tuple(replace(d, interference=Interference(*own)) for d, own in zip(made.devices, beside, strict=True))
    return program, replace(made, devices=devices)


@given(cases())
@settings(max_examples=60, deadline=None)
def test_overlap_is_never_slower(case: tuple[Program, Cluster]) -> None:
    cost = evaluate(*case)
    assert cost.overlap_s <= cost.sync_s * (1 + 1e-9)
    for stream in (lambda i: i.is_compute, lambda i: i.is_collective):
        busy = sum((s for i, s in zip(case[0].instructions, cost.per_instruction_s, strict=True) if stream(i)), 0.0)
        assert cost.overlap_s >= np.max(busy) * (1 - 1e-9)


@given(cases())
@settings(max_examples=60, deadline=None)
def test_the_timeline_keeps_every_promise(case: tuple[Program, Cluster]) -> None:
    """Read back from the timeline alone: operands first, one thing at a time in each stream, no start that could
    have been earlier, and computing as much longer as messages beside it take away."""
    program, cluster = case
    cost = evaluate(program, cluster)
    messages, computing = (
        [k for k, i in enumerate(program.instructions) if getattr(i, kind)] for kind in ("is_collective", "is_compute")
    )
    for d in range(len(cluster)):
        made: dict[object, float] = {}
        sent = [(float(cost.starts_s[k, d]), float(cost.ends_s[k, d])) for k in messages]
        stream = {"compute": 0.0, "comm": 0.0}
        for k, instruction in enumerate(program.instructions):
            start, end = float(cost.starts_s[k, d]), float(cost.ends_s[k, d])
            inputs = max((made[v] for v in instruction.inputs), default=0.0)
            name = "compute" if instruction.is_compute else "comm" if instruction.is_collective else None
            free = stream[name] if name else 0.0
            beside = sum(max(0.0, min(end, e) - max(start, s)) for s, e in sent) if name == "compute" else 0.0
            lost = cluster.devices[d].interference.compute * beside
            if name == "comm":
                lost = cluster.devices[d].interference.message * sum(
                    max(0.0, min(end, float(cost.ends_s[c, d])) - max(start, float(cost.starts_s[c, d])))
                    for c in computing
                )
            assert end - start - lost == pytest.approx(float(cost.per_instruction_s[k][d]), abs=1e-9)
            assert start >= max(inputs, free) - 1e-9
            if name == "compute":
                assert start == pytest.approx(max(inputs, free), abs=1e-9)
            if name:
                stream[name] = end
            made.update(dict.fromkeys(instruction.outputs, end))
    delays = any(d.interference.message for d in cluster.devices)
    for k in messages:
        launched = float(np.max(cost.ends_s[[c for c in computing if c < k]], initial=0.0))
        before = max(launched, float(np.max(cost.ends_s[[m for m in messages if m < k]], initial=0.0)))
        starts = cost.starts_s[k].tolist()
        if delays:  # each device begins when its own part of the message before it is there
            assert launched - 1e-9 <= min(starts) and max(starts) <= before + 1e-9
        else:
            assert starts == pytest.approx([before] * len(cluster), abs=1e-9)


@given(cases())
@settings(max_examples=60, deadline=None)
def test_stages_add_up_as_the_paper_says(case: tuple[Program, Cluster]) -> None:
    """t = Σ comm + max comp, from the prices of single instructions, one after the other."""
    program, cluster = case
    cost = evaluate(program, cluster)
    total, stage = 0.0, [0.0] * len(cluster)
    for instruction, seconds in zip(program.instructions, cost.per_instruction_s, strict=True):
        if instruction.is_collective:
            total += max(stage) + max(seconds)
            stage = [0.0] * len(cluster)
        else:
            stage = [a + b for a, b in zip(stage, seconds, strict=True)]
    assert cost.sync_s == pytest.approx(total + max(stage))


@given(cases())
@settings(max_examples=60, deadline=None)
def test_memory_is_what_a_walk_through_the_program_holds(case: tuple[Program, Cluster]) -> None:
    """The same rules once more, with sets: forget what is neither read later nor kept, and what a message holds once it is packed."""
    program, cluster = case
    cost = evaluate(program, cluster)
    lines = program.instructions
    forever = {v for i in lines if i.op in ("input", "param") for v in i.outputs}
    kept = {hand.one("y@S(0)"), hand.one("w1.new@R"), hand.one("w2.new@R")}
    for d in range(len(cluster)):
        held, most = set(forever), 0
        for k, instruction in enumerate(lines):
            later = {v for i in lines[k + 1 :] for v in i.inputs}
            stays = {v for v in held | set(instruction.outputs) if v in later or v in forever or v in kept}
            buffer = 0
            if instruction.op in ("all_gather", "reduce_scatter") and len(cluster) > 1:
                side = instruction.inputs if instruction.op == "all_gather" else instruction.outputs
                pieces = program.local_bytes(side[0])
                if instruction.method == "padded":
                    buffer = len(cluster) * int(max(pieces))
                elif instruction.op == "all_gather":
                    buffer = int(sum(pieces))
                else:
                    buffer = int(program.local_bytes(instruction.inputs[0])[d])
            packed, unpacked = held, {v for v in held if v in stays} | set(instruction.outputs)
            if not buffer:  # in place, or no message at all
                packed = unpacked = held | set(instruction.outputs)
            most = max(
                most, *(buffer + sum(int(program.local_bytes(v)[d]) for v in there) for there in (packed, unpacked))
            )
            held = stays
        assert cost.memory_bytes[d] == most


@given(cases())
@settings(max_examples=30, deadline=None)
def test_a_pricer_that_has_seen_it_says_the_same(case: tuple[Program, Cluster]) -> None:
    program, cluster = case
    pricer = Pricer(program.graph, program.layout, cluster)
    first, again = evaluate(program, cluster, pricer), evaluate(program, cluster, pricer)
    fresh = evaluate(program, cluster)
    assert first.as_json() == again.as_json() == fresh.as_json()
