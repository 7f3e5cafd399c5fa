"""The Gantt chart and the timelines under it, against the cost's own numbers."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from hapdsl.cost.evaluate import Cost
from hapdsl.draw.gantt import CHART, LEFT, Bar, _between, _merged, _ticks, gantt_svg, rows
from hapdsl.draw.program import draw_program
from hapdsl.draw.timeline import timeline
from hapdsl.graph.program import Program
from hapdsl.lang.diagnostics import HapError

Mixed = tuple[Program, Cost]
SVG = "{http://www.w3.org/2000/svg}"


def total(cost: Cost, kind: str) -> float:
    return cost.overlap_s if kind == "overlap" else cost.sync_s


@pytest.mark.parametrize("kind", ["overlap", "sync"])
def test_timelines_last_as_long_as_the_cost_says(kind: str, mixed: Mixed) -> None:
    program, cost = mixed
    starts, ends = timeline(program, cost, kind)
    assert ends.max() == pytest.approx(total(cost, kind))
    for k, seconds in enumerate(cost.per_instruction_s):
        assert ends[k] - starts[k] == pytest.approx(seconds)
        if program.instructions[k].is_collective:
            assert np.ptp(starts[k]) == 0


def test_stage_by_stage_nothing_runs_beside_a_collective(mixed: Mixed) -> None:
    program, cost = mixed
    starts, ends = timeline(program, cost, "sync")
    for stage in cost.stages:
        if stage.collective is None:
            continue
        begin, end = starts[stage.first].min(), ends[stage.first].max()
        assert end - begin == pytest.approx(stage.comm_s)
        for k in range(len(program.instructions)):
            if k != stage.first:
                assert ((ends[k] <= begin + 1e-12) | (starts[k] >= end - 1e-12)).all()


@pytest.mark.parametrize("kind", ["overlap", "sync"])
def test_busy_and_idle_make_the_step(kind: str, mixed: Mixed) -> None:
    program, cost = mixed
    seen: list[str] = []
    for row in rows(program, cost, kind=kind):
        idle = sum(end - start for start, end in row.idle)
        assert row.busy + idle == pytest.approx(total(cost, kind))
        d = int(row.names[0].split()[-1])
        compute = [s[d] for i, s in zip(program.instructions, cost.per_instruction_s, strict=True) if i.is_compute]
        moved = [s[d] for i, s in zip(program.instructions, cost.per_instruction_s, strict=True) if i.is_collective]
        assert row.busy == pytest.approx(sum(compute))
        assert sum(b.end - b.start for b in row.communication) == pytest.approx(sum(moved))
        seen += row.names
    assert sorted(seen) == [f"device {d}" for d in range(program.layout.devices)]  # each stands in one row
    assert len(rows(program, cost)) == 2  # two kinds of device


def test_the_chart_is_drawn_to_scale(mixed: Mixed, tmp_path: Path) -> None:
    program, cost = mixed
    names = [f"<box {d}>" for d in range(program.layout.devices)]
    (file,) = draw_program(program, cost, tmp_path / "p.svg", devices=names, time="overlap")
    tree = ElementTree.parse(file)
    boxes = [r for r in tree.iter(f"{SVG}rect") if r.get("class")]
    drawn = {"idle": 0.0, "bar": 0.0}
    for box in boxes:
        x, width = float(box.get("x", 0)), float(box.get("width", 0))
        assert LEFT - 0.01 <= x and x + width <= LEFT + CHART + 0.3
        title = box.find(f"{SVG}title")
        assert title is not None and title.text
        drawn[str(box.get("class"))] += width
    expected = rows(program, cost, names)
    for kind, seconds in (
        ("idle", sum(end - start for row in expected for start, end in row.idle)),
        ("bar", sum(b.end - b.start for row in expected for b in (*row.compute, *row.communication))),
    ):
        assert drawn[kind] == pytest.approx(seconds / cost.overlap_s * CHART, abs=2)
    words = [t.text for t in tree.iter(f"{SVG}text")]
    assert "<box 0> and 1 more" in words
    assert any(w and w.startswith("batch = ") for w in words)
    assert "idle" in words and "all_gather" in words


def test_narrow_neighbours_are_drawn_together() -> None:
    bars = [Bar(k * 0.001, (k + 1) * 0.001, "red", "op", "tip") for k in range(1000)]
    merged = list(_merged(bars, 100))
    assert len(merged) == 1
    assert (merged[0].start, merged[0].end, merged[0].count) == (0, pytest.approx(1), 1000)
    assert "1000 instructions" in merged[0].tip
    assert len(list(_merged(bars, 1e6))) == 1000
    two = [Bar(0, 1e-3, "red", "a", "a"), Bar(1e-3, 2e-3, "blue", "b", "b"), Bar(0.5, 0.501, "blue", "c", "c")]
    assert [b.tip for b in _merged(two, 100)] == ["a", "b", "c"]


def test_stretches_between() -> None:
    bars = [Bar(1, 2, "", "", ""), Bar(2, 3, "", "", ""), Bar(5, 6, "", "", "")]
    assert list(_between(bars, 8)) == [(0, 1), (3, 5), (6, 8)]
    assert list(_between([], 8)) == [(0, 8)]
    assert list(_between([Bar(0, 8, "", "", "")], 8)) == []


@pytest.mark.parametrize("seconds", [1e-6, 3.3e-5, 1.0, 7.9, 10.0, 123.0])
def test_ticks_are_few_and_round(seconds: float) -> None:
    found = _ticks(seconds)
    assert 3 <= len(found) <= 11
    assert found[0] == 0 and found[-1] <= seconds
    step = found[1] - found[0]
    assert float(f"{step:.0e}"[0]) in (1, 2, 5)


def test_an_empty_program_has_an_empty_chart(mixed: Mixed) -> None:
    program, cost = mixed
    empty = Program("none", program.graph, program.layout, [])
    nothing = Cost(0.0, 0.0, [], [], cost.memory, cost.capacity_bytes, np.zeros((0, 6)), np.zeros((0, 6)))
    assert ElementTree.fromstring(gantt_svg(empty, nothing)) is not None


def test_the_trace_counts_memory(mixed: Mixed, tmp_path: Path) -> None:
    program, cost = mixed
    (file,) = draw_program(program, cost, tmp_path / "p.json", time="sync")
    events = json.loads(file.read_text())["traceEvents"]
    for d in range(program.layout.devices):
        counted = [(e["ts"], e["args"]["bytes"]) for e in events if e["ph"] == "C" and e["pid"] == d]
        assert max(b for _, b in counted) == cost.memory_bytes[d]
        assert [t for t, _ in counted] == sorted(t for t, _ in counted)
    assert max(e["ts"] + e["dur"] for e in events if e["ph"] == "X") == pytest.approx(cost.sync_s * 1e6)


def test_what_a_timeline_can_t_be(mixed: Mixed, tmp_path: Path) -> None:
    for name, cost, code in (("p.dot", mixed[1], "HAP814"), ("p", mixed[1], "HAP814"), ("p.svg", None, "HAP812")):
        with pytest.raises(HapError) as stop:
            draw_program(mixed[0], cost, tmp_path / name, time="overlap")
        assert [d.code for d in stop.value.diagnostics] == [code]
