"""What a search keeps: tables that had to go for want of room are made again, and nothing else changes."""

from __future__ import annotations

import pytest

from hapdsl.search import eliminate, planner, prices, spaces
from hapdsl.search.planner import plan

from .examples import PROGRAMS
from .small import cluster, text_of, training


def test_tables_that_had_to_go_are_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = training((PROGRAMS / "models" / "mlp.hap").read_text(encoding="utf-8"), batch=32, d=24, hidden=32)
    made = cluster((PROGRAMS / "clusters" / "shared_memory.hap").read_text(encoding="utf-8"))
    monkeypatch.setattr(planner, "PROOF_LEAVES", 6)
    monkeypatch.setattr(planner, "CLIMB_WORK", 0)
    kept = plan(graph, made, gap=0.0, baselines=False)
    solved: list[int] = []
    whole = spaces.eliminate
    monkeypatch.setattr(spaces, "eliminate", lambda *a, **k: solved.append(1) or whole(*a, **k))
    monkeypatch.setattr(spaces, "TABLES", 0)
    monkeypatch.setattr(prices, "BESIDE", 0)
    monkeypatch.setattr(eliminate, "WHOLE_CELLS", 1 << 11)
    found = plan(graph, made, gap=0.0, baselines=False)
    assert solved, "tables were given up, and made again"
    assert text_of(found.program) == text_of(kept.program)
    assert (found.cost_s, found.bound_s, found.nodes) == (kept.cost_s, kept.bound_s, kept.nodes)
