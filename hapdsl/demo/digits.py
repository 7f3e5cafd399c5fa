"""The demo: handwritten digits on four uneven workers.

A small vision transformer is planned for a cluster of speeds 4:2:1:1, verified, and trained on four processes with
those shares, beside the same model in plain PyTorch on one process. Then every program of `programs/plans` is trained for
a few steps against one process. Exit status 1 if anything disagrees.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from hapdsl.check.verify import verify
from hapdsl.check.write import write
from hapdsl.cost.evaluate import evaluate
from hapdsl.demo.torch_vit import TorchVit
from hapdsl.draw.program import draw_program
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.print import to_text
from hapdsl.lang.resources import programs_folder
from hapdsl.lang.show import render
from hapdsl.run.data import Feed, open_feed
from hapdsl.run.initial import initial
from hapdsl.run.pieces import largest_gap
from hapdsl.run.result import RunResult
from hapdsl.run.train import train
from hapdsl.search.plan import Plan
from hapdsl.search.planner import plan
from hapdsl.workbench import Workbench

STEPS = 300
SHORT = 20
LOSS_TOLERANCE = 1e-5  # float32 over hundreds of steps of Adam: sums are ordered differently on four devices
PARAM_TOLERANCE = 1e-4
ACCURACY = 0.95
OUT = Path("demo")

console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)


def main() -> int:
    """Run all parts; 0 if everything agreed."""
    started = time.monotonic()
    try:
        OUT.mkdir(exist_ok=True)
        fine = digits()
        fine = programs() and fine
    except HapError as stop:
        for diagnostic in stop.diagnostics:
            console.print(render(diagnostic, ""), markup=False, style="red")
        return stop.status
    except OSError as problem:
        console.print(f"{problem.filename or OUT} can't be written: {problem.strerror}", markup=False, style="red")
        return 2
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    console.print(f"\n{'All agreed' if fine else 'SOMETHING DISAGREED'}, in {time.monotonic() - started:.0f} s.")
    return 0 if fine else 1


# -- the transformer ----------------------------------------------------------------


def digits() -> bool:
    """Plan, verify, draw, train and compare the digits transformer."""
    folder = programs_folder()
    bench = Workbench(folder / "models" / "vit_digits.hap")
    graph = bench.graph("vit_digits")
    cluster = bench.cluster(str(folder / "clusters" / "digits.hap"))
    console.rule("1. plan")
    with console.status("searching for programs and shares"):
        found = plan(graph, cluster, name="digits")
    show_plan(found, [d.name for d in cluster.devices])
    tree = write(found.program)
    checked = verify(tree, graph, len(cluster))
    if not checked.ok:
        raise HapError(*checked.diagnostics, status=1)
    console.print(f"verified: {len(checked.program.instructions)} instructions")
    files = draw_program(checked.program, evaluate(checked.program, cluster), OUT / "digits.svg")
    (OUT / "digits.plan.txt").write_text(to_text(tree), encoding="utf-8")
    console.print(f"drawn and written: {', '.join(str(f) for f in files)}, {OUT / 'digits.plan.txt'}", highlight=False)

    console.rule("2. train on four processes")
    result = run(found, len(cluster), STEPS)
    console.rule("3. beside plain PyTorch on one process")
    return beside_torch(found, result)


def show_plan(found: Plan, devices: list[str]) -> None:
    """Shares, cost, bound and baselines."""
    shares = Table("class", "units", *devices, title="shares of each dimension class that the plan cuts")
    for statement in write(found.program).body:
        if isinstance(statement, nodes.Shares):
            row = found.program.layout.shares[statement.cls][(0,)]
            shares.add_row(statement.cls, str(int(row.sum())), *(str(int(n)) for n in row))
    console.print(shares)
    table = Table("program", "predicted step", "against the plan", title="predicted time per step (synchronous)")
    table.add_row("plan", f"{found.cost_s * 1e3:.1f} ms", "1.00")
    for name, candidate in found.baselines.items():
        seconds = candidate.cost.sync_s if candidate is not None else None
        table.add_row(
            name,
            "doesn't fit" if seconds is None else f"{seconds * 1e3:.1f} ms",
            "" if seconds is None else f"{seconds / found.cost_s:.2f}",
        )
    console.print(table)
    console.print(
        f"no program for these shares takes less than {found.bound_s * 1e3:.1f} ms (gap {found.gap:.1%}); "
        f"searched for {found.search_s:.1f} s, {found.nodes} nodes"
    )


def run(found: Plan, processes: int, steps: int) -> RunResult:
    """Train the plan on processes of this machine, with a bar, and say how long a step took beside what was predicted."""
    # no refreshing thread: processes are forked, which is safe (and fast) only without threads
    with Progress(TextColumn("step {task.completed}/{task.total}"), BarColumn(), TextColumn("loss {task.fields[loss]}"), TimeElapsedColumn(), console=console, auto_refresh=False) as bar:  # fmt: skip
        task = bar.add_task("train", total=steps, loss="-")

        def moved(step: int, loss: float) -> None:
            bar.update(task, completed=step, loss=f"{loss:.4f}")
            bar.refresh()

        result = train(found.program, processes, steps, "digits", progress=moved)
    assert result is not None
    console.print(
        f"measured {result.step_s * 1e3:.1f} ms per step, predicted {found.cost_s * 1e3:.1f} ms for the cluster in the plan.\n"
        "The four processes share this machine's cores at equal speed: the speeds 4:2:1:1 are not emulated here, so the two "
        "numbers are of different machines and no speed-up is claimed."
    )
    return result


def beside_torch(found: Plan, result: RunResult) -> bool:
    """Train the same model in plain PyTorch, from the same weights on the same data: do losses, parameters and accuracy agree?"""
    graph = found.program.graph
    torch.set_num_threads(1)
    feed: Feed = open_feed("digits", graph)
    first = initial(graph)
    numbers = graph.parameters
    model = TorchVit(
        {t.name: first[t.name] for t in graph.of_kind("param")}, int(numbers["layers"]), int(numbers["patch"]), lr=0.002
    )
    alone = model.train(feed.batch(step) for step in range(1, STEPS + 1))
    ours, theirs = (torch.tensor(loss, dtype=torch.float64) for loss in (result.loss, alone))
    loss_diff = largest_gap(ours, theirs, relative=False)
    param_diff = max(largest_gap(p.detach(), result.final[n], relative=False) for n, p in model.parameters.items())
    curve = Table("step", "loss on four processes", "loss in PyTorch", title="loss")
    for step in (1, 10, 25, 50, 100, 150, 200, 250, 300):
        if step <= STEPS:
            curve.add_row(str(step), f"{result.loss[step - 1]:.5f}", f"{alone[step - 1]:.5f}")
    console.print(curve)
    test = feed.test
    assert test is not None
    one = model.accuracy(test["image"], test["label"])
    model.parameters = {n: result.final[n] for n in model.parameters}
    four = model.accuracy(test["image"], test["label"])
    console.print(f"largest difference of loss over the run {loss_diff:.2e}, of parameters at the end {param_diff:.2e}")
    console.print(f"test accuracy: {four:.1%} from four processes, {one:.1%} from one (of {len(test['label'])} images)")
    return all(
        (
            judge("loss agrees", loss_diff <= LOSS_TOLERANCE),
            judge("parameters agree", param_diff <= PARAM_TOLERANCE),
            judge(f"accuracy at least {ACCURACY:.0%}", four >= ACCURACY),
        )
    )


def judge(what: str, fine: bool) -> bool:
    """Print a verdict, and pass it on."""
    console.print(f"[{'green' if fine else 'red'}]{'yes' if fine else 'NO'}[/] {what}")
    return fine


# -- the hand-written programs --------------------------------------------------------


def programs() -> bool:
    """Train every program of `programs/plans` against one process."""
    console.rule(f"4. every program of programs/plans, {SHORT} steps each against one process")
    table = Table("program", "devices", "collectives", "predicted", "measured", "loss differs by", "agrees")
    table.columns[0].no_wrap = True
    fine = True
    for path in sorted((programs_folder() / "plans").glob("*.hap")):
        bench = Workbench(path)
        for tree in bench.programs():
            checked, cluster, cost = bench.cost(tree)
            program = checked.program
            result = train(program, len(cluster), SHORT, "random", reference=True, collect=False)
            assert result is not None and result.loss_diff is not None
            scale = max(1.0, max(abs(x) for x in result.loss))
            good = result.loss_diff <= LOSS_TOLERANCE * scale
            fine = fine and good
            kinds = sorted({i.op for i in program.instructions if i.is_collective})
            table.add_row(f"{path.stem}", str(len(cluster)), ", ".join(kinds), f"{cost.sync_s * 1e3:.1f} ms", f"{result.step_s * 1e3:.1f} ms", f"{result.loss_diff:.1e}", "yes" if good else "NO")  # fmt: skip
    console.print(table)
    return fine
