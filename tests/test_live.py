"""What `Live` says after each of many random edits, against what it says of the same text from scratch."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hapdsl import workbench
from hapdsl.check.facts import Reader
from hapdsl.check.write import write
from hapdsl.lang import nodes
from hapdsl.lang.nodes import File
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text
from hapdsl.live import Live, LiveProgram, Reading
from hapdsl.workbench import Workbench
from tests.check.mutants import mutants
from tests.check.random_programs import random_program
from tests.lang.helpers import changed
from tests.texts import PROGRAMS

BOX = """\
cluster box {
    device a { compute = 9 TFLOP/s, memory = 64 GiB, bandwidth = 900 GB/s, launch = 5 us }
    device b { compute = 4 TFLOP/s, memory = 64 GiB, bandwidth = 300 GB/s, launch = 5 us }
    node host = 2 * a, 2 * b over { bandwidth = 50 GB/s, latency = 10 us }
}
"""
SETTINGS = {"batch": 4, "seq": 4, "d": 8, "heads": 4, "ffn": 12, "vocab": 12, "layers": 2}
ARGS = tuple(nodes.Arg(k, nodes.Number(v)) for k, v in SETTINGS.items())


def text_of(program: nodes.Program) -> str:
    return 'import "std/gpt.hap"\n\n' + BOX + "\n" + to_text(File((program,)))


def written(seed: int, unroll: bool = False) -> nodes.Program:
    graph = Workbench(PROGRAMS / "models" / "gpt.hap").graph("gpt", SETTINGS)
    program = random_program(graph, (("devices", 4),) if seed % 2 else (("outer", 2), ("inner", 2)), seed, odd=False)
    return replace(write(program, unroll), args=ARGS, cluster="box")


def said(reading: Reading) -> Any:
    """All that a reading says, with positions, in plain values."""
    return reading.ok, reading.diagnostics, [_program(p) for p in reading.programs]


def _program(live: LiveProgram) -> Any:
    found: list[Any] = [live.tree, live.tree.span, live.state, live.note, live.cluster and live.cluster.name]
    if live.checked is not None:
        checked = live.checked
        found += [checked.sketch, checked.free, checked.pins, len(checked.open), list(checked.diagnostics)]
        found += [
            (i.op, i.inputs, i.outputs, i.section, i.method, i.axis, i.span, i.repeat, i.dtype)
            for i in checked.program.instructions
        ]
    if live.cost is not None:
        found.append([str(v) for v in live.cost.memory.values])
        found.append({line: (c.count, c.bytes, c.words) for line, c in live.lines.items()})
    return found


def numbers(reading: Reading) -> list[np.ndarray]:
    found = []
    for live in reading.programs:
        if live.cost is not None:
            cost, memory = live.cost, live.cost.memory
            found += [
                np.array([cost.sync_s, cost.overlap_s]),
                cost.starts_s,
                cost.ends_s,
                np.array([s.seconds for s in cost.stages]),
            ]
            found += [
                memory.live,
                memory.peak,
                memory.first,
                memory.last,
                np.array([c.seconds for c in live.lines.values()]),
            ]
    return found


def assert_same(live: Live, text: str) -> Reading:
    found, whole = live.update(text), Live(live.path, live.cluster).update(text)
    assert said(found) == said(whole), text
    for a, b in zip(numbers(found), numbers(whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=0)
    return found


@pytest.fixture(autouse=True)
def graphs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No text here changes a model, so each graph is built once for the texts that are read from scratch, too."""
    known: dict[Any, Any] = {}
    real = workbench.build

    def build(model: nodes.Model, defs: Any, ops: Any, settings: dict[str, Any], train: bool) -> Any:
        key = (to_text(File((model,))), str(sorted(settings.items())), train)
        if key not in known:
            known[key] = real(model, defs, ops, settings, train)
        return known[key]

    monkeypatch.setattr(workbench, "build", build)


@pytest.mark.parametrize("name", ["mesh", "rezero"])
def test_random_edits_of_every_kind_are_as_from_scratch(name: str) -> None:
    """One statement edited in every way that a mutant is, and back again now and then; each edit is of what the last one left."""
    path = PROGRAMS / "plans" / f"{name}.hap"
    file = parse(path.read_text(encoding="utf-8"), str(path))
    tree = next(item for item in file.items if isinstance(item, nodes.Program))
    others = tuple(item for item in file.items if not isinstance(item, nodes.Program))
    tree = replace(tree, body=tuple(s for s in tree.body if not isinstance(s, nodes.Fingerprint)))
    text = to_text(File((*others, tree)))
    live, draw = Live(path), random.Random(name)
    states: dict[str, int] = {}
    kinds = set()
    assert assert_same(live, text).programs[0].state == "proven"
    for _, (kind, mutant) in zip(range(45), mutants(tree, 7), strict=False):
        kinds.add(kind)
        found = assert_same(live, to_text(File((*others, mutant))))
        for program in found.programs:
            states[program.state] = states.get(program.state, 0) + 1
        if draw.random() < 0.3:
            assert assert_same(live, text).ok
    assert len(kinds) >= 28 and states["proven"] >= 5 and states["wrong"] >= 20, (kinds, states)


def test_typing_is_as_from_scratch() -> None:
    """Characters, lines and braces come and go; several changes pile up before the text is whole again."""
    text = now = text_of(written(3))
    live, draw = Live("typed.hap"), random.Random(5)
    for _ in range(30):
        assert_same(live, now)
        now = text if draw.random() < 0.35 else changed(now, draw)


def test_only_what_an_edit_touches_is_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = text_of(written(1))
    live = Live("counted.hap")
    before = live.update(text)
    read: list[nodes.Statement] = []
    real = Reader.fact
    monkeypatch.setattr(Reader, "fact", lambda self, placed: (read.append(placed.statement), real(self, placed))[1])
    lines = text.split("\n")
    at = next(k for k, line in enumerate(lines) if "gelu(" in line)
    after = live.update("\n".join([*lines[:at], lines[at] + "  # said", *lines[at + 1 :]]))
    turns = SETTINGS["layers"]
    assert 0 < len(read) <= 3 * turns, "the line and its neighbour, in each turn"
    a, b = after.programs[0], before.programs[0]
    assert a.checked is not None and b.checked is not None
    assert a.checked.program.graph is b.checked.program.graph
    shared = {id(i) for i in b.checked.program.instructions} & {id(i) for i in a.checked.program.instructions}
    assert len(shared) >= len(a.checked.program.instructions) - len(read)
    assert [i.span.line for i in b.checked.program.instructions] == [
        i.span.line for i in a.checked.program.instructions
    ]


def test_an_imported_file_that_changes_is_read_again(tmp_path: Path) -> None:
    box = tmp_path / "box.hap"
    box.write_text(BOX, encoding="utf-8")
    text = text_of(written(1)).replace(BOX, 'import "box.hap"\n')
    live = Live(tmp_path / "plan.hap")
    first = live.update(text).programs[0].cost
    assert first is not None and live.update(text).ok
    box.write_text(BOX.replace("9 TFLOP/s", "900 GFLOP/s"), encoding="utf-8")
    second = assert_same(live, text).programs[0].cost
    assert second is not None and second.sync_s > first.sync_s
    box.unlink()
    gone = assert_same(live, text)
    assert [d.code for d in gone.diagnostics] == ["HAP130"]


def test_a_file_that_is_saved_while_its_text_is_checked_is_read_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = tmp_path / "box.hap"
    box.write_text(BOX, encoding="utf-8")
    text = text_of(written(1)).replace(BOX, 'import "box.hap"\n')
    live = Live(tmp_path / "plan.hap")
    real = Live._program

    def saved_meanwhile(self: Live, *rest: Any) -> LiveProgram:
        found = real(self, *rest)
        box.write_text(BOX.replace("9 TFLOP/s", "900 GFLOP/s"), encoding="utf-8")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Live, "_program", saved_meanwhile)
        first = live.update(text).programs[0].cost
    second = assert_same(live, text).programs[0].cost
    assert first is not None and second is not None and second.sync_s > first.sync_s
