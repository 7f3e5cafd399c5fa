"""A run that loses a device goes on without it: a plan for those that are left, from the last checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hapdsl.check.write import write
from hapdsl.cluster.lost import without
from hapdsl.graph.program import Program
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.lang.files import keep_tables, write_file
from hapdsl.run.checkpoint import Checkpoint, find, steps
from hapdsl.run.checkpoint_write import Saving
from hapdsl.run.heartbeat import Lost
from hapdsl.run.launch import outer_rank
from hapdsl.run.result import RunResult
from hapdsl.run.train import train
from hapdsl.standalone import sources, standalone
from hapdsl.virtual import plan_over
from hapdsl.workbench import Workbench


@dataclass(frozen=True)
class Replanned:
    """What was done when a device was lost: `resumed` is the checkpoint's folder, None where the run began again."""

    lost: str
    why: str
    devices: int
    program: Path
    resumed: Path | None
    search_s: float

    def as_json(self) -> dict[str, Any]:
        """For `hapdsl run --json`."""
        return {
            "lost": self.lost,
            "why": self.why,
            "devices": self.devices,
            "program": str(self.program),
            "resumed": None if self.resumed is None else str(self.resumed),
            "search_s": self.search_s,
        }


@dataclass
class Survivor:
    """A program, what it stands in, and what has become of it."""

    bench: Workbench
    tree: nodes.Program
    program: Program
    replans: list[Replanned] = field(default_factory=list)

    @property
    def names(self) -> list[str] | None:
        """The devices' names."""
        cluster = self.bench.cluster_of(self.tree)
        return None if cluster is None else [d.name for d in cluster.devices]


def train_on(
    run: Survivor,
    start: Checkpoint | None,
    saving: Saving,
    notify: Callable[[Replanned], None] | None = None,
    **wishes: Any,
) -> RunResult | None:
    """Train as `train` does; whenever a device is lost, plan for the others and go on from the newest checkpoint.

    `run` is changed to the program that was run at last. Raises HapError: HAP761 where there is no cluster to plan on, or no device is
    left; what `train` raises besides lost devices; what `plan` raises.
    """
    if outer_rank() is not None:
        hint = "leave --replan out: torchrun --max-restarts starts the ranks again, and they go on from the newest checkpoint"
        raise error("HAP761", "torchrun has started the ranks: it says what is done when one is lost", help=hint)
    if run.tree.cluster is None:
        raise error(
            "HAP761", f"program '{run.tree.name}' names no cluster", run.tree.span, "write `on CLUSTER` in its header"
        )
    while True:
        names = run.names
        try:
            return train(run.program, run.program.layout.devices, resume=start, saving=saving, names=names, **wishes)
        except Lost as stop:
            if steps(saving.folder):  # `train` has seen to it that they are this run's
                start = find(saving.folder)
            done = _smaller(run, stop, saving.folder, start)
            wishes["noted"] = None  # the data is what it was
            run.replans.append(done)
            if notify is not None:
                notify(done)


def _smaller(run: Survivor, stop: Lost, folder: Path, start: Checkpoint | None) -> Replanned:
    """Plan for the devices that are left, and put the new program in the place of the old."""
    began = time.monotonic()
    assert run.tree.cluster is not None
    cluster = run.bench.cluster(run.tree.cluster)
    left = without(run.bench.cluster_block(run.tree.cluster), cluster, stop.rank)
    if left is None:
        raise HapError(
            *stop.diagnostics,
            *error(
                "HAP761", "no device is left to go on with", help="--resume goes on from the last checkpoint"
            ).diagnostics,
            status=1,
        )
    settings = run.bench.settings(run.tree)
    graph = run.bench.graph(run.tree.model, settings)
    found = plan_over(graph, left.cluster, baselines=False, name=f"{run.tree.model}_on_{len(left.cluster)}")
    found.program.model_args = settings
    found.program.cluster = left.block.name
    lost = cluster.devices[stop.rank].name
    text = standalone(
        run.bench, write(found.program), left.block, f"planned for the devices that were left when {lost} was lost"
    )
    path = _fresh(folder)
    bench = Workbench(path, text)
    tree = bench.program()
    program = bench.proven(tree).program  # from its text, as `hapdsl run` would
    write_file(path, text)
    keep_tables(sources(run.bench, run.bench.model(run.tree.model)), path)
    run.bench, run.tree, run.program = bench, tree, program
    resumed = None if start is None else start.folder
    return Replanned(lost, stop.diagnostics[0].message, len(left.cluster), path, resumed, time.monotonic() - began)


def _fresh(folder: Path) -> Path:
    """A name that isn't taken: replanned-1.hap, replanned-2.hap, …"""
    number = 1
    while (path := folder / f"replanned-{number}.hap").exists():
        number += 1
    return path
