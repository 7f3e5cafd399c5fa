"""Every table that benchmarks make says what the rows say that they have kept, and every row has its place."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from benchmarks import campaign, pricing, rows, search
from benchmarks.campaign import chosen, command_line, measure, unmeasured, with_cases
from benchmarks.cases import Case
from benchmarks.pages import filled
from benchmarks.tables import TABLES, stale

RESULTS = rows.RESULTS


@pytest.mark.parametrize("name", TABLES)
def test_a_page_has_the_figures_of_its_rows(name: str) -> None:
    assert not stale(name), f"`make tables` makes the table of benchmarks.{name} anew"


def test_a_table_is_made_of_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever figure a row has, the page has to have: other rows make the page stale."""
    changed = [{**row, "parse": 12.3456} for row in rows.read(pricing.LINES)]
    rows.write(tmp_path / "pricing.jsonl", changed)
    monkeypatch.setattr(pricing, "LINES", tmp_path / "pricing.jsonl")
    assert stale("pricing")
    page = filled(TABLES["pricing"][0].read_text(encoding="utf-8"), "pricing", pricing.made())
    assert page.count("| 12345.6 |") == len(changed)


def test_devices_that_no_cluster_has_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    for case in ("24x6", "24x40"):
        with pytest.raises(SystemExit):
            pricing.main([case])
        assert f"{case.removeprefix('24x')} devices can't be dealt to 4 kinds" in capsys.readouterr().err


def test_every_file_of_rows_is_read_by_a_table() -> None:
    kept = {path.stem for path in RESULTS.glob("*.jsonl") if not path.stem.endswith("_quick")}
    assert kept <= set(TABLES)


def test_cases_are_measured_one_by_one_and_the_last_row_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = Case("layers", "plan", "gpt"), Case("models", "plan", "mlp")
    lines = tmp_path / "new" / "rows.jsonl"

    def run(case: Case) -> rows.Row:
        return {"name": case.name} | ({"found": 1} if case is first else {"failed": "no room"})

    found = measure([first, second, first], lines, run, lambda row: f"{row['found']} s", lambda case: True)
    assert len(rows.read(lines)) == 3 and rows.latest(lines) == found and set(found) == {first.name, second.name}
    said = capsys.readouterr().out.splitlines()
    assert said == [
        f"[1/3] {first.name} … 1 s",
        f"[2/3] {second.name} … no room",
        f"[3/3] {first.name} … 1 s",
    ]
    left = unmeasured([first, second], found, lambda case: case.group, "this")
    assert left == "Not measured yet: 1 models. `this` goes on with them.\n"
    assert unmeasured([first], found, lambda case: case.group, "this") == ""


def test_cases_without_seconds_run_at_once_and_those_with_seconds_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "usable_cores", lambda: 2)
    cases = [Case(group, "plan", f"m{k}") for k, group in enumerate(["layers", "baselines"] * 4)]
    pairs = threading.Barrier(2)
    running: list[str] = []

    def run(case: Case) -> rows.Row:
        running.append(case.name)
        if search.timed(case):
            assert running == [case.name]
        else:
            pairs.wait(timeout=60)  # broken, unless another one runs, too
        running.remove(case.name)
        return {"name": case.name, "found": 1}

    measure(cases, tmp_path / "rows.jsonl", run, lambda row: "", search.timed)
    names = [row["name"] for row in rows.read(tmp_path / "rows.jsonl")]
    assert names[4:] == [case.name for case in cases if search.timed(case)]
    assert sorted(names) == sorted(case.name for case in cases)


def test_a_line_says_on_what_rows_were_measured() -> None:
    assert rows.measured_on([{"machine": "a"}, {"machine": "b"}, {"machine": "a"}, {}]) == (
        "Measured on a and on b; one process a case."
    )
    assert rows.measured_on([{}]) == "" and re.match(r"\d+ cores \(.+\), Python 3\.", rows.machine())


def test_cases_are_chosen_by_kind_and_pattern(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    parser = command_line("any", "Words.")
    every = [Case("layers", "plan", "gpt"), Case("models", "plan", "mlp"), Case("models", "plan", "gpt")]
    with_cases(parser, [c.group for c in every], tmp_path)

    def found(*words: str) -> list[Case]:
        return chosen(parser, parser.parse_args(words), every, lambda case: case.group)

    assert found() == every and found("models") == every[1:] and found("models", "--only", "gp.") == every[2:]
    for words, said in (
        (("layer",), "no layer; there are layers, models"),
        (("--only", "gpt("), "'gpt(' is no pattern"),
    ):
        with pytest.raises(SystemExit):
            found(*words)
        assert said in capsys.readouterr().err


def test_kinds_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    parser = command_line("any", "Words.")
    with_cases(parser, ["b", "a", "b"], tmp_path)
    assert parser.parse_args(["a", "--table"]).kinds == ["a"]
    with pytest.raises(SystemExit):
        parser.parse_args(["--help"])
    assert "b, a; all without any" in capsys.readouterr().out
