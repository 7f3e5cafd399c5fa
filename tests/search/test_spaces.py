"""What a search keeps: tables that had to go for want of room are made again, and nothing else changes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hapdsl.cost.numbers import Numbers
from hapdsl.search import around, eliminate, planner, prices, spaces
from hapdsl.search.baselines import baselines
from hapdsl.search.clock import Clock
from hapdsl.search.drawn import Drawn
from hapdsl.search.pairs import Pair, Pairs, shares_key
from hapdsl.search.planner import plan
from hapdsl.search.prices import cutting_planes
from hapdsl.search.shares import layout_of
from hapdsl.search.space import Space
from hapdsl.search.spaces import Spaces
from hapdsl.search.structure import Structure

from .examples import PROGRAMS
from .small import CLUSTERS, MODELS, Tried, cluster, cuts, everything, text_of, training


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


def test_under_the_same_shares_messages_that_count_more_only_raise_the_bound() -> None:
    """Latencies of a thousandth of a step are left to the proof, whose space has all other prices of the rounds'."""
    graph = training(MODELS["one product"])
    made = cluster(CLUSTERS["latency"].replace("latency = 5 us", "latency = 0.2 us"))
    asked = Spaces(graph, made, "sync", None, Pairs(graph, made, "sync", "plan", lambda: None), Clock())
    shares = cuts(graph, made)["even"]
    every = list(asked.ever_more())
    assert len(every) > 1 and set(every[0]) < set(every[1])
    bounds = [asked.solve(shares, messages).pricing.bound for messages in every]
    alone = [
        cutting_planes(Space(graph, layout_of(shares, 2), made, None, "sync", Structure(graph, None, m)).graph).bound
        for m in every
    ]
    assert bounds == pytest.approx(alone, rel=1e-3)
    tried = Tried(graph, made, shares)
    some = itertools.islice(everything(tried.space.graph, np.random.default_rng(1)), 300)
    least = min(tried.seconds(a) for a in some)
    assert 0 < bounds[0] <= bounds[1] <= least * (1 + 1e-9)
