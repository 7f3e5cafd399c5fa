"""`hapdsl cost FILE --sweep NAME=LOW..HIGH`: what is priced, and how it is shown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hapdsl.commands.options import nothing_about
from hapdsl.commands.output import Output
from hapdsl.commands.settings import read_settings
from hapdsl.commands.units import indented, shares, table
from hapdsl.lang.amounts import in_seconds

if TYPE_CHECKING:
    from hapdsl.cluster import Cluster
    from hapdsl.graph.program import Program
    from hapdsl.sweep import Swept
    from hapdsl.workbench import Workbench

PLOT = 48  # columns


def swept(
    out: Output,
    bench: Workbench,
    text: str,
    points: int,
    on: str | None,
    name: str | None,
    model: str | None,
    settings: tuple[str, ...],
    objective: str,
) -> int:
    """Sweep the programs of a file, and plans for its model. Returns the exit status."""
    from hapdsl.sweep import read_range, sweep
    from hapdsl.virtual import plan_over

    if name is not None:
        nothing_about(
            "planning",
            f"--program {name} is priced alone, for the model and parameters of its header; without it plans are made, too",
        )
    trees = [bench.program(name)] if name is not None else bench.programs()
    if name is None:
        trees = [t for t in trees if not bench.checked(t, on).sketch and (model is None or t.model == model)]
    found = [bench.cost(tree, on) for tree in trees]
    cluster = found[0][1] if found else bench.cluster(on)
    programs = [checked.program for checked, there, _ in found if there == cluster]
    over = read_range(text, cluster)

    def make(there: Cluster) -> Program:
        if programs and model is None and not settings:
            graph = programs[0].graph
        else:
            node = bench.model(model)
            graph = bench.graph(node.name, read_settings(node, settings))
        out.say(f"planning at {over.name} = {over.written(_value(there, over.name))}") if not out.json else None
        return plan_over(graph, there, objective=objective, name="plan").program

    result = sweep(cluster, over, points, programs, None if name is not None else make, objective)
    out.data(_object(cluster, result, objective), _words(cluster, result))
    return 0 if result.complete else 130


def _value(cluster: Cluster, name: str) -> float:
    """What a quantity is at in a cluster."""
    if name == "network" and cluster.network is not None:
        return cluster.network.bandwidth
    links = [cluster.network] if cluster.network is not None else [node.link for node in cluster.nodes]
    if name == "latency":
        return next(link.latency for link in links if link is not None)
    if name == "link":
        return next(node.link.bandwidth for node in cluster.nodes if node.link is not None)
    return next(d.flops["f32"] for d in cluster.devices if d.kind == name)


def _letter(k: int) -> str:
    return chr(ord("A") + k) if k < 26 else f"#{k + 1}"


def _object(cluster: Cluster, result: Swept, objective: str) -> dict[str, Any]:
    plans = [
        {
            "name": _letter(k),
            "program": p.name,
            "model": p.graph.model,
            "seconds": list(result.seconds[k]),
            "collectives": _collectives(p),
            "shares": _shares(p),
        }
        for k, p in enumerate(result.programs)
    ]
    changes = [{"at": at, "from": _letter(a), "to": _letter(b)} for at, a, b in result.changes]
    return {
        "cluster": cluster.name, "objective": objective, "sweep": result.range.name, "values": list(result.values),
        "plans": plans, "best": [_letter(k) for k in result.best], "changes": changes,
        "interrupted": not result.complete,
    }  # fmt: skip


def _words(cluster: Cluster, result: Swept) -> str:
    over, lowest, highest = result.range, float(result.seconds.min()), float(result.seconds.max())
    rows = []
    for i, value in enumerate(result.values):
        column = result.seconds[:, i]
        best = result.best[i]
        rows.append(
            [
                over.written(float(value)),
                _letter(best),
                in_seconds(float(column[best])),
                _plotted(column.tolist(), lowest, highest),
            ]
        )
    scale = f"{in_seconds(lowest)} {'·' * (PLOT - len(in_seconds(lowest)) - len(in_seconds(highest)) - 2)} {in_seconds(highest)}"
    parts = [f"a step on {cluster.name}, {over.name} from {over.written(over.low)} to {over.written(over.high)}", ""]
    if not result.complete:
        parts.insert(1, "  interrupted: of the plans that were made by then")
    parts += [indented(table((over.name, "best", "takes", scale), rows, right=(0, 2))), ""]
    if result.changes:
        first = result.changes[0]
        parts.append(
            f"the best is {_letter(first[1])}"
            + "".join(f", from {over.written(at)} on {_letter(b)}" for at, _, b in result.changes)
        )
    else:
        parts.append(f"the best is {_letter(result.best[0])} all the way")
    for k, program in enumerate(result.programs):
        moved = ", ".join(f"{n} {what}" for what, n in _collectives(program).items()) or "no collective"
        parts.append(f"  {_letter(k)}  {program.name}: {moved}")
        parts += [f"       {cls} {shares(units)}" for cls, units in list(_shares(program).items())[:4]]
    return "\n".join(parts)


def _plotted(seconds: list[float], lowest: float, highest: float) -> str:
    """The programs' letters where their seconds stand between the lowest and the highest, in equal ratios."""
    line = [" "] * PLOT
    span = math.log(highest / lowest) if highest > lowest > 0 else 0.0
    for k in sorted(range(len(seconds)), key=lambda k: -seconds[k]):  # the best last, over the others
        place = round(math.log(seconds[k] / lowest) / span * (PLOT - 1)) if span else 0
        line[place] = _letter(k)[0]
    return "".join(line).rstrip()


def _collectives(program: Program) -> dict[str, int]:
    found: dict[str, int] = {}
    for i in program.instructions:
        if i.is_collective:
            name = f"{i.op} {i.method}" if i.method else i.op
            found[name] = found.get(name, 0) + 1
    return found


def _shares(program: Program) -> dict[str, list[int]]:
    """The shares of the classes that the program cuts, those of more units first."""
    cut = {
        program.graph.tensors[v.tensor].classes[p.dim]
        for i in program.instructions
        for v in i.outputs
        for p in v.placement
        if p.kind == "S"
    }
    classes = program.graph.classes
    used = sorted((c for c in cut if c is not None), key=lambda c: (-classes[c].units, c))
    return {
        c: [int(n) for n in next(iter(program.layout.shares[c].values()))] for c in used if c in program.layout.shares
    }
