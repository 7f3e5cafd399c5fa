"""`step.save` and `compile(resume = …)`: a script that goes on equals one that was never interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import hapdsl
from hapdsl.lang.diagnostics import HapError
from hapdsl.run.checkpoint import find, steps
from hapdsl.run.checkpoint_state import state_dict
from tests.api.test_api import CLUSTER, loader
from tests.importing import modules


def test_a_script_goes_on(tmp_path: Path) -> None:
    (tmp_path / "three.hap").write_text(CLUSTER)
    cluster = str(tmp_path / "three.hap")
    module = modules.mlp()
    batches = list(loader())
    plan = hapdsl.plan(
        module, dict(zip(("x", "label"), batches[0], strict=True)), cluster, loss="cross_entropy", gap=1.0
    )
    step = plan.compile(module, dtype=torch.float64)
    for batch in batches[:2]:
        step(batch)
    assert step.save(tmp_path / "c") == tmp_path / "c" / "step-00000002"
    saved = {n: t.clone() for n, t in step.state_dict().items()}
    wanted = [float(step(batch)) for batch in batches[2:]]
    step.save(tmp_path / "c")
    again = plan.compile(resume=tmp_path / "c" / "step-00000002", dtype=torch.float64)
    assert {n: t.tolist() for n, t in again.state_dict().items()} == {n: t.tolist() for n, t in saved.items()}
    assert [float(again(batch)) for batch in batches[2:]] == wanted
    assert steps(tmp_path / "c") == [2, 5]
    with pytest.raises(HapError) as stop:
        step.save(tmp_path / "c")
    assert stop.value.diagnostics[0].code == "HAP754" and find(tmp_path / "c").manifest.step == 5
    assert state_dict(find(tmp_path / "c")).keys() == module.state_dict().keys()
    x, label = batches[0]
    other = hapdsl.plan(torch.nn.Linear(8, 4), {"input": x, "label": label}, cluster, loss="cross_entropy", gap=1.0)
    with pytest.raises(HapError) as stop:
        other.compile(resume=tmp_path / "c")
    assert stop.value.diagnostics[0].code == "HAP753"
