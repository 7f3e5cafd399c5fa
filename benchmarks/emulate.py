"""Our plan beside PyTorch's own ways on an emulated heterogeneous cluster: `python -m benchmarks.emulate` (as root; about twenty minutes).

Four processes in network namespaces with real limits on bandwidth and on processor time (benchmarks/emulated.py) are measured by `hapdsl
profile`; the cluster that comes of it is what our plan is made for. Then, in the same processes and turn by turn, our plan, DDP with even parts and with
parts proportional to speed, FSDP2 and DTensor tensor parallelism train the same model from the same weights on the same data (benchmarks/rivals.py).

    --quick     smaller models, a quick profile, few rounds: does everything work?
    --cluster FILE  as an earlier run of this or of benchmarks.accuracy measured it (results/accuracy.hap)
    --models mlp,gpt --rounds 7 --steps 3 --quotas .8,.4,.2,.2 --rate 1e9 --latency 0
    --table     the tables once more, from what was measured

The tables go to docs/performance.md (of a quick run to benchmarks/results/emulate_quick.md), the cluster and everything else to
benchmarks/results/emulated.hap and emulate.jsonl: each model's as soon as it is done, in the place of what was known of it.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from benchmarks import rows
from benchmarks.campaign import command_line
from benchmarks.emulated import Emulated, peak, resident, sent_bytes
from benchmarks.pages import PERFORMANCE, fill, markdown
from benchmarks.rivals import RIVALS, Stepper, ours, read, rival, total
from benchmarks.rows import RESULTS, Row
from hapdsl.check.write import write
from hapdsl.cluster import Cluster, build
from hapdsl.cluster.describe import describe
from hapdsl.cluster.seen import Seen
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.print import to_text
from hapdsl.lang.resources import programs_folder
from hapdsl.run.backends import GLOO
from hapdsl.run.measuring import Extent
from hapdsl.run.profile import Profile
from hapdsl.run.profile import work as profile_work
from hapdsl.search.planner import plan
from hapdsl.standalone import standalone
from hapdsl.workbench import Workbench

LINES = RESULTS / "emulate.jsonl"
QUOTAS = (0.8, 0.4, 0.2, 0.2)  # of one processor: speeds 4:2:1:1 on a machine with two
RATE = 1e9
# Named before anything was measured.
MODELS: dict[str, dict[str, Any]] = {
    "mlp": {"batch": 512, "d": 784, "hidden": 1024},
    "vgg19": {"batch": 32, "c1": 32, "c2": 64, "c3": 128, "c4": 128, "c5": 128, "wide": 512, "p": 0.0},
    "gpt": {"batch": 16, "seq": 64, "d": 256, "heads": 8, "ffn": 1024, "vocab": 2000, "layers": 2},
    "bert_moe": {"batch": 16, "seq": 64, "d": 128, "heads": 4, "ffn": 512, "vocab": 1000, "layers": 2, "experts": 8, "p": 0.0},
}  # fmt: skip
SMALL: dict[str, dict[str, Any]] = {
    "mlp": {"batch": 64, "d": 128, "hidden": 256},
    "vgg19": {"batch": 16, "c1": 8, "c2": 8, "c3": 16, "c4": 16, "c5": 16, "wide": 64, "p": 0.0},
    "gpt": {"batch": 8, "seq": 32, "d": 64, "heads": 4, "ffn": 128, "vocab": 256, "layers": 1},
    "bert_moe": {"batch": 8, "seq": 16, "d": 32, "heads": 4, "ffn": 64, "vocab": 128, "layers": 2, "experts": 4, "p": 0.0},
}  # fmt: skip
ROUND_S = 1.5  # seconds that a way's turn lasts at least: a quota's periods then fall on all alike
AGREE = 3  # steps whose losses are compared
WAYS = ("ours", *RIVALS)


# -- on the ranks -----------------------------------------------------------------------

_steppers: dict[str, Stepper] = {}


def profiled(rank: int, extent: Extent) -> Seen | None:
    found = Profile()
    with torch.no_grad():
        profile_work(found, extent, GLOO)
    return found.seen if rank == 0 else None


def prepared(
    rank: int, way: str, model: str, settings: dict[str, Any], text: str, speeds: Sequence[float], seed: int
) -> dict[str, Any]:
    """Make a way's stepper, and take its first steps without limits: losses, bytes sent in a step, and the most memory it took."""
    made: Callable[[], Stepper]
    if way not in RIVALS:
        made = partial(ours, read(text), seed)
    else:
        made = partial(rival, way, model, graph_of(model, settings), seed, speeds)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = resident()
    with peak() as most:
        step = made()
        losses = [total(step()) for _ in range(AGREE)]
        dist.barrier()
        sent = sent_bytes()
        step()
        sent = sent_bytes() - sent
    _steppers[way] = step
    return {"losses": losses, "sent": sent, "memory": most[0] - before}


def timed(rank: int, way: str, steps: int) -> list[float]:
    """Seconds of each step, the slowest rank's; the first one isn't counted."""
    found = []
    for _ in range(steps + 1):
        dist.barrier()
        start = time.perf_counter()
        _steppers[way]()
        own = torch.tensor([time.perf_counter() - start])
        dist.all_reduce(own, op=dist.ReduceOp.MAX)
        found.append(float(own))
    return found[1:]


def warmed(rank: int) -> None:
    """Import and allocate what the ways share, so that it is on nobody's account."""
    for way in RIVALS:
        _steppers[way] = rival(way, "mlp", graph_of("mlp", SMALL["mlp"]), 0, [1.0] * dist.get_world_size())
        total(_steppers[way]())


def forgotten(rank: int) -> None:
    _steppers.clear()
    gc.collect()


def bench_of(model: str) -> Workbench:
    return Workbench(programs_folder() / "models" / f"{model}.hap")


def graph_of(model: str, settings: dict[str, Any]) -> TrainingGraph:
    return bench_of(model).graph(model, settings)


# -- here -------------------------------------------------------------------------------


def planned(model: str, settings: dict[str, Any], block: nodes.Cluster, cluster: Cluster) -> tuple[str, float, float]:
    """The text of our plan, and its predicted seconds, synchronous and overlapped."""
    bench = bench_of(model)
    graph = bench.graph(model, settings)
    found = plan(graph, cluster, objective="overlap", baselines=True, time_limit=120)
    found.program.model_args = settings
    text = standalone(bench, write(found.program), block, "made by benchmarks.emulate")
    return text, found.cost.sync_s, found.cost.overlap_s


def speeds_of(cluster: Cluster) -> list[float]:
    """How fast each device is, over all operators that were measured, each in the middle of its table."""
    first = cluster.devices[0].curves
    middle = {name: own.curve.points[len(own.curve.points) // 2][0] for name, own in first.items()}
    times = np.array([[d.curves[name].curve.seconds(size) for d in cluster.devices] for name, size in middle.items()])
    return [float(x) for x in 1 / np.median(times / times.min(axis=1, keepdims=True), axis=0)]


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """95 % of the mean of ratios, on logarithms (Student's t)."""
    from scipy.stats import t

    logs = np.log(ratios)
    half = float(t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))) if len(logs) > 1 else float("inf")
    return float(np.exp(logs.mean() - half)), float(np.exp(logs.mean() + half))


def in_turns(lab: Emulated, model: str, ways: Sequence[str], rounds: int, steps: int) -> dict[str, list[float]]:
    """Seconds of a step by every way, one median per round; in a round each has its turn, so that what the machine does in a while falls on all."""
    found: dict[str, list[float]] = {way: [] for way in ways}
    often = {way: max(steps, math.ceil(ROUND_S / statistics.median(lab.run(timed, way, steps)[0]))) for way in ways}
    for number in range(rounds):
        for way in ways if number % 2 == 0 else ways[::-1]:
            found[way].append(statistics.median(lab.run(timed, way, often[way])[0]))
        print(f"{model}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return found


def compare(
    lab: Emulated, model: str, settings: dict[str, Any], block: nodes.Cluster, rounds: int, steps: int
) -> dict[str, Any]:
    """One model by all ways, turn by turn."""
    cluster = build(block)
    text, sync_s, overlap_s = planned(model, settings, block, cluster)
    speeds = speeds_of(cluster)
    found: dict[str, Any] = {
        "model": model,
        "settings": settings,
        "predicted_sync_s": sync_s,
        "predicted_overlap_s": overlap_s,
        "ways": {},
    }
    for way in WAYS:
        try:
            told = lab.run(prepared, way, model, settings, text, speeds, 0, limited=False)
        except RuntimeError as problem:
            raise SystemExit(f"{model} by {way}: {problem}") from None
        found["ways"][way] = {
            "losses": told[0]["losses"],
            "sent_bytes": sum(t["sent"] for t in told),
            "memory_bytes": [t["memory"] for t in told],
        }
    for way, seconds in in_turns(lab, model, WAYS, rounds, steps).items():
        found["ways"][way]["seconds"] = seconds
    lab.run(forgotten, limited=False)
    means = {way: statistics.median(found["ways"][way]["seconds"]) for way in WAYS}
    best = min(RIVALS, key=lambda way: means[way])
    ratios = [b / o for o, b in zip(found["ways"]["ours"]["seconds"], found["ways"][best]["seconds"], strict=True)]
    reference = found["ways"]["ours"]["losses"]
    for way in WAYS:
        losses = found["ways"][way]["losses"]
        found["ways"][way]["loss_diff"] = max(abs(a - b) / abs(b) for a, b in zip(losses, reference, strict=True))
    found |= {"best": best, "speedup": statistics.median(ratios), "interval": interval(ratios)}
    return found


def table(found: Row) -> str:
    """A model's results as Markdown."""
    ours_s = statistics.median(found["ways"]["ours"]["seconds"])
    low, high = found["interval"]
    shown = ", ".join(f"{k} = {v}" for k, v in found["settings"].items())
    lines = []
    for way, told in found["ways"].items():
        seconds = statistics.median(told["seconds"])
        memory = ", ".join(f"{m / 1e6:.0f}" for m in told["memory_bytes"])
        sent = f"{told['sent_bytes'] / 1e6:.2f}"
        lines.append((way, f"{seconds * 1e3:.1f}", f"{seconds / ours_s:.2f}", sent, memory, f"{told['loss_diff']:.1e}"))
    head = ("", "ms a step", "to ours", "MB sent", "MB at most, by rank", "loss differs by")
    predicted = f"predicted {found['predicted_sync_s'] * 1e3:.1f} ms synchronous, {found['predicted_overlap_s'] * 1e3:.1f} ms overlapped"
    return (
        f"### {found['model']} ({shown})\n\n{markdown(head, lines)}\n"
        f"The best of the others, {found['best']}, takes {found['speedup']:.2f} times as long (95 %: {low:.2f} to {high:.2f}). Ours: {predicted}.\n"
    )


def page(found: Sequence[Row]) -> str:
    """All models' results, each run's under how they were made."""
    runs: dict[str, list[str]] = {}
    for row in found:
        how = f"`{row['command']}`: quotas {row['quotas']}, {row['rate'] / 1e6:.0f} Mbit/s, {row['rounds']} rounds, on {row['machine']}"
        runs.setdefault(how, []).append(table(row))
    return "\n".join("\n".join([f"{how}\n", *tables]) for how, tables in runs.items())


def made() -> str:
    """The tables, from what was measured."""
    return page(rows.read(LINES))


def quotas_of(arguments: argparse.Namespace) -> list[float]:
    return [float(x) for x in arguments.quotas.split(",")]


def opened(arguments: argparse.Namespace) -> Emulated:
    """The lab that the options describe."""
    quotas = quotas_of(arguments)
    return Emulated(quotas, [arguments.rate] * len(quotas), arguments.latency)


def extent(arguments: argparse.Namespace, chosen: dict[str, dict[str, Any]]) -> Extent:
    """What is measured of the cluster: every collective, and the operators that the models have."""
    operators = {n.op for m in arguments.models for n in graph_of(m, chosen[m]).nodes}
    return Extent(2**20 if arguments.quick else 32 * 2**20, arguments.quick, tuple(sorted(operators)))


def measured(lab: Emulated, extent: Extent, known: str | None, name: str = "emulated") -> nodes.Cluster:
    """The emulated cluster as `hapdsl profile` sees it, written to results/; or as an earlier run saw it, in the file `known`."""
    if known is not None:
        (block,) = Workbench(known).bundle.of_main(nodes.Cluster)
        assert isinstance(block, nodes.Cluster)
        return block
    print("measuring the cluster", file=sys.stderr, flush=True)
    seen = next(s for s in lab.run(profiled, extent) if s is not None)
    limits = ", ".join(f"{q:g}" for q in lab.quotas)
    note = f"emulated: quotas {limits} of a processor, {lab.rates[0] / 1e6:.0f} Mbit/s, latency {lab.latency_s * 1e3:g} ms more; {len(seen.samples)} points"
    block = describe(seen, name, note)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.hap").write_text(to_text(nodes.File((block,))), encoding="utf-8")
    return block


def options(module: str, words: str | None) -> argparse.ArgumentParser:
    found = command_line(module, words)
    found.add_argument("--quick", action="store_true")
    found.add_argument("--models", metavar="NAMES", help="parted by commas; all where left out")
    found.add_argument("--cluster", metavar="FILE", help="as an earlier run with these limits measured it")
    found.add_argument("--steps", type=int, default=3)
    found.add_argument("--quotas", default=",".join(map(str, QUOTAS)))
    found.add_argument("--rate", type=float, default=RATE, help="bit/s of every link")
    found.add_argument("--latency", type=float, default=0.0, help="seconds that a frame takes more")
    return found


def parsed(parser: argparse.ArgumentParser, models: Iterable[str]) -> argparse.Namespace:
    """The options, `models` as a list. Ends the process where a name is none of `models`, which are all that there are, or quotas are no numbers."""
    arguments = parser.parse_args()
    arguments.models = list(models) if arguments.models is None else arguments.models.split(",")
    if unknown := [m for m in arguments.models if m not in models]:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(models)}")
    try:
        quotas_of(arguments)
    except ValueError:
        parser.error(f"--quotas {arguments.quotas}: a part of a processor for each rank, such as .8,.4")
    return arguments


def command(module: str) -> str:
    """How this process was started."""
    return " ".join(["python -m", f"benchmarks.{module}", *sys.argv[1:]])


def kept(module: str, quick: bool) -> Path:
    """Where rows are kept; of a quick run beside, in a file that git doesn't know."""
    return RESULTS / f"{module}{'_quick' if quick else ''}.jsonl"


def finish(module: str, quick: bool, text: str, found: Sequence[Row]) -> None:
    """Rows into their file and tables into their page, of a quick run into a file beside."""
    rows.write(kept(module, quick), found)
    if quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{module}_quick.md").write_text(text, encoding="utf-8")
    else:
        fill(PERFORMANCE, module, text)


def main() -> None:
    parser = options("emulate", __doc__)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parsed(parser, MODELS)
    if arguments.table:
        fill(PERFORMANCE, "emulate", made())
        return
    chosen = SMALL if arguments.quick else MODELS
    how = {n: getattr(arguments, n) for n in ("quotas", "rate", "rounds")}
    about = {"command": command("emulate"), **how, "machine": rows.machine()}
    with opened(arguments) as lab:
        name = "emulated_quick" if arguments.quick else "emulated"
        block = measured(lab, extent(arguments, chosen), arguments.cluster, name)
        lab.run(warmed, limited=False)
        lab.run(forgotten, limited=False)
        for model in arguments.models:
            found = compare(lab, model, chosen[model], block, arguments.rounds, arguments.steps)
            row = {**about, **found}
            print(table(row), flush=True)
            every = rows.in_place(rows.read(kept("emulate", arguments.quick)), model, [row])
            finish("emulate", arguments.quick, page(every), every)


if __name__ == "__main__":
    main()
