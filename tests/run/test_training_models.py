"""Schedules, clipping, groups, accumulation and frozen parts on several processes, beside one process with the whole batch."""

from __future__ import annotations

import pytest
import torch

from hapdsl.run.train import train
from tests.check.random_programs import random_program
from tests.graph.helpers import example
from tests.graph.training_models import TRAINING


@pytest.mark.parametrize("name", TRAINING)
def test_processes_equal_one(name: str) -> None:
    program = random_program(example(name, **TRAINING[name][1]), (("devices", 3),), 7)
    result = train(program, 3, 3, "random", dtype=torch.float64, reference=True)
    assert result is not None and result.loss_diff is not None and result.param_diff is not None
    assert result.loss_diff <= 1e-12 and result.param_diff <= 1e-10
    assert result.loss[2] < result.loss[0]
    if name == "accumulate":
        assert result.final["step"].item() == 3 and result.metrics["grad.norm"] > 0
