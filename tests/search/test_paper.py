"""The paper's evaluation in simulation, a small slice: no baseline is better anywhere, VGG19 at 32 GPUs, and the table that all of it goes into."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pages import marks
from benchmarks.paper import fresh, main
from benchmarks.paper_cases import SIZES, VIRTUAL, Case, cases, of_size
from benchmarks.paper_measure import MEASURES, graph_of, point
from benchmarks.paper_reference import FIGURES
from benchmarks.paper_table import tables

CASES = [
    Case("point", "vgg19", "paper_hetero", 32),
    Case("point", "vit", "paper_homo", 8, settings={"layers": 1}),
    Case("point", "bert", "paper_hetero", 16, VIRTUAL, {"layers": 1}),
    Case("point", "bert_moe", "paper_homo", 8, settings={"layers": 2}),
]


@cache
def found(case_name: str) -> dict[str, Any]:
    case = next(c for c in CASES if c.name == case_name)
    return point(case, gap=0.5)  # without the proof


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_no_baseline_is_better(case: Case) -> None:
    row = found(case.name)
    costs = {name: both[0] for name, both in row["baselines"].items() if both is not None}
    assert costs and row["best_s"] <= row["plan_s"] <= min(costs.values()) * (1 + 1e-9)
    assert ("expert_parallel" in row["baselines"]) == (case.model == "bert_moe")


def test_vgg19_at_32() -> None:
    """The paper's largest claim: 3.4 times as fast as data parallelism on 8 V100 and 24 P100."""
    row, figures = found(CASES[0].name), FIGURES["paper_hetero", "vgg19"]
    at = SIZES["paper_hetero"].index(32)
    for name, system in (("dp_even", "DP-EV"), ("dp_proportional", "DP-CP")):
        paper = figures[system][at] / figures["HAP"][at]
        assert paper > 3.4 and row["baselines"][name][0] / row["plan_s"] >= paper, name


def test_testbeds_have_all_machines_at_every_size() -> None:
    for name, sizes in SIZES.items():
        for size in sizes:
            cluster = of_size(name, size)[1]
            assert len(cluster) == size and len({len(n.devices) for n in cluster.nodes}) == 1
            assert len(cluster.nodes) == (8 if name == "paper_hetero" else 4)
    kinds = [d.kind for d in of_size("paper_hetero", 32)[1].devices]
    assert kinds.count("v100") * 3 == kinds.count("p100") == 24
    with pytest.raises(ValueError, match="evenly"):
        of_size("paper_hetero", 12)
    with pytest.raises(ValueError, match="8 devices"):
        of_size("paper_homo", 64)


def test_models_are_the_papers() -> None:
    """Millions (2^20) of parameters: 133, 54, 102, and 84 + 36 for each device."""
    for model, millions in {"vgg19": 133, "vit": 54, "bert": 102, "bert_moe": 84 + 36 * 8}.items():
        graph = graph_of(Case("point", model, "paper_hetero", 8))
        parameters = sum(t.bytes // 4 for t in graph.of_kind("param"))
        assert parameters / 2**20 == pytest.approx(millions, rel=0.015), model


def test_rows_become_tables() -> None:
    rows = [{"name": c.name, **asdict(c), "found": found(c.name)} for c in CASES]
    made, theirs = tables(rows), FIGURES["paper_hetero", "vgg19"]["HAP"][SIZES["paper_hetero"].index(32)]
    assert "a plan is above a baseline at 0" in made
    assert f"| VGG19, 32 | {theirs:.3f} |" in made and f"| {found(CASES[0].name)['plan_s']:.3f} |" in made
    worse = [{**r, "found": {**r["found"], "plan_s": 9.0, "best_s": 9.0}} for r in rows]
    assert "a plan is above a baseline at 4" in tables(worse)
    assert "a plan is above a baseline at 0" in tables([r for r in rows if r["nodes"] == VIRTUAL])


def test_what_has_no_room_has_no_ratio() -> None:
    case = Case("experts", "bert_moe", "paper_a100_p100", 4, settings={"experts": 29})
    row = {"name": case.name, **asdict(case), "found": {"plan_s": 0.5, "padded_s": None, "experts": [8, 8, 7, 6]}}
    assert "| 29 | – / 0.500 | – / – | 1.64 / – |" in tables([row])


def test_the_script_fails_where_a_point_loses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, text, case = tmp_path / "rows.jsonl", tmp_path / "page.md", CASES[0]
    text.write_text("\n".join(marks("paper")))

    def status(**instead: Any) -> int:
        row = {"name": case.name, **asdict(case), "found": {**found(case.name), **instead}}
        lines.write_text(json.dumps(row) + "\n")
        return main(["--table", "--lines", str(lines), "--page", str(text)])

    row, figures, at = found(case.name), FIGURES["paper_hetero", "vgg19"], SIZES["paper_hetero"].index(32)
    beside = {name: both[0] for name, both in row["baselines"].items() if both is not None}
    assert status() == 0 and not capsys.readouterr().err and f"| {row['plan_s']:.3f} |" in text.read_text()
    paper = figures["DP-CP"][at] / figures["HAP"][at]
    slower = beside["dp_proportional"] / (0.95 * paper)
    said = f"DP-CP takes {0.95 * paper:.3g} times as long, the paper has {paper:.3g}"
    assert status(plan_s=slower) == 1 and said in capsys.readouterr().err
    name, least = min(beside.items(), key=lambda each: each[1])
    assert status(plan_s=least * 1.02) == 1 and f"above {name}'s {least:.3g}" in capsys.readouterr().err
    assert status(baselines={}) == 1 and "no baseline was priced" in capsys.readouterr().err


def test_what_is_older_is_measured_again() -> None:
    row = {"found": {}, "when": "2026-11-30T02:20"}
    assert fresh(row, "2026-11-30T02:20") and fresh({"found": {}}, "") and not fresh({"failed": "", "when": "9"}, "")
    assert not fresh(row, "2026-11-30T02:21") and not fresh({"found": {}}, "2026-11-30T02:20")


def test_cases_have_names_of_their_own() -> None:
    every = list(cases())
    assert len({c.name for c in every}) == len(every) and {c.kind for c in every} == set(MEASURES)
    assert replace(every[0], number=2).name != every[0].name
