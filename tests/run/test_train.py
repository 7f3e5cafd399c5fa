"""Training on local processes: against an independent PyTorch model, and every hand-written program against one process."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.resources import programs_folder
from hapdsl.run.alone import compare, train_alone
from hapdsl.run.data import open_feed
from hapdsl.run.initial import initial, random_inputs
from hapdsl.run.inprocess import InProcess, gather
from hapdsl.run.reference import Reference
from hapdsl.run.result import RunResult
from hapdsl.run.train import train
from hapdsl.workbench import Workbench
from tests.run.programs import PLANS, program_of


def torch_mlp(program, steps, data):
    """The mlp in plain PyTorch with torch.optim.Adam, float64: losses, and parameters at the end."""
    feed = open_feed(data, program.graph)
    held = initial(program.graph, 0, torch.float64)
    w1, b1, w2 = (held[n].clone().requires_grad_(True) for n in ("w1", "b1", "w2"))
    optimizer = torch.optim.Adam([w1, b1, w2], lr=0.001)
    losses = []
    for step in range(1, steps + 1):
        batch = feed.batch(step)
        loss = F.cross_entropy(torch.relu(batch["x"].double() @ w1 + b1) @ w2, batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, {"w1": w1.detach(), "b1": b1.detach(), "w2": w2.detach()}


@pytest.mark.parametrize("name", ["mlp_data_parallel", "mlp_zero", "mlp_megatron", "mlp_sfb", "mesh"])
def test_programs_train_as_pytorch_does(name):
    program = program_of(name)
    result = train(program, 4, 8, "digits", dtype=torch.float64)
    losses, parameters = torch_mlp(program, 8, "digits")
    assert result is not None
    np.testing.assert_allclose(result.loss, losses, rtol=1e-11)
    for key, value in parameters.items():
        torch.testing.assert_close(result.final[key], value, rtol=1e-9, atol=1e-11)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("path", PLANS, ids=lambda p: p.stem)
def test_every_hand_written_program_equals_one_process(path):
    bench = Workbench(path)
    for tree in bench.programs():
        program = bench.proven(tree).program
        seen = []
        result = train(
            program,
            program.layout.devices,
            3,
            "random",
            reference=True,
            dtype=torch.float64,
            progress=lambda step, loss, seen=seen: seen.append((step, loss)),
        )
        assert result is not None and result.loss_diff is not None and result.param_diff is not None
        scale = max(abs(x) for x in result.loss)
        assert result.loss_diff <= 1e-11 * max(1, scale) and result.param_diff <= 1e-9
        assert [s for s, _ in seen] == [1, 2, 3] and len(result.loss) == 3
        assert [x for _, x in seen] == result.loss
        assert result.step_s > 0
        json.dumps(result.as_json(), allow_nan=False)


def test_in_process_steps_carry_parameters_as_ranks_do():
    program = program_of("mlp_zero")
    executor = InProcess(program, torch.float64)
    executor.load(initial(program.graph, 0, torch.float64))
    alone = train_alone(program.graph, 4, "random", dtype=torch.float64)
    batch = random_inputs(program.graph)
    for step in range(4):
        made = executor.step(batch)
        assert abs(float(gather(program, made, "loss", 1e-12)) - alone.loss[step]) < 1e-12
    for new in ("w1.new", "w1.m.new", "w2.v.new", "b1.new"):
        torch.testing.assert_close(
            gather(program, made, new), alone.final[new.removesuffix(".new")], rtol=1e-9, atol=1e-12
        )


def test_values_end_after_their_last_reader():
    """Nothing but the goals is left."""
    program = program_of("mlp_zero")
    executor = InProcess(program)
    executor.load(initial(program.graph))
    made = executor.step(random_inputs(program.graph))
    assert set(made) == set(executor.lowered.goals.values)
    assert {v.tensor for v in made} == {"loss", "z", *program.graph.updates.values()}


def test_accuracy_of_digits():
    """What was trained, evaluated by the graph for evaluation on samples that it hasn't seen."""
    program = program_of("mlp_data_parallel")
    result = train_alone(program.graph, 150, "digits")
    test = open_feed("digits", program.graph).test
    assert test is not None and len(test["x"]) == 359
    settings = {**program.graph.parameters, "batch": 359}
    evaluation = Workbench(programs_folder() / "models" / "mlp.hap").graph("mlp", settings, train=False)
    found = Reference(evaluation).step({**result.final, **test})["z"]
    z = torch.relu(test["x"] @ result.final["w1"] + result.final["b1"]) @ result.final["w2"]
    assert torch.allclose(found, z, atol=1e-5)
    assert (found.argmax(-1) == test["label"]).double().mean() > 0.85


def test_what_is_no_number_on_one_side_only_is_a_difference():
    """Else a run that breaks down would be said to equal one that doesn't."""
    nan = math.nan
    ours = RunResult(3, 1.0, [1.0, nan, 2.0], final={"v": torch.tensor([1.0, 2.0]), "w": torch.tensor([1.0, nan])})
    theirs = RunResult(3, 1.0, [1.0, 1.0, 2.5], final={"v": torch.tensor([1.0, 2.0]), "w": torch.tensor([1.0, 2.0])})
    compare(ours, theirs, ["v", "w"])
    assert ours.loss_diff == ours.param_diff == math.inf
    assert ours.as_json()["loss_diff"] is ours.as_json()["param_diff"] is None
    theirs.loss[1], theirs.final["w"][1] = nan, nan
    compare(ours, theirs, ["v", "w"])
    assert (ours.loss_diff, ours.param_diff) == (0.5, 0)
    compare(ours, theirs, [])
    assert ours.param_diff is None


def test_programs_pickle_for_spawned_ranks():
    program = program_of("layer_megatron")
    again = pickle.loads(pickle.dumps(program))
    assert again.graph.fingerprint == program.graph.fingerprint
    assert [str(v) for i in again.instructions for v in i.outputs] == [
        str(v) for i in program.instructions for v in i.outputs
    ]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"nproc": 3}, "HAP718"),
        ({"steps": 0}, "HAP719"),
        ({"data": "nothing"}, "HAP710"),
        ({"data": "missing.npz"}, "HAP710"),
        ({"data": "no_such_module:batches"}, "HAP710"),
    ],
)
def test_what_cannot_run_is_said_before_processes_start(arguments, code, monkeypatch):
    monkeypatch.setattr("hapdsl.run.train.launch", lambda *a, **k: pytest.fail("processes were started"))
    with pytest.raises(HapError) as stop:
        train(program_of("mlp_zero"), **{"nproc": 4, "steps": 2, **arguments})
    assert [d.code for d in stop.value.diagnostics] == [code]


def test_a_wrong_label_ends_the_run_with_its_code(tmp_path):
    """Only one rank sees it, the one that holds this row; the others lose that one, and say so in vain."""
    program = program_of("mlp_data_parallel")
    graph = program.graph
    x, label = graph.tensors["x"], graph.tensors["label"]
    bad = np.zeros(label.shape, dtype=np.int64)
    bad[0] = 10
    np.savez(tmp_path / "bad.npz", x=np.zeros(x.shape, dtype=np.float32), label=bad)
    with pytest.raises(HapError) as stop:
        train(program, 4, 2, str(tmp_path / "bad.npz"), names=["a", "b", "c", "d"])
    (found,) = stop.value.diagnostics
    assert found.code == "HAP702" and "label 10 is none of the 10 classes" in found.message
