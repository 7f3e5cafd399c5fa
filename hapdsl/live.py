"""A text that changes under a person's hands, checked and priced again after every change: what an editor asks.

`Live.update` takes the whole text and says what is to be said of it: diagnostics, and of each program whether it is proven and what each of its
lines costs. What it says is what a `Workbench` made from scratch would say; what hasn't changed since the last call isn't worked out again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hapdsl.check.verify import Checked
from hapdsl.cluster import Cluster
from hapdsl.cost.evaluate import Cost, evaluate
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import Diagnostic, HapError
from hapdsl.workbench import Workbench

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LineCost:
    """What one line of a text costs, all turns of its repeats together.

    `seconds` is the sum over its instructions of the slowest device's, `devices` the seconds of each device, float array [devices]. `count`
    are its instructions, `bytes` the sizes of the whole tensors that its messages move, `words` says what it is ("all_gather, grouped").
    """

    seconds: float
    devices: Floats
    count: int
    bytes: int
    words: str


@dataclass(frozen=True)
class LiveProgram:
    """One program of a text as it stands.

    `state` is "wrong", "sketch" or "proven". `checked` is the verifier's answer (None where there was no graph or cluster to check against).
    `cost` and `cluster` are there where it is proven and can be priced; `note` says in words why a program without errors has no cost.
    """

    tree: nodes.Program
    state: str
    checked: Checked | None = None
    cluster: Cluster | None = None
    cost: Cost | None = None
    note: str = ""

    @cached_property
    def lines(self) -> Mapping[int, LineCost]:
        """The cost of each line of the text (counted from 1) that an instruction comes from."""
        return _line_costs(self.checked, self.cost) if self.checked is not None and self.cost is not None else {}


@dataclass(frozen=True)
class Reading:
    """What there is to say of a text: `diagnostics` of all kinds, in the order they were found, and its own programs in the order of the text.

    Where the text can't be read (`bench` is None) there are diagnostics only.
    """

    text: str
    diagnostics: tuple[Diagnostic, ...] = ()
    programs: tuple[LiveProgram, ...] = ()
    bench: Workbench | None = field(default=None, repr=False)

    @property
    def ok(self) -> bool:
        """No errors (warnings may be there)."""
        return not any(d.severity == "error" for d in self.diagnostics)


class Live:
    """One file in an editor. `path` is where it stands (imports are looked up beside it), `cluster` prices the programs that name none.

    Not to be called from two threads at once. What an earlier `Reading` holds stays as it was.
    """

    def __init__(self, path: str | Path, cluster: str | None = None) -> None:
        self.path = Path(path)
        self.cluster = cluster

    def update(self, text: str) -> Reading:
        """Read, check and price a text. Whatever is wrong with it is in the answer's diagnostics; raises nothing."""
        findings: list[Diagnostic] = []
        try:
            bench = Workbench(self.path, text)
            _ = bench.ops
        except HapError as stop:
            return Reading(text, tuple(dict.fromkeys(stop.diagnostics)))
        self._blocks(bench, findings)
        programs = tuple(self._program(bench, p, findings) for p in bench.programs())
        findings += bench.notes
        return Reading(text, tuple(dict.fromkeys(findings)), programs, bench)

    @staticmethod
    def _blocks(bench: Workbench, findings: list[Diagnostic]) -> None:
        """The models and clusters of the file itself, by themselves."""
        for model in bench.bundle.of_main(nodes.Model):
            assert isinstance(model, nodes.Model)
            if all(p.default is not None for p in model.parameters):
                try:
                    bench.graph(model.name)
                except HapError as stop:
                    findings += stop.diagnostics
        for cluster in bench.bundle.of_main(nodes.Cluster):
            assert isinstance(cluster, nodes.Cluster)
            try:
                bench.cluster(cluster.name)
            except HapError as stop:
                findings += stop.diagnostics

    def _program(self, bench: Workbench, tree: nodes.Program, findings: list[Diagnostic]) -> LiveProgram:
        try:
            checked = bench.checked(tree)
        except HapError as stop:
            findings += stop.diagnostics
            return LiveProgram(tree, "wrong")
        findings += checked.diagnostics
        if not checked.ok:
            return LiveProgram(tree, "wrong", checked)
        if checked.sketch:
            return LiveProgram(tree, "sketch", checked, note="a sketch leaves lines open, so it has no cost")
        try:
            cluster = bench.cluster_of(tree) or bench.cluster(self.cluster)
            cost = evaluate(checked.program, cluster)
        except HapError as stop:
            return LiveProgram(tree, "proven", checked, note="; ".join(d.message for d in stop.diagnostics))
        return LiveProgram(tree, "proven", checked, cluster, cost)


def _line_costs(checked: Checked, cost: Cost) -> dict[int, LineCost]:
    program = checked.program
    found: dict[int, LineCost] = {}
    for instruction, seconds in zip(program.instructions, cost.per_instruction_s, strict=True):
        line = instruction.span.line
        moved, words = 0, instruction.op
        if instruction.is_collective:
            moved = sum(program.graph.tensors[v.tensor].bytes for v in instruction.inputs)
            words = instruction.op if instruction.method is None else f"{instruction.op}, {instruction.method}"
        own = float(seconds.max(initial=0.0))
        before = found.get(line)
        if before is None:
            found[line] = LineCost(own, seconds, 1, moved, words)
        else:
            kept = words if instruction.is_collective else before.words
            found[line] = LineCost(
                before.seconds + own, before.devices + seconds, before.count + 1, before.bytes + moved, kept
            )
    return found
