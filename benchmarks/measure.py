"""One case in this process: `python -m benchmarks.measure CASE` (JSON) prints one line of JSON.

Memory is the peak above that of the bare interpreter, and above that after all imports. Times are seconds: `load_s` from text to training graph,
then of the search: `first_s` to the first synthesised plan, `near_s` to the first within 5 % of the final one, `settled_s` to the last
improvement of program or shares, `proven_s` until its bound is known, `search_s` in all.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.process import Watch, peak

BARE = peak()  # before anything else is imported

import numpy as np  # noqa: E402

from benchmarks.cases import LIMIT, PLAN_CPU, PROGRAMS, Case, example_clusters, four_kinds  # noqa: E402
from hapdsl.check.verify import verify  # noqa: E402
from hapdsl.check.write import write  # noqa: E402
from hapdsl.cluster import Cluster  # noqa: E402
from hapdsl.cost.evaluate import evaluate  # noqa: E402
from hapdsl.cost.pricing import Pricer  # noqa: E402
from hapdsl.graph.training import TrainingGraph  # noqa: E402
from hapdsl.lang import nodes  # noqa: E402
from hapdsl.lang.diagnostics import HapError  # noqa: E402
from hapdsl.lang.parse import parse  # noqa: E402
from hapdsl.search.alternatives import Alternatives  # noqa: E402
from hapdsl.search.astar import best_first  # noqa: E402
from hapdsl.search.baselines import baselines  # noqa: E402
from hapdsl.search.complete import complete, decisions  # noqa: E402
from hapdsl.search.completer import Completer  # noqa: E402
from hapdsl.search.eliminate import eliminate  # noqa: E402
from hapdsl.search.milp import solve_milp  # noqa: E402
from hapdsl.search.plan import Candidate, Plan, Progress  # noqa: E402
from hapdsl.search.planner import plan  # noqa: E402
from hapdsl.search.prices import cutting_planes  # noqa: E402
from hapdsl.search.reorder import reordered, without_unread  # noqa: E402
from hapdsl.search.restriction import Restriction  # noqa: E402
from hapdsl.search.schedule import Scheduler  # noqa: E402
from hapdsl.search.shares import layout_of, proportional  # noqa: E402
from hapdsl.search.space import Space  # noqa: E402
from hapdsl.search.structure import Structure  # noqa: E402
from hapdsl.theory.placements import R  # noqa: E402
from hapdsl.workbench import Workbench  # noqa: E402

IMPORTED = peak()
Found = dict[str, Any]
NEAR = 1.05


def graph_of(case: Case, text: str | None = None) -> TrainingGraph:
    return Workbench(PROGRAMS / "models" / f"{case.model}.hap", text).graph(case.model, dict(case.settings))


def cluster_of(name: str) -> Cluster:
    if name.startswith("four kinds "):
        return Workbench("four_kinds.hap", four_kinds(int(name.split()[-1]))).cluster("four_kinds")
    return Workbench(example_clusters()[name]).cluster(name)


class Listener:
    """Hears a search: when the best plan changed, and when the bound was there."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.bests: list[tuple[float, float, float]] = []  # (when, CPU seconds by then, the step's seconds)
        self.proven: float | None = None

    def __call__(self, news: Progress) -> None:
        now = self.watch.wall
        if news.best_s is not None and (not self.bests or news.best_s < self.bests[-1][2]):
            self.bests.append((now, self.watch.cpu, news.best_s))
        if news.doing == "bound for all shares":
            self.proven = now

    def times(self, final: float) -> Found:
        near = next(t for t, _, s in self.bests if s <= NEAR * final)
        return {
            "first_s": self.bests[0][0],
            "first_above": self.bests[0][2] / final - 1,
            "near_s": near,
            "settled_s": self.bests[-1][0],
            "settled_cpu_s": self.bests[-1][1],
            "proven_s": self.proven,
        }


def described(found: Plan) -> Found:
    any_shares = found.bound_any_shares_s
    return {
        "cost_s": found.cost_s,
        "bound_s": found.bound_s,
        "gap": found.gap,
        "scope": found.bound_scope,
        "gap_any_shares": None if any_shares is None else 1 - any_shares / found.cost_s,
        "nodes": found.nodes,
        "instructions": len(found.program.instructions),
    }


def measured_plan(case: Case) -> Found:
    load = Watch()
    graph, cluster = graph_of(case), cluster_of(case.cluster)
    loaded = load.wall
    listener = Listener()
    watch = Watch()
    found = plan(graph, cluster, progress=listener, baselines=False)
    times = {"search_s": watch.wall, "search_cpu_s": watch.cpu, **listener.times(found.cost_s)}
    return {"load_s": loaded, "calls": len(graph.nodes), "devices": len(cluster), **times, **described(found)}


def measured_sketch(case: Case) -> Found:
    """The 24-layer plan once more with one activation pinned to where the plan doesn't have it."""
    graph, cluster = graph_of(case), cluster_of(case.cluster)
    before = plan(graph, cluster, baselines=False)
    written = write(before.program)
    shares = [s for s in written.body if isinstance(s, nodes.Shares)] if "shares" in case.method else []
    middle = case.settings["layers"] // 2
    tensor = f"layer.{middle}.block.r"
    made = {str(v) for i in before.program.instructions for v in i.outputs}
    placement = next(p for p in ("R", "S(0)", "S(1)", "S(2)") if f"{tensor}@{p}" not in made)
    pinned = parse(
        f"program pinned for {case.model} {{\n    pin {tensor} @ {placement}\n    ...\n}}\n", "pinned.hap"
    ).items[0]
    assert isinstance(pinned, nodes.Program)
    sketch = replace(pinned, body=(*shares, *pinned.body))
    checked = verify(sketch, graph, len(cluster))
    if "at hand" in case.method:
        completer = Completer(Alternatives(before.program, cluster))
        watch = Watch()
        quick = completer.complete(decisions(sketch, checked))
        took = {"search_s": watch.wall, "search_cpu_s": watch.cpu}
        gap = 1 - quick.bound_s / quick.cost_s
        return {
            "pin": f"{tensor} @ {placement}",
            "above": quick.cost_s / before.cost_s - 1,
            **took,
            "cost_s": quick.cost_s,
            "bound_s": quick.bound_s,
            "gap": gap,
        }
    watch = Watch()
    found = complete(checked, sketch, cluster)
    took = {"search_s": watch.wall, "search_cpu_s": watch.cpu}
    return {"pin": f"{tensor} @ {placement}", "above": found.cost_s / before.cost_s - 1, **took, **described(found)}


def measured_space(case: Case) -> Found:
    """One way through the programs under shares by speed: elimination and MILP to the additive optimum under even prices, the others to the true
    cost, within 1 % (property sets: exactly)."""
    graph, cluster = graph_of(case, plain_sgd(case.model)), cluster_of(case.cluster)
    layout = layout_of(proportional(graph, cluster.speeds("f32")), len(cluster))
    watch = Watch()
    if case.method == "property sets":
        from tests.search.property_sets import PropertySets  # an oracle of the tests: HAP's own search, written anew

        oracle = PropertySets(graph, layout, cluster)
        try:
            exact: float | None = oracle.cheapest(lambda: watch.cpu > LIMIT)
        except TimeoutError:
            exact = None
        ended = "gap" if exact is not None else "seconds"
        numbers = {"cost_s": exact, "bound_s": exact, "nodes": oracle.popped, "ended": ended}
        return {"calls": len(graph.nodes), **numbers, "search_s": watch.wall, "search_cpu_s": watch.cpu}
    structure = Structure(graph, None, ())
    space = Space(graph, layout, cluster, None, "sync", structure)
    made: Found = {"calls": len(graph.nodes), "variables": len(space.graph.sizes), "space_s": watch.wall}
    if case.method in ("elimination", "MILP"):
        prices = np.ones(space.graph.components) / space.graph.components
        if case.method == "MILP":
            answer = solve_milp(space.graph, prices, seconds=LIMIT)
            bound, ended = answer.bound, answer.reason
        else:
            bound, ended = eliminate(space.graph, prices).bound, "gap"
        return {**made, "bound_s": bound, "ended": ended, "search_s": watch.wall, "search_cpu_s": watch.cpu}
    pricing = cutting_planes(space.graph)
    assert pricing.elimination is not None
    scheduler = Scheduler(space.conversions)
    blind = "h = 0" in case.method
    found = best_first(
        pricing.elimination, lambda a: scheduler.seconds(space.choice(a), "sync"), 0.01,
        cancelled=lambda: watch.cpu > LIMIT, heuristic="zero" if blind else "elimination",
    )  # fmt: skip
    cost = found.cost if found.assignment is not None else None
    bound = found.bound if blind else max(found.bound, pricing.bound)  # the blind one has what its own heap proves
    numbers = {"cost_s": cost, "bound_s": bound, "nodes": found.nodes, "leaves": found.leaves, "ended": found.reason}
    return {**made, **numbers, "search_s": watch.wall, "search_cpu_s": watch.cpu}


def plain_sgd(model: str) -> str:
    """The model's text with plain SGD: the oracle over property sets knows no optimizer state."""
    text = (PROGRAMS / "models" / f"{model}.hap").read_text(encoding="utf-8")
    head, _, tail = text.rpartition("train loss with ")
    return f"{head}train loss with sgd(lr = 0.1)" + tail[tail.index("\n") :]


def measured_baselines(case: Case) -> Found:
    """What the plan costs, and every baseline, whose choices the plan's search never saw.

    `cost_s` is None where no plan was found that fits. `cut` says whether the search was stopped at PLAN_CPU. A baseline costs what its program costs in the better of the canonical
    order and the best that is found for it, as the plan's was put into a better order, too.
    """
    graph, cluster = graph_of(case), cluster_of(case.cluster)
    watch = Watch()
    found: Plan | None = None
    try:
        found = plan(graph, cluster, baselines=False, cancelled=lambda: watch.cpu > PLAN_CPU)
    except HapError as e:
        if e.diagnostics[0].code != "HAP601":
            raise
    took: Found = {"search_s": watch.wall, "search_cpu_s": watch.cpu, "cut": watch.cpu > PLAN_CPU}
    costs = {n: in_best_order(c, cluster) for n, c in baselines(graph, cluster).items() if c is not None}
    if (alone := replicated(graph, cluster)) is not None:
        costs["replicated"] = alone
    best = min(costs, key=lambda n: costs[n], default=None)
    plans = {} if found is None else {"gap": found.gap, "instructions": len(found.program.instructions)}
    return {
        "calls": len(graph.nodes),
        "devices": len(cluster),
        **took,
        **plans,
        "cost_s": None if found is None else found.cost_s,
        "best": best,
        "best_s": None if best is None else costs[best],
        "baselines": costs,
    }


def in_best_order(baseline: Candidate, cluster: Cluster) -> float:
    """Seconds of a baseline, its instructions put into the best order found."""
    program = baseline.program
    pricer = Pricer(program.graph, program.layout, cluster)
    return min(
        baseline.cost.sync_s, evaluate(reordered(without_unread(program), pricer, "sync"), cluster, pricer).sync_s
    )


def replicated(graph: TrainingGraph, cluster: Cluster) -> float | None:
    """Every device does everything, and nothing is sent: the plan that must not be missed where messages are slow. None where it doesn't fit."""
    whole = Restriction(lambda node, rule: all(p == R for p in (*rule.inputs, *rule.outputs)), lambda param, p: p == R)
    try:
        return plan(graph, cluster, baselines=False, restriction=whole).cost_s
    except HapError:
        return None


MEASURES: dict[str, Callable[[Case], Found]] = {
    "plan": measured_plan,
    "sketch": measured_sketch,
    "space": measured_space,
    "baselines": measured_baselines,
}


def main(arguments: list[str]) -> None:
    case = Case(**json.loads(arguments[0]))
    found = MEASURES[case.kind](case)
    top = peak()
    memory = {"interpreter_bytes": BARE, "above_interpreter_bytes": top - BARE, "above_imports_bytes": top - IMPORTED}
    print(json.dumps(found | memory))


if __name__ == "__main__":
    main(sys.argv[1:])
