"""One step of training, by our runner and by PyTorch's own ways of distributing it: the same model, weights, data and optimizer.

    ours                a proven program of hapdsl on the emulated cluster
    ddp_even            DistributedDataParallel, equal parts of the batch
    ddp_proportional    the same with parts in proportion to the ranks' speeds; each rank's loss counts by its rows
    fsdp2               fully_shard (FSDP2), equal parts of the batch
    tensor_parallel     DTensor's parallelize_module on the model's matrices; every rank has the whole batch

A stepper trains on the same batch in every step and returns this rank's part of the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.modules import MODELS
from hapdsl.check.layout import largest_remainder
from hapdsl.graph.program import Program
from hapdsl.graph.training import TrainingGraph
from hapdsl.run.distributed import Rank
from hapdsl.run.initial import Initial, random_inputs
from hapdsl.run.pieces import counts
from hapdsl.workbench import Workbench

RIVALS = ("ddp_even", "ddp_proportional", "fsdp2", "tensor_parallel")
Stepper = Callable[[], Tensor]  # this rank's part of the loss


def total(part: Tensor) -> float:
    whole = part.detach().clone().reshape(1).float()
    dist.all_reduce(whole)
    return float(whole)


def read(text: str) -> Program:
    """A program from a text with all that it needs."""
    bench = Workbench("plan.hap", text)
    return bench.proven(bench.program()).program


def ours(program: Program, seed: int) -> Stepper:
    """A stepper of our runner."""
    rank = Rank(program, seed=seed)
    rank.load(Initial(program.graph, seed))
    fed = rank.feed(random_inputs(program.graph, seed))
    loss = rank.lowered.goals.loss
    assert loss is not None
    own = counts(program, loss, rank.rank)
    last: list[Tensor] = []

    def step() -> Tensor:
        with torch.no_grad():
            made = rank.step(fed)[loss]
        last[:] = [made if own else torch.zeros_like(made)]
        return last[0]

    return step


def rival(name: str, model: str, graph: TrainingGraph, seed: int, speeds: Sequence[float]) -> Stepper:
    """A stepper of one of RIVALS."""
    settings: Any = graph.parameters
    weights = Initial(graph, seed)
    values = {t.name: weights[t.name] for t in graph.of_kind("param")}
    module: Any = MODELS[model](values, settings)
    whole = random_inputs(graph, seed)
    batch = next(iter(whole.values())).shape[0]
    size, me = dist.get_world_size(), dist.get_rank()
    cuts = (
        [batch] * size
        if name == "tensor_parallel"
        else parts(batch, list(speeds) if name == "ddp_proportional" else [1.0] * size)
    )
    start = 0 if name == "tensor_parallel" else sum(cuts[:me])
    own = {n: t[start : start + cuts[me]].clone() for n, t in whole.items()}
    labels = whole[next(n for n in ("label", "target") if n in whole)]
    rows = labels.numel()
    factor = 1.0 / rows
    match name:
        case "ddp_even" | "ddp_proportional":
            module = torch.nn.parallel.DistributedDataParallel(module)
            factor *= size  # DDP takes the mean of gradients over ranks
        case "fsdp2":
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            mesh = init_device_mesh("cpu", (size,))
            for block in module.blocks():
                fully_shard(block, mesh=mesh)
            fully_shard(module, mesh=mesh)
            factor *= size
        case "tensor_parallel":
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.tensor.parallel import parallelize_module

            module = parallelize_module(module, init_device_mesh("cpu", (size,)), module.tensor_parallel())
    rate = graph_rate(graph)
    optimizer = torch.optim.Adam(module.parameters(), lr=rate)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = module(**own) * factor
        loss.backward()
        optimizer.step()
        part = loss.detach() / (size if name.startswith(("ddp", "fsdp")) else 1)
        return part if name != "tensor_parallel" or me == 0 else torch.zeros_like(part)

    return step


def graph_rate(graph: TrainingGraph) -> float:
    """The learning rate that the model declares for Adam."""
    node = next(n for n in graph.nodes if n.op == "adam")
    return float(node.instance.attributes["lr"])


def parts(batch: int, speeds: Sequence[float]) -> list[int]:
    """Whole rows in proportion to speeds, the largest remainders first."""
    return [int(n) for n in largest_remainder(speeds, batch)]
