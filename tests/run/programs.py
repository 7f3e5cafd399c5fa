"""Programs to run: those that people wrote, a model in f16, and small ones of a few lines."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from hapdsl.graph.program import Program
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.resources import programs_folder
from hapdsl.run.initial import initial, random_inputs
from hapdsl.workbench import Workbench
from tests.check.random_programs import random_program
from tests.graph.helpers import graph_of

PLANS = sorted((programs_folder() / "plans").glob("*.hap"))


def program_of(name):
    bench = Workbench(programs_folder() / "plans" / f"{name}.hap")
    return bench.proven(bench.programs()[0]).program


def on_two(program, shares):
    """The program's text for two devices with these shares."""
    folder = programs_folder() / "plans"
    text = (folder / f"{program.name}.hap").read_text()
    text = text.replace("[32, 16, 8, 8]", str(shares["batch"])).replace("[64, 32, 16, 16]", str(shares["hidden"]))
    text = text.replace(" on digits", " on pair")
    text += "\ncluster pair { device gpu { compute = 1 TFLOP/s, memory = 1 GB, bandwidth = 1 TB/s }\n node n = 2 * gpu over { bandwidth = 1 GB/s, latency = 1 us } }\n"
    bench = Workbench(folder / "two.hap", text)
    return bench.proven(bench.program()).program


HALF = """
model net(batch = 8, d = 16, hidden = 12, scale = 1.0) {
    input x     : f32[batch, d]
    input label : i64[batch]
    param w1    : f16[d, hidden] master f32 init normal(std = 0.3)
    param w2    : f16[hidden, 5] master f32 init normal(std = 0.3)
    h = gelu(matmul(cast(x, to = f16), w1))
    z = scale(cast(matmul(h, w2), to = f32), by = scale)
    loss = cross_entropy(z, label)
    train loss with adamw(lr = 0.01, weight_decay = 0.1) CLIP
}
"""


def by_hand(
    graph: TrainingGraph, sizes: Sequence[int], clip: float | None, seed_scale: float
) -> tuple[list[float], list[float], int]:
    """HALF in plain PyTorch with autograd, master copies and torch's own scaler, on the first so many samples of one batch in each step: losses, norms, steps that were skipped."""
    start, batch = initial(graph, 0), random_inputs(graph, 0)
    masters = [start[n].float().clone().requires_grad_(True) for n in ("w1", "w2")]
    optimizer = torch.optim.AdamW(masters, lr=0.01, weight_decay=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=seed_scale)
    losses, norms, skipped = [], [], 0
    for size in sizes:
        w1, w2 = (m.half() for m in masters)
        z = (F.gelu(batch["x"][:size].half() @ w1) @ w2).float() * float(graph.parameters["scale"])
        loss = F.cross_entropy(z, batch["label"][:size])
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norms.append(float(torch.nn.utils.clip_grad_norm_(masters, clip if clip is not None else float("inf"))))
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
        losses.append(float(loss.detach()))
    return losses, norms, skipped


def randomly(graph: TrainingGraph, seed: int, devices: int = 4) -> Program:
    """A random program for the graph on uneven shares."""
    return random_program(graph, (("devices", devices),), seed)


def model(body, head="batch = 6"):
    """The graph of a model of these lines."""
    return graph_of(f"model m({head}) {{\n{body}\n}}")


# Trains at a rate that comes with each batch.
FED = "input x : f32[batch, 2]\ninput rate : f32[]\nparam w : f32[2, 3]\nloss = sum(matmul(x, w), [0, 1])\ntrain loss with sgd(lr = rate)"
