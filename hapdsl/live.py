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

from hapdsl.check.facts import Known
from hapdsl.check.verify import Checked
from hapdsl.cluster import Cluster
from hapdsl.cost.evaluate import Cost, evaluate
from hapdsl.cost.pricing import Pricer
from hapdsl.graph.program import Program
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import Diagnostic, HapError
from hapdsl.lang.edited import EditedText
from hapdsl.virtual import spread
from hapdsl.workbench import Workbench, settings_folder

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LineCost:
    """What one line of a text costs, all turns of its repeats together.

    `seconds` is the sum over its instructions of the slowest device's, `devices` the seconds of each device, float array [devices]. `count`
    are its instructions, `bytes` the sizes of the whole tensors that its messages move, `words` says what it is ("all_gather, grouped"). Seconds and
    bytes of a line in a `microbatch` block are those of all its turns.
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


@dataclass
class _Kept:
    """What is kept of one program: what its check found out, and its prices."""

    known: Known = field(default_factory=Known)
    pricer: Pricer | None = None

    def pricer_for(self, program: Program, cluster: Cluster) -> Pricer:
        """The pricer of the last time, where it still holds; else a new one, which shares the numbers of the same graph."""
        last = self.pricer
        if last is None or not last.fits(program, cluster):
            numbers = last.numbers if last is not None and last.graph is program.graph else None
            last = self.pricer = Pricer(program.graph, program.layout, cluster, numbers)
        return last


class Live:
    """One file in an editor. `path` is where it stands (imports are looked up beside it), `cluster` prices the programs that name none.

    Not to be called from two threads at once. What an earlier `Reading` holds stays as it was.
    """

    def __init__(self, path: str | Path, cluster: str | None = None) -> None:
        self.path = Path(path)
        self.cluster = cluster
        self._edited = EditedText(str(self.path))
        self._kept: dict[str, _Kept] = {}
        self._bench: Workbench | None = None
        self._stamps: dict[Path, object] = {}
        self._of_blocks: tuple[Diagnostic, ...] = ()

    def update(self, text: str) -> Reading:
        """Read, check and price a text. Whatever is wrong with it is in the answer's diagnostics; raises nothing."""
        try:
            tree = self._edited.parse(text)
            for kept in self._kept.values():
                kept.known.move(self._edited.moved)
            bench, stamps = self._bench_of(text, tree)
        except HapError as stop:
            return Reading(text, tuple(dict.fromkeys(stop.diagnostics)))
        findings = list(self._of_blocks)
        trees = bench.programs()
        self._kept = {p.name: self._kept.get(p.name) or _Kept() for p in trees}
        programs = tuple(self._program(bench, p, findings) for p in trees)
        findings += bench.notes
        # Of a file that was read meanwhile (a cluster's) the first stamp is this one.
        self._bench, self._stamps = bench, {**stamps_of(bench), **stamps}
        return Reading(text, tuple(dict.fromkeys(findings)), programs, bench)

    def _bench_of(self, text: str, tree: nodes.File) -> tuple[Workbench, dict[Path, object]]:
        """The last bench with this text, if all but programs is what it was, here and in the files that it has read; else a new one. With it the
        stamps of these files when they were read: what is saved while graphs are built and programs checked is another file by the next time."""
        last = self._bench
        if last is not None and _all_but_programs(tree, last.bundle.main.tree) and stamps_of(last) == self._stamps:
            return last.renewed(text, tree), self._stamps
        bench = Workbench(self.path, text, tree)
        stamps = stamps_of(bench)
        _ = bench.ops
        findings: list[Diagnostic] = []
        self._blocks(bench, findings)
        self._of_blocks = tuple(findings)
        return bench, stamps

    @staticmethod
    def _blocks(bench: Workbench, findings: list[Diagnostic]) -> None:
        """The models and clusters of the file itself, by themselves."""
        for model in bench.bundle.of_main(nodes.Model):
            if all(p.default is not None for p in model.parameters):
                try:
                    bench.graph(model.name)
                except HapError as stop:
                    findings += stop.diagnostics
        for cluster in bench.bundle.of_main(nodes.Cluster):
            try:
                bench.cluster(cluster.name)
            except HapError as stop:
                findings += stop.diagnostics

    def _program(self, bench: Workbench, tree: nodes.Program, findings: list[Diagnostic]) -> LiveProgram:
        kept = self._kept[tree.name]
        try:
            checked = bench.checked(tree, known=kept.known)
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
            checked.program = spread(checked.program, cluster)
            cost = evaluate(checked.program, cluster, kept.pricer_for(checked.program, cluster))
        except HapError as stop:
            return LiveProgram(tree, "proven", checked, note="; ".join(d.message for d in stop.diagnostics))
        return LiveProgram(tree, "proven", checked, cluster, cost)


def _all_but_programs(new: nodes.File, old: nodes.File) -> bool:
    """Are the files' other blocks and imports the same objects, so in the same places?"""
    others = [[item for item in tree.items if not isinstance(item, nodes.Program)] for tree in (new, old)]
    return len(others[0]) == len(others[1]) and all(a is b for a, b in zip(*others, strict=True))


def stamps_of(bench: Workbench) -> dict[Path, object]:
    """When the other files that a bench has read, and the one that it would read by default, were written."""
    found: dict[Path, object] = {}
    for path in (*bench.others, settings_folder() / "cluster.hap"):
        try:
            seen = path.stat()
            found[path] = (seen.st_mtime_ns, seen.st_size)
        except OSError:
            found[path] = None
    return found


def _line_costs(checked: Checked, cost: Cost) -> dict[int, LineCost]:
    """All lines at once: sums over an array of [instructions, devices], in the order of the program."""
    program = checked.program
    tensors = program.graph.tensors
    places: dict[int, int] = {}  # of lines, in the order of their first instructions
    at = np.empty(len(program.instructions), dtype=np.intp)
    moved: list[int] = []
    words: list[str] = []
    for k, instruction in enumerate(program.instructions):
        place = at[k] = places.setdefault(instruction.span.line, len(places))
        if place == len(words):
            words.append(instruction.op)
            moved.append(0)
        if instruction.is_collective:
            times = program.graph.times(instruction.section)
            moved[place] += times * sum(tensors[v.tensor].bytes for v in instruction.inputs)
            words[place] = instruction.op if instruction.method is None else f"{instruction.op}, {instruction.method}"
    if not places:
        return {}
    seconds = np.array(cost.per_instruction_s)
    devices = np.zeros((len(places), seconds.shape[1]))
    np.add.at(devices, at, seconds)
    slowest = np.bincount(at, seconds.max(axis=1, initial=0.0), len(places)).tolist()
    counts = np.bincount(at, minlength=len(places)).tolist()
    return {line: LineCost(slowest[k], devices[k], counts[k], moved[k], words[k]) for line, k in places.items()}
