"""A short soak: what `python -m benchmarks.soak` does for twenty minutes, for some seconds."""

from __future__ import annotations

import pytest

from benchmarks.soak import Round, _check, soak
from hapdsl.run.checkpoint import find, steps


def test_a_run_survives_what_is_done_to_it(tmp_path):
    events = {"kill a rank": 2, "kill the parent": 1}
    found = soak(tmp_path, rounds=2, round_s=0.3, seed=5, events=events)
    assert found.wrong == [] and len(found.rounds) == 2 and found.replayed >= 1
    assert {r.event for r in found.rounds} == set(events)
    assert all(r.seconds < 20 and r.status for r in found.rounds)
    assert [r.step for r in found.rounds] == sorted(r.step for r in found.rounds)
    assert find(tmp_path / "checkpoints").manifest.step == found.rounds[-1].step > 0
    assert len(steps(tmp_path / "checkpoints")) <= 3


@pytest.mark.parametrize(
    ("event", "parent", "status", "code", "right"),
    [
        ("kill a rank", False, 1, "HAP720", True),
        ("kill a rank", False, 1, None, False),  # it ended without a word
        ("kill a rank", False, 0, "HAP720", False),
        ("kill a rank", True, -9, None, True),  # there were no ranks yet
        ("fill the disk", False, 1, "HAP720", False),
        ("kill the parent", True, -9, None, True),
    ],
)
def test_how_a_run_may_end(tmp_path, event, parent, status, code, right):
    wrong: list[str] = []
    assert (
        _check(tmp_path, None, Round(event, 0.1, parent, status, code, "words" if code else ""), "round 0", wrong)
        is None
    )
    assert (not wrong) == right, wrong
