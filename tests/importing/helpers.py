"""Round trips: a module in eager PyTorch beside its text, planned and run from the same weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapdsl.graph.program import Program
from hapdsl.graph.training import TrainingGraph
from hapdsl.importing import weights
from hapdsl.importing.convert import Imported, import_module
from hapdsl.lang.diagnostics import Diagnostic, HapError
from hapdsl.run.initial import initial
from hapdsl.run.inprocess import InProcess
from hapdsl.run.pieces import assemble
from hapdsl.run.reference import Reference, advance
from hapdsl.run.threads import one_thread
from hapdsl.search.baselines import data_parallel
from hapdsl.search.planner import plan
from hapdsl.workbench import Workbench

CLUSTER = """
cluster three {
    device fast { compute = 8 GFLOP/s, memory = 2 GiB, bandwidth = 8 GB/s }
    device slow { compute = 3 GFLOP/s, memory = 2 GiB, bandwidth = 4 GB/s }
    node host = 1 * fast, 2 * slow over { bandwidth = 90 GB/s, latency = 1 us }
}
"""
SEARCH_S = 0.3  # enough for a first program whose classes are cut: its numbers are compared, not its cost
Loss = Callable[[nn.Module, Mapping[str, Tensor]], Tensor]


def own_loss(module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """The loss of a module that returns one."""
    found = module(**batch)
    return found["loss"] if isinstance(found, dict) else found.loss


@dataclass
class Trip:
    imported: Imported
    graph: TrainingGraph
    loss_diff: float
    weight_diff: float
    compared: int


def bench_of(imported: Imported) -> Workbench:
    return Workbench("imported.hap", imported.text + CLUSTER)


def planned(bench: Workbench, settings: Mapping[str, Any] | None = None, by_batch: bool = False) -> Program:
    """A program with cut classes, whatever one device could do alone; with `by_batch` the search cuts the batch and nothing else, and one
    of three devices has no part of it."""
    graph = bench.graph(settings=settings)
    wishes: dict[str, Any] = {"time_limit": SEARCH_S}
    if by_batch:
        units = graph.classes["batch"].units
        wishes = {"restriction": data_parallel(graph, False), "fixed": {"batch": np.array([units - 1, 0, 1])}}
    return plan(graph, bench.cluster(), gap=1.0, baselines=False, **wishes).program


def eager(module: nn.Module, batch: Mapping[str, Tensor], loss: Loss, lr: float, steps: int) -> list[float]:
    """Losses of some steps of plain SGD; the module is trained."""
    optimizer = torch.optim.SGD(module.parameters(), lr=lr)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(module, batch)
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    return losses


def round_trip(
    module: nn.Module,
    example: Any,
    batch: Mapping[str, Tensor],
    eager_loss: Loss = own_loss,
    dtype: torch.dtype = torch.float64,
    settings: Mapping[str, Any] | None = None,
    distributed: bool = True,
    by_batch: bool = False,
    lr: float = 0.05,
    steps: int = 2,
    **options: Any,
) -> Trip:
    """Import, check, plan, run in one process from the module's own weights; and the module itself beside it."""
    imported = import_module(module, example, optimizer=f"sgd(lr = {lr})", **options)
    bench = bench_of(imported)
    graph = bench.graph(settings=settings)
    own = copy.deepcopy(module).to(dtype)
    given = {n: t.to(dtype) if t.is_floating_point() else t for n, t in batch.items()}
    start = initial(graph, 0, dtype, given=weights.from_module(graph, own, imported.tables))
    wanted = eager(own, given, eager_loss, lr, steps)
    assert graph.loss is not None
    with one_thread():
        if distributed:
            program = planned(bench, settings, by_batch)
            executor = InProcess(program, dtype)
            executor.load(start)
            losses = []
            for _ in range(steps):
                made = executor.step(given)
                value = [v for v in made if v.tensor == graph.loss][-1]
                losses.append(float(assemble(program, value, made[value])))
            after = {v.tensor: assemble(program, v, local) for v, local in executor.held.items()}
        else:
            reference, after, losses = Reference(graph, dtype), start, []
            for k in range(steps):
                made_here = reference.step({**after, **given}, k + 1)
                losses.append(float(made_here[graph.loss]))
                after = advance(graph, after, made_here)
    state = dict(own.named_parameters())
    running = {n: t for n, t in own.named_buffers() if n.endswith(("running_mean", "running_var")) and own.training}
    assert running.keys() <= {weights.plain(n) for n in after}
    state |= running
    compared = [n for n in after if weights.plain(n) in state]
    unused = set(imported.unused)  # frozen ones, where something reads them, are compared, too
    assert {weights.plain(n) for n in compared} - unused == state.keys() - unused
    differences = [
        (after[n].reshape(state[weights.plain(n)].shape) - state[weights.plain(n)]).abs().max().item() for n in compared
    ]
    loss_diff = max(abs(a - b) for a, b in zip(losses, wanted, strict=True))
    return Trip(imported, graph, loss_diff, max(differences), len(compared))


def refused(action) -> Diagnostic:
    with pytest.raises(HapError) as stop:
        action()
    (found,) = stop.value.diagnostics
    assert len(found.message.split()) > 2
    return found


def classify(module: nn.Module, batch) -> Tensor:
    return F.cross_entropy(module(batch["x"]), batch["label"])
