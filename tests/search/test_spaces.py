"""What a search keeps: tables that had to go for want of room are made again, and nothing else changes."""

from __future__ import annotations

import pytest

from hapdsl.cost.numbers import Numbers
from hapdsl.search import around, eliminate, planner, prices, spaces
from hapdsl.search.baselines import baselines
from hapdsl.search.drawn import Drawn
from hapdsl.search.pairs import Pair, shares_key
from hapdsl.search.planner import plan

from .examples import PROGRAMS
from .small import cluster, text_of, training


def test_tables_that_had_to_go_are_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = training((PROGRAMS / "models" / "mlp.hap").read_text(encoding="utf-8"), batch=32, d=24, hidden=32)
    made = cluster((PROGRAMS / "clusters" / "shared_memory.hap").read_text(encoding="utf-8"))
    monkeypatch.setattr(planner, "PROOF_LEAVES", 6)
    monkeypatch.setattr(around, "CLIMB_WORK", 0)
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


def test_lines_that_were_drawn_are_shared_by_baselines_and_change_none() -> None:
    graph = training((PROGRAMS / "models" / "mlp.hap").read_text(encoding="utf-8"), batch=32, d=24, hidden=32)
    made = cluster((PROGRAMS / "clusters" / "shared_memory.hap").read_text(encoding="utf-8"))
    drawn = Drawn(Numbers(graph))
    first, again = (baselines(graph, made, "sync", drawn) for _ in range(2))
    for name, alone in baselines(graph, made).items():
        one, other = first[name], again[name]
        assert alone is not None and one is not None and other is not None
        assert text_of(one.program) == text_of(alone.program)
        assert set(map(id, one.program.instructions)) == set(map(id, other.program.instructions))


def test_while_baselines_are_looked_for_only_the_best_shares_keep_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = training((PROGRAMS / "models" / "mlp.hap").read_text(encoding="utf-8"), batch=32, d=24, hidden=32)
    made = cluster((PROGRAMS / "clusters" / "shared_memory.hap").read_text(encoding="utf-8"))
    kept: list[tuple[int, set[object], Pair | None]] = []
    let_go = spaces.Spaces.let_go

    def watched(self: spaces.Spaces, best: Pair | None) -> None:
        let_go(self, best)
        kept.append((len({key[0] for key in self.solved}), {k[0] for k, s in self.solved.items() if s.bytes}, best))

    monkeypatch.setattr(spaces.Spaces, "let_go", watched)
    plan(graph, made)
    [(count, with_tables, best)] = kept
    assert best is not None and count > 1
    assert with_tables == {shares_key(best.shares)}
