"""Rows that benchmarks have kept are never lost: not by a run of a part, one that is stopped, one that fails, and not by tables of no rows."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from benchmarks import accuracy, emulate, explorer, paper, pricing, rows, search, summary
from benchmarks.pages import PERFORMANCE, fill, filled, marks

ROW = {**rows.read(emulate.LINES)[0], "command": "before"}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results and a page of one's own, and a lab that runs nothing."""
    names = ("emulate", "accuracy", "search", "paper", "pricing", "explorer", "summary")
    text = "\n".join("\n".join(marks(name)) for name in names)
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    for module in (emulate, accuracy):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
        monkeypatch.setattr(module, "LINES", tmp_path / f"{module.__name__.rpartition('.')[2]}.jsonl")
        monkeypatch.setattr(module, "PERFORMANCE", tmp_path / "page.md")
        for name in ("extent", "measured"):
            monkeypatch.setattr(module, name, lambda *_: None)
    for module in (pricing, explorer):
        monkeypatch.setattr(module, "LINES", tmp_path / f"{module.__name__.rpartition('.')[2]}.jsonl")
        monkeypatch.setattr(module, "PERFORMANCE", tmp_path / "page.md")
    return tmp_path / "page.md"


class Lab:
    """Each step of any program takes two seconds."""

    def run(self, function: Callable[..., Any], *_: Any, **__: Any) -> list[list[float]]:
        return [[2.0]]


def run(module: Any, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(module, "opened", lambda options: nullcontext(Lab()))
    monkeypatch.setattr(sys, "argv", ["run", *arguments])
    module.main()


def test_a_run_of_some_models_keeps_those_of_others(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows.write(emulate.LINES, [{**ROW, "model": m} for m in ("mlp", "gpt", "vgg19")])

    def compare(lab: Lab, model: str, *_: Any) -> rows.Row:
        if model == "mlp":
            raise KeyboardInterrupt
        return {k: v for k, v in ROW.items() if k not in ("command", "machine")} | {"model": model}

    monkeypatch.setattr(emulate, "compare", compare)
    with pytest.raises(KeyboardInterrupt):
        run(emulate, monkeypatch, "--models", "gpt,bert_moe,mlp")
    found = [(r["model"], r["command"].split()[-1]) for r in rows.read(emulate.LINES)]
    now = "gpt,bert_moe,mlp"
    assert found == [("mlp", "before"), ("gpt", now), ("vgg19", "before"), ("bert_moe", now)]
    text = page.read_text(encoding="utf-8")
    assert text.count("`before`: quotas") == text.count(f"--models {now}`: quotas") == 1
    assert text.count("### ") == 4


def test_scores_are_those_of_all_programs(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def case(model: str, predicted: float) -> accuracy.Case:
        return accuracy.Case(model, f"at {predicted}", "text", predicted, predicted, 1.0)

    before = [vars(case(m, s)) for m in ("mlp", "gpt") for s in (1.0, 1.5)]
    rows.write(accuracy.LINES, [{"command": "before", "machine": "old"}, *before])
    monkeypatch.setattr(accuracy, "build", lambda block: None)
    monkeypatch.setattr(accuracy, "speeds_of", lambda cluster: [])
    cost = argparse.Namespace(overlap_s=2.0, sync_s=3.0)
    monkeypatch.setattr(accuracy, "evaluate", lambda program, cluster: cost)
    monkeypatch.setattr(accuracy, "texts", lambda model, *_: [(case(model, 0.0), None)] * 3 if model == "mlp" else [])
    run(accuracy, monkeypatch, "--models", "mlp,cnn")
    head, *found = rows.read(accuracy.LINES)
    assert [(r["model"], r["predicted_s"], r["measured_s"]) for r in found] == [
        *[("mlp", 2.0, 2.0)] * 3,
        ("gpt", 1.0, 1.0),
        ("gpt", 1.5, 1.0),
    ]
    assert [r["command"] for r in found[2:4]] == ["python -m benchmarks.accuracy --models mlp,cnn", "before"]
    assert (head["programs"], head["median_error"], head["p90_error"]) == (5, 0.0, pytest.approx(0.3))
    text = page.read_text(encoding="utf-8")
    assert "`python -m benchmarks.accuracy --models mlp,cnn`, `before`, on " in text and "and on old\n" in text
    assert "5 programs" in text


def test_tables_of_no_rows_change_no_page(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    real, mine = PERFORMANCE.read_bytes(), page.read_bytes()
    nowhere = tmp_path / "nowhere.jsonl"
    for module in (emulate, accuracy):
        run(module, monkeypatch, "--table")
    for campaign in (search.main, paper.main):
        campaign(["--table", "--lines", str(nowhere)])
        campaign(["--table", "--lines", str(nowhere), "--page", str(page)])
    assert (PERFORMANCE.read_bytes(), page.read_bytes()) == (real, mine)
    for script in (pricing, explorer):
        script.main(["--table"])
    monkeypatch.setattr(summary, "PARTS", (lambda: iter(()),))
    monkeypatch.setattr(summary, "README", page)
    summary.main([])
    assert (PERFORMANCE.read_bytes(), page.read_bytes()) == (real, mine)
    told = capsys.readouterr()
    assert told.err.count("stays as it is") == 7 and told.out.count(f"{nowhere} has no rows") == 2
    fill(page, "search", "words")
    assert page.read_text(encoding="utf-8") == filled(mine.decode(), "search", "words")


def test_the_summary_measures_and_writes_nothing_where_help_is_asked_for(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = page.read_bytes()
    monkeypatch.setattr(summary, "README", page)
    with pytest.raises(SystemExit):
        summary.main(["--help"])
    assert "README" in capsys.readouterr().out and page.read_bytes() == before


@pytest.mark.parametrize("module", [emulate, accuracy])
def test_what_the_options_say_wrongly_is_said(
    module: Any, page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (
        (("--models", "mlp,gtp"), "no model gtp; there are mlp, "),
        (("--quotas", ".8,a"), "--quotas .8,a: a part of a processor for each rank"),
    ):
        with pytest.raises(SystemExit) as stop:
            run(module, monkeypatch, *words)
        assert stop.value.code == 2 and said in capsys.readouterr().err


def test_a_model_without_programs_calibrates_nothing(monkeypatch: pytest.MonkeyPatch, page: Path) -> None:
    taken: list[Any] = []
    monkeypatch.setattr(accuracy, "build", lambda block: None)
    monkeypatch.setattr(accuracy, "speeds_of", lambda cluster: [])
    monkeypatch.setattr(accuracy, "texts", lambda *_: [])
    monkeypatch.setattr(accuracy, "corrected", lambda lab, block, chosen: taken.extend(chosen))
    run(accuracy, monkeypatch, "--models", "mlp,cnn", "--calibrate")
    assert taken == [] and not accuracy.LINES.exists()


def test_a_failure_hides_no_measurement(tmp_path: Path) -> None:
    for row in ({"failed": 1}, {"found": 2}, {"found": 3}, {"failed": 4}):
        rows.append(tmp_path / "a.jsonl", {"name": "case", **row})
    rows.append(tmp_path / "a.jsonl", {"name": "other", "failed": 5})
    rows.append(tmp_path / "a.jsonl", {"name": "other", "failed": 6})
    assert rows.latest(tmp_path / "a.jsonl") == {
        "case": {"name": "case", "found": 3},
        "other": {"name": "other", "failed": 6},
    }
