"""What the runner itself costs: `python -m benchmarks.runner [overhead] [ddp] [memory] [--steps N]`, a JSON line each.

overhead   our program of a 12-layer transformer on one process, beside the same instructions written by hand in eager PyTorch
ddp        our even data-parallel program of it on four gloo processes, beside PyTorch DDP with torch.optim.Adam
memory     the most bytes of tensors that a rank of that data-parallel program holds, beside the prediction

The two sides of a comparison take turns step by step in the same processes, so whatever else the machine does falls on both; what
counts is the ratio of medians. `ratio_cpu` is that of CPU seconds, over all processes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.eager import Eager, Module
from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.program import Program
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.resources import programs_folder
from hapdsl.run.allocator import keep_freed_memory
from hapdsl.run.distributed import Rank
from hapdsl.run.initial import initial, random_inputs
from hapdsl.run.launch import launch
from hapdsl.run.live import peak_bytes
from hapdsl.search.baselines import baselines
from hapdsl.workbench import Workbench

LAYERS = 12
SETTINGS = {"batch": 4, "seq": 128, "d": 256, "heads": 4, "ffn": 1024, "vocab": 2000, "layers": LAYERS}
CLUSTER = """import "../models/gpt.hap"
cluster even {{
    device cpu {{ compute = 30 GFLOP/s, memory = 8 GiB, bandwidth = 8 GB/s, launch = 10 us }}
    node host = {count} * cpu over {{ bandwidth = 0.9 GB/s, latency = 1.2 ms }}
}}
"""


def data_parallel(count: int, settings: dict[str, int] = SETTINGS) -> Program:
    """The even data-parallel program on `count` devices, its lines in the order that is best where messages go on beside compute, as they do here."""
    bench = Workbench(programs_folder() / "clusters" / "even.hap", CLUSTER.format(count=count))
    graph = bench.graph("gpt", settings)
    found = baselines(graph, bench.cluster("even"), "overlap")["dp_even"]
    assert found is not None
    return found.program


def parameters(graph: TrainingGraph) -> dict[str, torch.Tensor]:
    """First values under the names of benchmarks.eager."""
    values = initial(graph, 0)
    return {t.name.replace("layer.", "layer").replace(".block", ""): values[t.name] for t in graph.of_kind("param")}


def interleaved(sides: dict[str, Callable[[], Any]], steps: int) -> dict[str, list[tuple[float, float]]]:
    """(wall, CPU) seconds of each side's steps; all ranks begin a step together, the slowest one's time counts. Two steps go ahead."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for step in range(steps + 2):
        for name in sides if step % 2 else reversed(sides):
            dist.barrier()
            wall, cpu = time.perf_counter(), time.process_time()
            sides[name]()
            took = torch.tensor([time.perf_counter() - wall, time.process_time() - cpu], dtype=torch.float64)
            slowest, total = took[:1].clone(), took[1:].clone()
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            dist.all_reduce(total)
            if step >= 2:
                found[name].append((float(slowest), float(total)))
    return found


def overhead(reporter: Any, program: Program, steps: int) -> None:
    keep_freed_memory()
    batch = random_inputs(program.graph)
    rank = Rank(program)
    rank.load(initial(program.graph, 0))
    eager = Eager(parameters(program.graph), LAYERS)
    fed = rank.feed(batch)
    losses: dict[str, float] = {}

    def ours() -> None:
        goals = rank.step(fed)
        assert rank.lowered.goals.loss is not None
        losses["ours"] = float(goals[rank.lowered.goals.loss])

    def by_hand() -> None:
        losses["by hand"] = float(eager.step(batch["tokens"], batch["target"]))

    found = interleaved({"ours": ours, "by hand": by_hand}, steps)
    reporter.send("found", seconds=found, losses=losses, instructions=len(rank.lowered.steps))


def ddp(reporter: Any, program: Program, steps: int) -> None:
    keep_freed_memory()
    batch = random_inputs(program.graph)
    rank = Rank(program)
    rank.load(initial(program.graph, 0))
    fed = rank.feed(batch)
    module = torch.nn.parallel.DistributedDataParallel(Module(parameters(program.graph), LAYERS))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.0003)
    share = SETTINGS["batch"] // dist.get_world_size()
    tokens, target = (batch[n][rank.rank * share : (rank.rank + 1) * share] for n in ("tokens", "target"))
    losses: dict[str, float] = {}

    def ours() -> None:
        goals = rank.step(fed)
        assert rank.lowered.goals.loss is not None
        losses["ours"] = float(goals[rank.lowered.goals.loss])

    def theirs() -> None:
        with torch.enable_grad():
            optimizer.zero_grad()
            loss = module(tokens, target)
            loss.backward()
            optimizer.step()
        losses["ddp"] = float(loss.detach()) / dist.get_world_size()

    found = interleaved({"ours": ours, "ddp": theirs}, steps)
    total = torch.tensor([losses["ours"], losses["ddp"]], dtype=torch.float64)
    dist.all_reduce(total)
    if rank.rank == 0:
        reporter.send(
            "found",
            seconds=found,
            losses=dict(zip(losses, total.tolist(), strict=True)),
            instructions=len(rank.lowered.steps),
        )


def compared(what: Any, processes: int, steps: int) -> dict[str, Any]:
    said: list[dict[str, Any]] = []
    launch(
        what,
        processes,
        (data_parallel(processes), steps),
        lambda rank, header, tensor: said.append(header),
        method="fork",
    )
    (header,) = said
    (ours, theirs) = ([list(c) for c in zip(*header["seconds"][n], strict=True)] for n in header["seconds"])
    medians = [[statistics.median(c) for c in side] for side in (ours, theirs)]
    return {
        "processes": processes, "steps": steps, "instructions": header["instructions"], "losses": header["losses"],
        "step_s": dict(zip(header["seconds"], (m[0] for m in medians), strict=True)),
        "ratio": medians[0][0] / medians[1][0], "ratio_cpu": medians[0][1] / medians[1][1],
    }  # fmt: skip


def held(reporter: Any, program: Program) -> None:
    rank = Rank(program)
    rank.load(initial(program.graph, 0))
    reporter.send("held", bytes=peak_bytes(rank, rank.feed(random_inputs(program.graph)), 1))


def memory() -> dict[str, Any]:
    """Bytes of the first rank, measured and predicted, and the largest and smallest ratio of any rank."""
    program, found = data_parallel(4), {}
    bench = Workbench(programs_folder() / "clusters" / "even.hap", CLUSTER.format(count=4))
    predicted = evaluate(program, bench.cluster("even")).memory.peak.tolist()
    launch(held, 4, (program,), lambda rank, header, tensor: found.update({rank: header["bytes"]}), method="fork")
    ratios = [found[r] / predicted[r] for r in range(4)]
    return {"processes": 4, "held": found[0], "predicted": predicted[0], "ratios": [min(ratios), max(ratios)]}


MEASURES: dict[str, Callable[[int], dict[str, Any]]] = {
    "overhead": lambda steps: compared(overhead, 1, steps),
    "ddp": lambda steps: compared(ddp, 4, steps),
    "memory": lambda steps: memory(),
}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help=f"{', '.join(MEASURES)}; all without any")
    parser.add_argument("--steps", type=int, default=9)
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.what) - set(MEASURES):
        parser.error(f"no {', '.join(sorted(unknown))}; there are {', '.join(MEASURES)}")
    torch.set_num_threads(1)
    for what in chosen.what or MEASURES:
        print(json.dumps({"what": what, **MEASURES[what](chosen.steps)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
