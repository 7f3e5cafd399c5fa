"""The digits transformer in plain PyTorch against the training graph's own gradients and updates."""

from __future__ import annotations

import torch

from hapdsl.demo.torch_vit import TorchVit
from hapdsl.lang.resources import programs_folder
from hapdsl.run.data import open_feed
from hapdsl.run.initial import initial
from hapdsl.run.reference import Reference, advance
from hapdsl.workbench import Workbench


def test_three_steps_of_adam_agree_with_autograd() -> None:
    graph = Workbench(programs_folder() / "models" / "vit_digits.hap").graph("vit_digits", {"batch": 24, "d": 32})
    held = initial(graph, 0, torch.float64)
    feed = open_feed("digits", graph)
    batches = [{n: t.double() if t.is_floating_point() else t for n, t in feed.batch(k).items()} for k in (1, 2, 3)]
    params = [t.name for t in graph.of_kind("param")]
    model = TorchVit({n: held[n] for n in params}, layers=2, patch=2, lr=0.002)
    theirs = model.train(batches)
    executor = Reference(graph, torch.float64)
    for step, batch in enumerate(batches, start=1):
        made = executor.step({**held, **batch}, step)
        torch.testing.assert_close(float(made[graph.loss or ""]), theirs[step - 1], rtol=1e-11, atol=0)
        held = advance(graph, held, made)
    for name in params:
        torch.testing.assert_close(held[name], model.parameters[name].detach(), rtol=1e-9, atol=1e-11)
