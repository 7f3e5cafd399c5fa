"""`step.save` and `compile(resume = …)`: a script that goes on equals one that was never interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import hapdsl
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.resources import programs_folder
from hapdsl.run.checkpoint import find, steps
from hapdsl.run.checkpoint_state import state_dict
from hapdsl.run.initial import random_inputs

PLANS = programs_folder() / "plans"


def test_a_script_goes_on(tmp_path: Path) -> None:
    plan = hapdsl.load(PLANS / "mlp_zero.hap")
    batches = [random_inputs(plan.program.graph, seed) for seed in range(5)]
    step = plan.compile(dtype=torch.float64)
    for batch in batches[:2]:
        step(batch)
    assert step.save(tmp_path / "c") == tmp_path / "c" / "step-00000002"
    saved = {n: t.clone() for n, t in step.state_dict().items()}
    wanted = [float(step(batch)) for batch in batches[2:]]
    step.save(tmp_path / "c")
    for name in ("mlp_zero", "mlp_megatron"):
        other = hapdsl.load(PLANS / f"{name}.hap").compile(resume=tmp_path / "c" / "step-00000002", dtype=torch.float64)
        assert {n: t.tolist() for n, t in other.state_dict().items()} == {n: t.tolist() for n, t in saved.items()}
        assert [float(other(batch)) for batch in batches[2:]] == pytest.approx(wanted, rel=1e-12)
    assert steps(tmp_path / "c") == [2, 5]
    with pytest.raises(HapError) as stop:
        step.save(tmp_path / "c")
    assert stop.value.diagnostics[0].code == "HAP754" and find(tmp_path / "c").manifest.step == 5
    assert set(state_dict(find(tmp_path / "c"))) == {"w1", "b1", "w2"}
    with pytest.raises(HapError) as stop:
        hapdsl.load(PLANS / "rezero.hap").compile(resume=tmp_path / "c")
    assert stop.value.diagnostics[0].code == "HAP753"
