"""The demo: what it can't do it says, and its parts run."""

from __future__ import annotations

from pathlib import Path

import pytest

from hapdsl.demo import digits


def test_a_folder_that_can_t_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "demo").touch()
    monkeypatch.setattr(digits, "OUT", tmp_path / "demo")
    assert digits.main() == 2


def test_it_may_be_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(digits, "OUT", tmp_path)
    monkeypatch.setattr(digits, "digits", interrupted)
    assert digits.main() == 130
