"""Devices that hold nothing of a dim, forward, backward and update.

Elsewhere: an empty shard crashed the process.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hapdsl.check.verify import verify
from hapdsl.lang import nodes
from hapdsl.workbench import Workbench
from tests.check.subjects import PLANS, SMALL, agrees, small, subject

ONE_AXIS = [p for p in PLANS if p.stem.startswith(("mlp_", "layer_"))]
PATTERNS = {"first has none": [0, 1, 1, 1], "only the last": [0, 0, 0, 1], "every other": [1, 0, 1, 0]}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("path", ONE_AXIS, ids=lambda p: p.stem)
def test_a_device_with_a_share_of_nothing(path: Path, pattern: str) -> None:
    bench = Workbench(path)
    program = bench.program()
    weights = nodes.Items(tuple(nodes.Number(n) for n in PATTERNS[pattern]))
    body = tuple(replace(s, values=weights) if isinstance(s, nodes.Ratio) else s for s in small(program).body)
    whose = subject(path.stem, replace(program, body=body), bench.graph(program.model, SMALL[program.model]))
    checked = verify(whose.tree, whose.graph)
    assert checked.ok, list(checked.diagnostics)
    assert any((layout[(0,)] == 0).any() for layout in checked.program.layout.shares.values())
    assert agrees(checked, whose)


@pytest.mark.parametrize("path", ONE_AXIS, ids=lambda p: p.stem)
def test_fewer_rows_than_devices(path: Path) -> None:
    """A batch of two on four devices."""
    bench = Workbench(path)
    program = bench.program()
    whose = subject(path.stem, small(program), bench.graph(program.model, {**SMALL[program.model], "batch": 2}))
    checked = verify(whose.tree, whose.graph)
    assert checked.ok, list(checked.diagnostics)
    assert agrees(checked, whose)
