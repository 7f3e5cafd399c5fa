"""A short soak: what `python -m benchmarks.soak` does for twenty minutes, for some seconds."""

from __future__ import annotations

from benchmarks.soak import soak
from hapdsl.run.checkpoint import find, steps


def test_a_run_survives_what_is_done_to_it(tmp_path):
    events = {"kill a rank": 2, "kill the parent": 1}
    found = soak(tmp_path, rounds=2, round_s=0.3, seed=5, events=events)
    assert found.wrong == [] and len(found.rounds) == 2 and found.replayed >= 1
    assert {r.event for r in found.rounds} == set(events)
    assert all(r.seconds < 20 for r in found.rounds)
    assert [r.step for r in found.rounds] == sorted(r.step for r in found.rounds)
    assert find(tmp_path / "checkpoints").manifest.step == found.rounds[-1].step > 0
    assert len(steps(tmp_path / "checkpoints")) <= 3
