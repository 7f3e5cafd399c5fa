"""The example models that no other page of tests plans: planned for three devices, proven, and run with a device that has no part of anything."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from hapdsl.run.validate import random_layout
from hapdsl.search.planner import plan
from tests.graph.helpers import MODELS, example
from tests.graph.models import EXAMPLES
from tests.graph.training_models import TRAINING
from tests.programs.helpers import compare, reread, three
from tests.programs.sizes import CASES, LANGUAGE

ELSEWHERE = {*LANGUAGE, *(case.model for case in CASES.values()), "accumulate"}


@pytest.mark.parametrize("name", sorted({p.stem for p in MODELS.glob("*.hap")} - ELSEWHERE))
def test_planned_proven_and_equal_to_one_device(name: str) -> None:
    """Loss, every gradient and every update, under the plan's shares or others."""
    graph = example(name, **(TRAINING[name][1] if name in TRAINING else EXAMPLES[name][1]))
    found = reread(plan(graph, three("1 GB/s"), gap=1.0, baselines=False, time_limit=0.3).program)
    layout = random_layout(graph, found.layout.mesh, random.Random(1))
    assert all(0 in own[(0,)] and sum(n > 0 for n in own[(0,)]) > 0 for own in layout.shares.values())
    for program in (found, reread(replace(found, layout=layout))):
        # What is zero at first moves in the second step.
        compare(program, graph, torch.float64, 1e-9, count=2 if name == "lora" else 1)
