"""`hapdsl fmt`: writes the canonical text, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hapdsl.commands import fmt
from hapdsl.lang.diagnostics import error
from hapdsl.lang.parse import parse
from tests.cli.conftest import Run
from tests.texts import TINY

UNTIDY = "# a model\nmodel  m( n=4 ){\ninput x:f32[ n ]   # given\n  y=relu( x )\n\n\noutput y }\n"


def test_it_formats_once(hapdsl: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.hap"
    path.write_text(UNTIDY)
    path.chmod(0o640)
    checked = hapdsl("fmt", "--check", path, "--json")
    assert (checked.status, checked.object["changed"]) == (1, [str(path)])
    assert path.read_text() == UNTIDY
    done = hapdsl("fmt", path, "--json")
    assert (done.status, done.object["changed"]) == (0, [str(path)])
    assert parse(path.read_text()) == parse(UNTIDY)
    assert "# a model" in path.read_text()
    assert "# given" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o640
    again = hapdsl("fmt", path, "--json")
    assert (again.status, again.object["changed"]) == (0, [])
    assert hapdsl("fmt", "--check", path).status == 0
    assert os.listdir(tmp_path) == ["m.hap"]


def test_a_link_stays_a_link(hapdsl: Run, tmp_path: Path) -> None:
    (tmp_path / "real.hap").write_text(UNTIDY)
    (tmp_path / "link.hap").symlink_to("real.hap")
    assert hapdsl("fmt", tmp_path / "link.hap").status == 0
    assert (tmp_path / "link.hap").is_symlink()
    assert (tmp_path / "real.hap").read_text() != UNTIDY


def test_a_broken_file_is_left_alone_and_the_others_are_done(hapdsl: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.hap").write_text("model m {\n")
    (tmp_path / "good.hap").write_text(UNTIDY)
    found = hapdsl("fmt", tmp_path / "bad.hap", tmp_path / "good.hap", "--json")
    assert found.status == 2
    assert found.object["changed"] == [str(tmp_path / "good.hap")]
    assert (tmp_path / "bad.hap").read_text() == "model m {\n"
    assert found.codes


def test_a_file_that_can_t_be_written_has_not_changed(
    hapdsl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise error("HAP852", f"{path} can't be written")

    monkeypatch.setattr(fmt, "write_file", full)
    path = tmp_path / "m.hap"
    path.write_text(UNTIDY)
    found = hapdsl("fmt", path, path, "--json")
    assert (found.status, found.codes, found.object["changed"]) == (2, ["HAP852"], [])


def test_what_needs_no_change_isn_t_written(hapdsl: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.hap"
    path.write_text(TINY)
    hapdsl("fmt", path)
    before = path.stat().st_mtime_ns
    assert hapdsl("fmt", path).out == ""
    assert path.stat().st_mtime_ns == before
