"""The reference text of the language is checked, planned, completed and run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.texts import REFERENCE


def test_its_model_is_planned(hapdsl: Run, tmp_path: Path) -> None:
    out = tmp_path / "plan.hap"
    found = hapdsl("plan", REFERENCE, "--model", "mlp", "-o", out, "--json")
    assert found.status == 0
    assert found.object["bound_s"] <= found.object["cost_s"] <= min(found.object["baselines"].values()) * (1 + 1e-9)
    assert hapdsl("check", "--numeric", out).status == 0


@pytest.mark.parametrize("sketch", ["megatron", "mine"])
def test_its_sketches_are_completed(hapdsl: Run, tmp_path: Path, sketch: str) -> None:
    out = tmp_path / "whole.hap"
    assert hapdsl("plan", REFERENCE, "--program", sketch, "-o", out, "--json").status == 0
    found = hapdsl("check", "--numeric", out)
    assert found.status == 0
    assert "equal to one device" in found.out


def test_its_program_runs_on_six_uneven_processes(hapdsl: Run) -> None:
    found = hapdsl("run", REFERENCE, "--program", "mixed", "--nproc", "6", "--steps", "3", "--reference", "--json")
    assert found.status == 0
    assert found.object["loss_diff"] < 1e-5
