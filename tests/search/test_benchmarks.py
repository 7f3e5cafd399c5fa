"""The benchmarks' scripts: every case can be made, a measured one has all that its table shows, and a page is rewritten in place."""

from __future__ import annotations

import json

import pytest

from benchmarks import measure
from benchmarks.cases import METHODS, PROGRAMS, SMALL, Case, cases, example_clusters, four_kinds
from benchmarks.measure import cluster_of, main
from benchmarks.pages import PERFORMANCE, filled, marks
from benchmarks.table import tables


@pytest.mark.parametrize("devices", [2, 8, 64, 256, 1024])
def test_clusters_of_any_size(devices: int) -> None:
    made = cluster_of(f"four kinds {devices}")
    assert len(made) == devices and len(made.kinds()) == min(4, devices)
    assert len({len(k) for k in made.kinds()}) == 1, "equally many of each"
    assert four_kinds(devices).startswith("cluster four_kinds {")


@pytest.mark.parametrize("devices", [5, 6, 16, 40])
def test_no_cluster_has_other_devices_than_asked_for(devices: int) -> None:
    with pytest.raises(ValueError, match=f"{devices} devices can't be dealt"):
        four_kinds(devices)


def test_cases_have_names_of_their_own() -> None:
    names = [c.name for c in cases()]
    assert len(set(names)) == len(names)
    examples = {p.stem for p in (PERFORMANCE.parents[1] / "programs" / "models").glob("*.hap")}
    assert examples == {c.model for c in cases() if c.group == "baselines"}
    assert {c.model for c in cases()} == examples
    assert {(c.model, c.cluster) for c in cases() if c.group == "baselines"} == {
        (m, n) for m in examples for n in example_clusters()
    }
    assert len(cluster_of("cheap_cloud")) == 4 and len(cluster_of("two_kinds")) == 8
    for model, settings in SMALL.items():
        head = (
            (PROGRAMS / "models" / f"{model}.hap")
            .read_text(encoding="utf-8")
            .partition(f"model {model}(")[2]
            .partition("{")[0]
        )
        assert all(f"{name} = " in head for name in settings)


def measured(case: Case, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    fields = {
        "group": case.group,
        "kind": case.kind,
        "model": case.model,
        "cluster": case.cluster,
        "settings": dict(case.settings),
        "method": case.method,
    }
    main([json.dumps(fields)])
    return {**fields, "name": case.name, "found": json.loads(capsys.readouterr().out)}


def test_what_is_measured_comes_into_the_page(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "LIMIT", 1.0)
    small = {"batch": 32, "d": 24, "hidden": 32}
    rows = [measured(Case("models", "plan", "mlp", "shared_memory", small), capsys)]
    rows += [measured(Case("methods", "space", "mlp", "shared_memory", small, m), capsys) for m in METHODS]
    rows.append(measured(Case("baselines", "baselines", "mlp", "shared_memory", small), capsys))
    found = rows[0]["found"]
    assert isinstance(found, dict)
    assert 0 < found["first_s"] <= found["near_s"] <= found["settled_s"] <= found["proven_s"] <= found["search_s"]
    assert 0 <= found["gap"] < 1 and found["above_interpreter_bytes"] >= found["above_imports_bytes"] > 0
    beside = rows.pop()["found"]
    assert isinstance(beside, dict)
    assert beside["cost_s"] <= beside["best_s"] == min(beside["baselines"].values()) and not beside["cut"]
    rows.append({"group": "baselines", "model": "mlp", "cluster": "shared_memory", "found": beside})
    rows.append({"group": "baselines", "model": "mlp", "cluster": "two_kinds", "found": {**beside, "cost_s": None}})
    rows.append(
        {
            "group": "baselines",
            "model": "gpt",
            "cluster": "two_kinds",
            "found": {**beside, "best_s": None, "cost_s": None},
        }
    )
    costs = {r["method"]: r["found"]["bound_s"] for r in rows[1:-3]}
    assert costs["MILP"] == pytest.approx(costs["elimination"], rel=1e-6)
    made = tables(rows, "a machine")
    assert f"| mlp | {beside['cost_s'] / beside['best_s']:.3f} | inf | inf |\n| gpt |  | – | – |\n" in made
    assert "Of 3 cases the plan is above a baseline in 1." in made
    assert "| mlp | 14 |" in made


def test_what_searches_took_leaves_those_out_that_were_stopped() -> None:
    found = {"cost_s": 1.0, "best_s": 2.0}
    rows = [
        {"group": "baselines", "model": "mlp", "cluster": c, "found": {**found, "cut": cut, "search_cpu_s": s}}
        for c, cut, s in (("a", True, 20.0), ("b", True, 20.1), ("c", False, 3.0))
    ]
    assert "which 2 of them used up; the others took 3.0 (median)." in tables(rows, "")
    assert "which 2 of them used up.\n" in tables(rows[:2], "")
    assert "failed" not in tables(rows, "") and "mlp on d: why." in tables(
        [{"group": "baselines", "model": "mlp", "cluster": "d", "failed": "why"}], ""
    )


def test_what_stands_between_its_marks_is_made_anew() -> None:
    begin, end = marks("search")
    made = filled(f"before\n{begin}\nold\n{end}\nafter\n", "search", "| a |\n")
    assert made == f"before\n{begin}\n\n| a |\n\n{end}\nafter\n" and filled(made, "search", "| a |\n") == made
    for broken in ("no marks", f"{begin} alone, and the rest of the page", end, f"{end}{begin}"):
        with pytest.raises(ValueError, match="has no"):
            filled(broken, "search", "")


@pytest.mark.parametrize("name", ["search", "paper", "emulate", "accuracy", "pricing", "explorer"])
def test_the_page_has_each_benchmarks_marks(name: str) -> None:
    text = PERFORMANCE.read_text(encoding="utf-8")
    assert [text.count(mark) for mark in marks(name)] == [1, 1]
    assert filled(text, name, text.partition(marks(name)[0])[2].partition(marks(name)[1])[0]) == text
