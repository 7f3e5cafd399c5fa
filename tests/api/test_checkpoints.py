"""`step.save` and `compile(resume = …)`: a script that goes on equals one that was never interrupted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import hapdsl
from hapdsl.check.write import write
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.print import to_text
from hapdsl.lang.resources import programs_folder
from hapdsl.run.checkpoint import find, steps
from hapdsl.run.checkpoint_state import state_dict
from hapdsl.run.initial import random_inputs
from tests.graph.helpers import graph_of
from tests.processes import free_port
from tests.run.damage import forged
from tests.run.programs import HALF, by_hand, randomly
from tests.run.ranks import as_torchrun_does
from tests.texts import PROGRAM, TINY

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


def test_ranks_of_a_script_save_together(tmp_path: Path) -> None:
    """Each its own pieces: together they are what one process holds, which goes on from them."""
    path = tmp_path / "tiny.hap"
    path.write_text(TINY + PROGRAM)
    plan = hapdsl.load(path)
    batches = [random_inputs(plan.program.graph, seed) for seed in range(3)]

    def trains() -> int:
        torch.set_num_threads(1)
        step = hapdsl.load(path).compile(dtype=torch.float64)
        for batch in batches[:2]:
            step(batch)
        written = step.save(tmp_path / "c")
        dist.destroy_process_group()
        return 0 if written == tmp_path / "c" / "step-00000002" else 1

    assert as_torchrun_does(trains, [(0, 0), (0, 1)], free_port(), tmp_path / "said") == [0, 0]
    alone = plan.compile(dtype=torch.float64)
    for batch in batches[:2]:
        alone(batch)
    found = find(tmp_path / "c")
    assert (found.manifest.devices, found.manifest.step, len(found.manifest.files)) == (2, 2, 2)
    for name, tensor in state_dict(found).items():
        torch.testing.assert_close(tensor, alone.state_dict()[name], rtol=1e-12, atol=1e-12)
    resumed = plan.compile(resume=tmp_path / "c", dtype=torch.float64)
    assert float(resumed(batches[2])) == pytest.approx(float(alone(batches[2])), rel=1e-12)


def test_steps_that_changed_nothing_stay_counted(tmp_path: Path) -> None:
    """Adam goes by the number of updates: on a smaller batch, too, and behind a checkpoint that one process has written."""
    plan, small = hapdsl.load(PLANS / "mlp_zero.hap"), "mlp(batch = 48"
    (tmp_path / "small.hap").write_text(
        plan.text.replace("mlp(batch = 64", small).replace("[32, 16, 8, 8]", "[24, 12, 6, 6]")
    )
    first = plan.compile(dtype=torch.float64)
    batches = [random_inputs(plan.program.graph, seed) for seed in range(4)]
    for batch in batches[:3]:
        first(batch)
    forged(first.save(tmp_path / "c"), lambda manifest: manifest["extra"].update(skipped=2))
    left = {n: t[:48] for n, t in batches[3].items()}
    planned = hapdsl.load(tmp_path / "small.hap").compile(resume=tmp_path / "c", dtype=torch.float64)
    resumed = plan.compile(resume=tmp_path / "c", dtype=torch.float64)
    assert float(resumed(left)) == pytest.approx(float(planned(left)), rel=1e-12)
    wanted = planned.state_dict()
    for name, tensor in resumed.state_dict().items():
        torch.testing.assert_close(tensor, wanted[name], rtol=0, atol=1e-12)
    assert find(resumed.save(tmp_path / "d")).manifest.extra == {"skipped": 2.0}


def test_smaller_batches_go_on_with_the_scale_of_f16(tmp_path: Path) -> None:
    """What a step on any batch makes of the scale, and of the count of steps that changed nothing, holds for the next one."""
    text = HALF.replace("CLIP", "")
    (tmp_path / "half.hap").write_text(text + to_text(nodes.File((write(randomly(graph_of(text), 5, 2)),))))

    sizes = 3 * [8, 6, 4]

    def trains() -> int:
        torch.set_num_threads(1)
        plan = hapdsl.load(tmp_path / "half.hap")
        step = plan.compile()
        scale = step.executor.gradients.scale
        scale.value = 2.0**20  # the first steps are too large, whatever their batch
        batch = random_inputs(plan.program.graph, 0)
        losses = [float(step({n: t[:size] for n, t in batch.items()})) for size in sizes]
        dist.destroy_process_group()
        if int(os.environ["RANK"]) == 0:
            print(json.dumps([losses, step.executor.clock.skipped, scale.skipped]))
        return 0

    assert as_torchrun_does(trains, [(0, 0), (0, 1)], free_port(), tmp_path / "said") == [0, 0]
    found = json.loads((tmp_path / "said.0").read_text())
    losses, _, skipped = by_hand(graph_of(text), sizes, None, 2.0**20)
    assert found == [pytest.approx(losses, rel=2e-3), skipped, skipped] and skipped > 3
