"""How near predictions come: `python -m benchmarks.accuracy` (as root; about half an hour).

On the emulated cluster of benchmarks.emulate, measured by `hapdsl profile`, programs of six models run and their steps are timed: baselines and
our plan, each with its own shares, even ones, ones by speed and lopsided ones, by every method of its collectives. Of each program the prediction is the
overlapped total. No program is used to measure the cluster; `--calibrate` corrects the cluster by the first program of each model, which is
then left out.

    --quick     small models, a quick profile, six programs each: does everything work?
    --table     the tables once more, from what was measured

The tables go to docs/performance.md (of a quick run to benchmarks/results/accuracy_quick.md), all numbers to benchmarks/results/accuracy.jsonl:
each model's as soon as all of its programs have run, in the place of what was known of it. Scores are over all that is known.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import rows
from benchmarks.emulate import (
    MODELS,
    SMALL,
    bench_of,
    command,
    extent,
    finish,
    forgotten,
    in_turns,
    kept,
    measured,
    opened,
    options,
    parsed,
    prepared,
    speeds_of,
)
from benchmarks.emulated import Emulated
from benchmarks.pages import PERFORMANCE, fill, markdown
from benchmarks.rows import RESULTS, Row
from hapdsl.check.layout import largest_remainder
from hapdsl.check.write import write
from hapdsl.cluster import Cluster, build
from hapdsl.cluster.calibrate import calibrate
from hapdsl.cost.evaluate import Cost, evaluate
from hapdsl.graph.program import METHODS, Layout, Program
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError
from hapdsl.run.distributed import Rank
from hapdsl.run.initial import Initial, random_inputs
from hapdsl.run.observed import calls, hidden, messages, seconds
from hapdsl.run.tracing import Tracer, Traces, received
from hapdsl.search.baselines import baselines
from hapdsl.search.planner import plan
from hapdsl.standalone import standalone
from hapdsl.sweep import key
from hapdsl.workbench import Workbench

MORE: dict[str, dict[str, Any]] = {
    **MODELS,
    "decoder": {"batch": 16, "seq": 64, "d": 128, "heads": 4, "ffn": 512, "vocab": 1000, "layers": 2, "p": 0.0},
    "cnn": {"batch": 256, "channels": 32, "features": 64, "hidden": 256},
}
MORE_SMALL: dict[str, dict[str, Any]] = {
    **SMALL,
    "decoder": {"batch": 8, "seq": 16, "d": 32, "heads": 4, "ffn": 64, "vocab": 64, "layers": 1, "p": 0.0},
    "cnn": {"batch": 32},
}
LINES = RESULTS / "accuracy.jsonl"
APART = 1.1  # pairs that are predicted so far apart should come in that order
FEWEST = 6
MODEL_HEAD = ("model", "programs", "Kendall's tau", "median error")
PROGRAM_HEAD = ("program", "predicted, ms", "synchronous", "measured", "")


@dataclass
class Case:
    """A program of a model: how it was made, its text, and its predicted and measured seconds."""

    model: str
    name: str
    text: str
    predicted_s: float
    sync_s: float
    measured_s: float = 0.0


def programs(graph: TrainingGraph, cluster: Cluster, speeds: Sequence[float]) -> Iterator[tuple[str, Program]]:
    """Programs that differ: in their lines, their shares or their methods."""
    found: dict[str, Program] = {}
    for name, candidate in baselines(graph, cluster).items():
        if candidate is not None:
            found[name] = candidate.program
    found["plan"] = plan(graph, cluster, objective="overlap", baselines=False, time_limit=60).program
    ways: dict[str, Callable[[Program], Program]] = {
        "": lambda p: p,
        ", padded": lambda p: _by_method(p, "padded"),
        ", grouped": lambda p: _by_method(p, "grouped"),
        ", lopsided": lambda p: _shared(p, np.array([3.0, *[1.0] * (len(cluster) - 1)])),
        ", by speed": lambda p: _shared(p, np.array(speeds)),
        ", even": lambda p: _shared(p, np.ones(len(cluster))),
    }
    seen = set()
    for how, change in ways.items():
        for name, program in found.items():
            variant = change(program)
            if key(variant) not in seen:
                seen.add(key(variant))
                yield name + how, variant


def _shared(program: Program, weights: np.ndarray) -> Program:
    """The same lines under other shares."""
    shares = {}
    for cls, by_axes in program.layout.shares.items():
        units = int(next(iter(by_axes.values())).sum())
        shares[cls] = dict.fromkeys(by_axes, largest_remainder(weights.tolist(), units))
    return replace(program, layout=Layout(program.layout.mesh, shares))


def _by_method(program: Program, method: str) -> Program:
    lines = [
        replace(i, method=method) if i.is_collective and method in METHODS[i.op] else i for i in program.instructions
    ]
    return replace(program, instructions=lines)


def texts(
    model: str, settings: dict[str, Any], block: nodes.Cluster, cluster: Cluster, speeds: Sequence[float], most: int
) -> Iterator[tuple[Case, Program]]:
    bench = bench_of(model)
    graph = bench.graph(model, settings)
    number = 0
    for name, program in programs(graph, cluster, speeds):
        program.model_args = settings
        try:
            text = standalone(bench, write(program), block)
            own = Workbench("program.hap", text)
            proven = own.proven(own.program()).program
        except HapError:
            continue  # shares that this program's lines can't have
        cost = evaluate(proven, cluster)
        yield Case(model, name, text, cost.overlap_s, cost.sync_s), proven
        number += 1
        if number == most:
            return


def traced(rank: int, text: str, seed: int) -> tuple[dict[str, Any], torch.Tensor] | None:
    """A few stamped steps of a program, for calibration."""
    bench = Workbench("program.hap", text)
    program = bench.proven(bench.program()).program
    made = Rank(program, seed=seed)
    made.load(Initial(program.graph, seed))
    fed = made.feed(random_inputs(program.graph, seed))
    tracer = Tracer(made, range(2, 7))
    kept: list[tuple[dict[str, Any], torch.Tensor]] = []

    class Sink:
        def send(self, kind: str, tensor: Any = None, **header: Any) -> None:
            kept.append((header, tensor))

    with torch.no_grad():
        for step in range(7):
            with tracer.at(step):
                made.step(fed)
    tracer.send(Sink())
    return kept[0] if kept else None


def corrected(lab: Emulated, block: nodes.Cluster, chosen: list[tuple[Case, Program]]) -> nodes.Cluster:
    """The cluster after what these programs' instructions took."""
    cluster = build(block)
    ran, sent = [], []
    for case, program in chosen:
        header, stamps = next(t for t in lab.run(traced, case.text, 0) if t is not None)
        traces: Traces = received(header, stamps)
        cost: Cost = evaluate(program, cluster)
        taken = seconds(program, traces)
        ran += list(calls(program, cluster, cost, taken))
        sent += list(messages(program, cluster, cost, taken, hidden(program, traces)))
    return calibrate(block, cluster, ran, sent)[0]


def way_of(case: Case) -> str:
    """What a program is called among the ways of benchmarks.emulate, whose rivals have such names, too."""
    return f"our {case.name}"


def scores(cases: list[Case]) -> dict[str, Any]:
    """Pearson's r on logarithms over all, Kendall's tau by model, pairs in the right order, errors."""
    from scipy.stats import kendalltau, pearsonr

    predicted, taken = (np.array([getattr(c, name) for c in cases]) for name in ("predicted_s", "measured_s"))
    taus, right, pairs = {}, 0, 0
    for model in dict.fromkeys(c.model for c in cases):
        own = [c for c in cases if c.model == model]
        if len(own) > 1:
            taus[model] = float(kendalltau([c.predicted_s for c in own], [c.measured_s for c in own]).statistic)
        for a, b in combinations(own, 2):
            if max(a.predicted_s, b.predicted_s) >= APART * min(a.predicted_s, b.predicted_s):
                pairs += 1
                right += (a.predicted_s < b.predicted_s) == (a.measured_s < b.measured_s)
    errors = np.abs(predicted - taken) / taken
    return {
        "programs": len(cases),
        "pearson_log": float(pearsonr(np.log(predicted), np.log(taken)).statistic) if len(cases) > 1 else float("nan"),
        "kendall": taus,
        "pairs": pairs,
        "pairs_right": right / pairs if pairs else 1.0,
        "median_error": float(np.median(errors)),
        "p90_error": float(np.quantile(errors, 0.9)),
    }


def page(cases: list[Case], found: dict[str, Any]) -> str:
    """What the scores say, in words and as tables."""
    words = (
        f"{found['programs']} programs of {len(found['kendall'])} models: Pearson's r of log time **{found['pearson_log']:.3f}**; "
        f"of {found['pairs']} pairs predicted 10 % apart **{found['pairs_right']:.1%}** in the right order; median error **{found['median_error']:.1%}**, 90 % within {found['p90_error']:.1%}."
    )
    models = []
    for model, tau in found["kendall"].items():
        own = [c for c in cases if c.model == model]
        error = statistics.median(abs(c.predicted_s - c.measured_s) / c.measured_s for c in own)
        models.append((model, str(len(own)), f"{tau:.2f}", f"{error:.1%}"))
    programs = []
    for c in cases:
        ms = [f"{1e3 * seconds:.1f}" for seconds in (c.predicted_s, c.sync_s, c.measured_s)]
        programs.append((f"{c.model}, {c.name}", *ms, f"{c.predicted_s / c.measured_s - 1:+.0%}"))
    return f"{words}\n\n{markdown(MODEL_HEAD, models)}\n{markdown(PROGRAM_HEAD, programs)}"


def made() -> str:
    """The page's part, from what was measured; nothing where nothing was."""
    found = measurements(LINES)
    return told(found)[1] if found else ""


def measurements(path: Path) -> list[Row]:
    """The programs' rows, each with the command that measured it, and where."""
    about, *found = rows.read(path) or [{}]
    return [{"command": about["command"], "machine": about["machine"], **row} for row in found]


def told(found: Sequence[Row]) -> tuple[Row, str]:
    """The scores over all programs, and the page's part under the commands that have measured them."""
    cases = [Case(r["model"], r["name"], "", r["predicted_s"], r["sync_s"], r["measured_s"]) for r in found]
    over = scores(cases)
    commands = ", ".join(dict.fromkeys(f"`{r['command']}`" for r in found))
    return over, f"{commands}, on {rows.machines(found)}\n\n{page(cases, over)}"


def main() -> None:
    parser = options("accuracy", __doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--programs", type=int, default=10, help="of each model at most")
    parser.add_argument("--calibrate", action="store_true")
    arguments = parsed(parser, MORE)
    if arguments.table:
        fill(PERFORMANCE, "accuracy", made())
        return
    chosen = MORE_SMALL if arguments.quick else MORE
    most = min(arguments.programs, FEWEST) if arguments.quick else arguments.programs
    about, text = {"command": command("accuracy"), "machine": rows.machine()}, ""
    with opened(arguments) as lab:
        name = "accuracy_quick" if arguments.quick else "accuracy"
        block = measured(lab, extent(arguments, chosen), arguments.cluster, name)
        cluster = build(block)
        by_model = {
            m: list(texts(m, chosen[m], block, cluster, speeds_of(cluster), most + arguments.calibrate))
            for m in arguments.models
        }
        if arguments.calibrate:
            block = corrected(lab, block, [found.pop(0) for found in by_model.values() if found])
            cluster = build(block)
        for model, made_of in by_model.items():
            found: list[Row] = []
            for case, program in made_of:
                cost = evaluate(program, cluster)
                case.predicted_s, case.sync_s = cost.overlap_s, cost.sync_s
                lab.run(prepared, way_of(case), model, chosen[model], case.text, [], 0, limited=False)
            taken = in_turns(lab, model, [way_of(case) for case, _ in made_of], arguments.rounds, arguments.steps)
            lab.run(forgotten, limited=False)
            for case, _ in made_of:
                case.measured_s = statistics.median(taken[way_of(case)])
                found.append({**about, **vars(case), "text": None})
                ms = f"predicted {case.predicted_s * 1e3:.1f} ms, measured {case.measured_s * 1e3:.1f} ms"
                print(f"{model} {case.name}: {ms}", file=sys.stderr, flush=True)
            if not found:
                continue  # the verifier takes none of its programs
            every = rows.in_place(measurements(kept("accuracy", arguments.quick)), model, found)
            over, text = told(every)
            finish("accuracy", arguments.quick, text, [{**about, **over}, *every])
    print(text)


if __name__ == "__main__":
    main()
