"""Files that drawing writes, and what happens when it can't."""

from __future__ import annotations

import json
import os
import stat
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from hapdsl.cost.evaluate import Cost
from hapdsl.draw.program import draw_graph, draw_program
from hapdsl.graph.program import Program
from hapdsl.lang.codes import CODES
from hapdsl.lang.diagnostics import HapError, Report

Mixed = tuple[Program, Cost]


def test_each_suffix(mixed: Mixed, tmp_path: Path) -> None:
    for suffix, start in ((".dot", b"digraph"), (".svg", b"<?xml"), (".png", b"\x89PNG")):
        file = tmp_path / f"drawing{suffix}"
        assert draw_program(*mixed, file) == [file]
        assert file.read_bytes().startswith(start)
    texts = ElementTree.parse(tmp_path / "drawing.svg").iter("{http://www.w3.org/2000/svg}text")
    assert "w1.grad@S(1)" in {t.text for t in texts}


def test_without_a_suffix_text_and_picture(mixed: Mixed, tmp_path: Path) -> None:
    files = draw_graph(mixed[0].graph, tmp_path / "model")
    assert files == [tmp_path / "model.dot", tmp_path / "model.svg"]
    assert all(f.stat().st_size > 1000 for f in files)


def test_without_graphviz_the_text_is_written(mixed: Mixed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    report = Report()
    assert draw_program(*mixed, tmp_path / "p.svg", report=report) == [tmp_path / "p.dot"]
    assert (tmp_path / "p.dot").read_text().startswith("digraph")
    (found,) = report
    assert (found.code, found.severity) == ("HAP810", "warning")
    assert "\n" not in found.message and found.help
    assert draw_program(*mixed, tmp_path / "q") == [tmp_path / "q.dot"]  # and without a report


def test_a_failing_graphviz_is_a_warning(mixed: Mixed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "dot"
    fake.write_text("#!/bin/sh\ncat > /dev/null\necho 'no [layout] today' >&2\nexit 3\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin{os.pathsep}/usr/bin")
    report = Report()
    assert draw_program(*mixed, tmp_path / "p.png", report=report) == [tmp_path / "p.dot"]
    assert [d.code for d in report] == ["HAP813"] and "no [layout] today" in next(iter(report)).message


def test_what_it_refuses(mixed: Mixed, tmp_path: Path) -> None:
    program, cost = mixed
    for code, attempt in (
        ("HAP811", lambda: draw_program(program, cost, tmp_path / "p.jpeg")),
        ("HAP812", lambda: draw_program(program, None, tmp_path / "p.json")),
        ("HAP812", lambda: draw_graph(program.graph, tmp_path / "p.json")),
        ("HAP852", lambda: draw_program(program, cost, tmp_path / "nowhere" / "p.dot")),
    ):
        with pytest.raises(HapError) as stop:
            attempt()
        assert [d.code for d in stop.value.diagnostics] == [code]
    assert {"HAP810", "HAP811", "HAP812", "HAP813", "HAP852"} <= CODES.keys()


def test_trace_is_the_timeline(mixed: Mixed, tmp_path: Path) -> None:
    program, cost = mixed
    names = [f"box[{d}]" for d in range(program.layout.devices)]
    (file,) = draw_program(program, cost, tmp_path / "p.json", devices=names)
    events = json.loads(file.read_text())["traceEvents"]
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == names
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans: dict[tuple[int, str], list[tuple[float, float, int]]] = defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            spans[e["pid"], threads[e["pid"], e["tid"]]].append((e["ts"], e["ts"] + e["dur"], e["args"]["instruction"]))
    assert len(spans) == 2 * program.layout.devices
    for own in spans.values():
        own.sort()
        assert all(a[1] <= b[0] + 1e-6 for a, b in pairwise(own))  # a stream does one thing at a time
    assert max(end for own in spans.values() for _, end, _ in own) == pytest.approx(cost.overlap_s * 1e6)
    for d in range(program.layout.devices):
        busy = sum(end - start for stream in ("compute", "communication") for start, end, _ in spans[d, stream])
        assert busy == pytest.approx(float(np.sum([s[d] for s in cost.per_instruction_s])) * 1e6)
    moved = {k for own in (spans[0, "communication"],) for _, _, k in own}
    assert moved == {k for k, i in enumerate(program.instructions) if i.is_collective}
