"""The verifier: any program, hand-written or synthesised, against its training graph.

A program is accepted when each line is a triple that the theory holds, its operands are at hand, shares add up to
their classes' units, and the goal is reached: the loss as `P` or `R`, every parameter and its state updated in the placement
it was loaded in. Cost: linear in the unrolled lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hapdsl.check.facts import Fact, Known, OpenLine, Reader
from hapdsl.check.findings import MOST_ERRORS, Findings
from hapdsl.check.layout import Mesh, mesh_of, read_layout
from hapdsl.check.lines import PlacedLine, unrolled
from hapdsl.check.names import tensor_of
from hapdsl.check.split import split
from hapdsl.graph.program import Program, Value, conversion
from hapdsl.graph.training import LOADED, TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, Report, error
from hapdsl.theory.placements import Placements, show


@dataclass
class Checked:
    """What a verifier knows of a program.

    `program` holds the instructions that were read; it is complete and proven only if `ok` and no `sketch`. `sketch` says that
    it leaves choices open (`?`, `...`); `free` are the classes whose shares it leaves open. `pins` are (tensor, placement), `open`
    the lines with a `?`, which aren't among the instructions.
    """

    program: Program
    diagnostics: Report
    sketch: bool = False
    free: frozenset[str] = frozenset()
    pins: list[tuple[str, Placements]] = field(default_factory=list)
    open: list[OpenLine] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.diagnostics.errors


def verify(
    program: nodes.Program, graph: TrainingGraph, devices: int | None = None, known: Known | None = None
) -> Checked:
    """Check `program` against `graph` on `devices` devices (None: the program says how many).

    Problems are in the result's `diagnostics` (codes HAP5xx), not raised. `known` is what earlier checks of the same program found out (lines
    that are still the same objects aren't read again); the answer is the same without it.
    """
    known = known or Known()
    report = Findings()
    mesh: Mesh
    try:
        mesh = mesh_of(program, devices)
    except HapError as stop:
        report.extend(stop.diagnostics)
        try:
            mesh = mesh_of(program, None)  # what is written agrees with itself, but not with the cluster
        except HapError:
            mesh = (("devices", devices or 2),)
    whole = graph
    graph = _split(program, graph, report, known)
    cuts = read_layout(program, graph, mesh, report)
    layout = known.layout(cuts.layout)
    checked = Checked(
        Program(program.name, graph, layout, [], program.cluster, dict(graph.parameters) if program.args else {}),
        report,
        is_sketch(program),
        cuts.free,
    )
    reader = known.begin(graph, layout, graph is not whole)
    _Verifier(program, graph, checked, report, known, reader).run()
    known.end()
    return checked


def _split(program: nodes.Program, graph: TrainingGraph, report: Report, known: Known) -> TrainingGraph:
    """`split`, remembered where it had nothing to say."""
    asked = tuple(
        (s.cls, s.layers) for s in program.body if isinstance(s, nodes.Shares | nodes.Ratio) and s.layers is not None
    )
    if not asked:
        return graph
    found = known.split_graph(graph, asked)
    if found is None:
        before = len(report)
        found = split(program, graph, report)
        if len(report) == before:
            known.remember_split(graph, asked, found)
    return found


def is_sketch(program: nodes.Program) -> bool:
    """Does a program leave choices open: a `...`, a placement `?`, or an argument `?`?"""
    return any(map(_is_open, _statements(program.body)))


def _statements(body: Sequence[nodes.Statement]) -> Iterator[nodes.Statement]:
    for statement in body:
        yield statement
        if isinstance(statement, nodes.Section | nodes.Turns | nodes.Microbatch):
            yield from _statements(statement.body)


def _is_open(statement: nodes.Statement) -> bool:
    match statement:
        case nodes.Rest():
            return True
        case nodes.Line(outputs=outputs, args=args):
            values = [*outputs, *(a.value for a in args if isinstance(a.value, nodes.Value))]
            return any(p.kind == "?" for v in values for p in v.placement) or any(
                isinstance(a.value, nodes.Hole) for a in args
            )
    return False


@dataclass
class _Verifier:
    tree: nodes.Program
    graph: TrainingGraph
    checked: Checked
    report: Findings
    known: Known
    reader: Reader
    # Params and state: how they were loaded.
    held: dict[str, tuple[Placements, nodes.Span]] = field(default_factory=dict)
    have: dict[str, set[Placements]] = field(default_factory=dict)
    freed: set[Value] = field(default_factory=set)
    bad: set[str] = field(default_factory=set)  # tensors whose own line was wrong: what reads them isn't blamed
    pinned: list[tuple[Value, nodes.Span]] = field(default_factory=list)

    def run(self) -> None:
        self.header()
        before = len(self.report.errors)
        try:
            for placed in unrolled(self.tree, self.graph, self.report):
                if self.report.full:
                    self.report.add(
                        "HAP519",
                        f"more than {MOST_ERRORS} errors: the rest of the program wasn't checked",
                        self.tree.span,
                    )
                    return
                try:
                    self.line(placed)
                except HapError as stop:
                    self.blame(placed, stop)
        except HapError as stop:
            self.report.extend(stop.diagnostics)
            return
        left_out = any(d.code in ("HAP512", "HAP513", "HAP514", "HAP518") for d in self.report.errors[before:])
        if not self.checked.sketch and not left_out:
            self.goal()

    def header(self) -> None:
        """The fingerprint, and that what a program says once stands at its top."""
        for statement in self.tree.body:
            if isinstance(statement, nodes.Fingerprint):
                version, _, digest = statement.value.partition(":")
                if version != "1":
                    self.report.add(
                        "HAP515",
                        f"format version '{version}' is not known here",
                        statement.span,
                        "this hapdsl reads version 1",
                    )
                elif digest != self.graph.fingerprint:
                    self.report.add("HAP516", f"this program was made for another '{self.graph.model}' ({digest}, this one is {self.graph.fingerprint})", statement.span, "plan again, or take the line away to check it as it is")  # fmt: skip
        top = {id(s) for s in self.tree.body}
        for statement in _statements(self.tree.body):
            if (
                isinstance(statement, nodes.Mesh | nodes.Shares | nodes.Ratio | nodes.Fingerprint)
                and id(statement) not in top
            ):
                kind = type(statement).__name__.lower()
                self.report.add(
                    "HAP517",
                    f"`{kind}` stands in a block",
                    statement.span,
                    "move it to the top of the program: it holds for all of it",
                )

    def blame(self, placed: PlacedLine, stop: HapError) -> None:
        """Report a line's errors once (a repeat shows the first turn), and don't blame what depends on it."""
        self.report.extend(stop.diagnostics)
        if isinstance(placed.statement, nodes.Line):
            for output in placed.statement.outputs:
                try:
                    self.bad.add(tensor_of(output.name, placed.turn, self.graph, output.span))
                except HapError:
                    continue

    # -- lines -------------------------------------------------------------------

    def line(self, placed: PlacedLine) -> None:
        """One line's fact among what came before it."""
        fact = self.known.fact(placed, self.reader)
        if isinstance(fact.statement, nodes.Pin):
            if fact.stop is not None:
                raise fact.stop
            for value in fact.makes:
                self.checked.pins.append((value.tensor, value.placement))
                self.pinned.append((value, fact.statement.span))
            return
        for value, place in fact.holds:
            self.hold(value, fact, place)
        frees = isinstance(fact.statement, nodes.Free)
        if fact.stop is not None and not frees:
            raise fact.stop
        for value, place in fact.needs:
            if value.placement not in self.have.get(value.tensor, ()):
                self.need(value, fact, place)
            if frees:
                self.have.get(value.tensor, set()).discard(value.placement)
                self.freed.add(value)
        if fact.stop is not None:
            raise fact.stop
        for value in fact.makes:
            self.have.setdefault(value.tensor, set()).add(value.placement)
            if self.freed:
                self.freed.discard(value)
        if fact.open is not None:
            self.checked.open.append(fact.open)
        elif fact.instruction is not None:
            self.checked.program.instructions.append(fact.instruction)

    def hold(self, value: Value, fact: Fact, place: int) -> None:
        """A parameter or a piece of state is held as it was loaded first."""
        assert isinstance(fact.statement, nodes.Line)
        span = fact.statement.outputs[place].span
        before = self.held.setdefault(value.tensor, (value.placement, span))[0]
        if before != value.placement:
            fix = self.bridge(before, value.placement)
            hint = (
                f"`{value} = {fix}({Value(value.tensor, before)})`" if fix else f"convert {Value(value.tensor, before)}"
            )
            raise error("HAP552", f"'{value.tensor}' is held as {show(before)} already", span, hint)

    # -- what is at hand -----------------------------------------------------------

    def need(self, value: Value, fact: Fact, place: int) -> None:
        """The value must be at hand, unless this is a sketch (the search makes it) or its own line was wrong."""
        have = self.have.get(value.tensor, set())
        if value.placement in have or value.tensor in self.bad or self.checked.sketch:
            return
        span = fact.span(place)
        if value in self.freed:
            raise error(
                "HAP560", f"{value} was freed above", span, "move the `free` line down, or make the value again"
            )
        if not have:
            raise error("HAP561", f"{value} isn't made before this line", span, self.how(value))
        source = min(have, key=lambda p: (self.bridge(p, value.placement) is None, show(p)))
        fix = self.bridge(source, value.placement)
        written = Value(value.tensor, source)
        hint = f"`{value} = {fix}({written})`" if fix else f"make {value} first"
        raise error(
            "HAP562",
            f"needs {value}; you have {', '.join(f'{value.tensor}@{show(p)}' for p in sorted(have))}",
            span,
            hint,
        )

    @staticmethod
    def bridge(source: Placements, target: Placements) -> str | None:
        changed = [(p, q) for p, q in zip(source, target, strict=True) if p != q]
        return conversion(*changed[0]) if len(changed) == 1 else None

    def how(self, value: Value) -> str:
        tensor = self.graph.tensors[value.tensor]
        if tensor.kind in LOADED:
            return f"`{value} = {LOADED[tensor.kind]}()`"
        node = self.graph.nodes[self.graph.producer[value.tensor]]
        return f"it is made by {node.op}({', '.join(node.inputs)})"

    # -- the goal ------------------------------------------------------------------

    def goal(self) -> None:
        """Loss as P or R, each param and its state updated where it is held; without training, the outputs; pins kept."""
        end = self.tree.span
        loss = self.graph.loss
        if loss is not None and loss not in self.bad and not self.have.get(loss):
            self.report.add(
                "HAP570",
                f"the loss '{loss}' is never made",
                end,
                f"`{loss}@P = accumulate({loss}.turn@P)` in update"
                if self.graph.turns > 1
                else f"end the forward section with {loss}@P or {loss}@R",
            )
        wanted = self.graph.updates if loss is not None else {}
        judged = {old: new for old, new in wanted.items() if new not in self.bad and old not in self.bad}
        self.all_loaded([old for old in judged if old not in self.held])
        for old, new in judged.items():
            if old in self.held:
                self.updated(old, new)
        for name in (*self.graph.outputs, *self.graph.metrics) if not wanted else ():
            if name not in self.bad and not self.have.get(name):
                self.report.add("HAP573", f"the output '{name}' is never made", end, self.how(Value(name, ())))
        made = {v for i in self.checked.program.instructions for v in i.outputs} if self.pinned else set()
        for value, span in self.pinned:
            if value not in made and value.tensor not in self.bad:
                self.report.add(
                    "HAP563", f"{value} is pinned, but no line makes it", span, "make it so, or take the pin away"
                )

    def all_loaded(self, missing: Sequence[str]) -> None:
        if missing:
            first, others = missing[0], len(missing) - 1
            who = f"'{first}' and {others} more are" if others else f"'{first}' is"
            load = f"`{first}@R = {LOADED[self.graph.tensors[first].kind]}()`, and its update"
            self.report.add("HAP571", f"{who} never loaded, so never updated", self.tree.span, load + (f"; so for {', '.join(missing[1:9])}{' …' if others > 8 else ''}" if others else ""))  # fmt: skip

    def updated(self, old: str, new: str) -> None:
        held = self.held[old]
        have = self.have.get(new, set())
        if held[0] in have:
            return
        value = Value(new, held[0])
        made = ", ".join(str(Value(new, p)) for p in sorted(have))
        fix = next(
            (f"`{value} = {how}({Value(new, p)})`" for p in sorted(have) if (how := self.bridge(p, held[0]))), ""
        )
        message = f"'{old}' is held as {show(held[0])}, but {'only ' + made + ' is' if made else 'its new value is never'} made"
        self.report.add("HAP572", message, held[1], fix or f"end the update with {value}")
