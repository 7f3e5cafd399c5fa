"""The verifier: any program, hand-written or synthesised, against its training graph.

A program is accepted when each line is a triple that the theory holds, its operands are at hand, shares add up to
their classes' units, and the goal is reached: the loss as `P` or `R`, every parameter and its state updated in the placement
it was loaded in. Cost: linear in the unrolled lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from hapdsl.check.findings import MOST_ERRORS, Findings
from hapdsl.check.layout import Mesh, mesh_of, read_layout
from hapdsl.check.lines import PlacedLine, unrolled
from hapdsl.check.names import Turn, tensor_of
from hapdsl.check.split import cut_alike, split
from hapdsl.check.triples import Patterns, compute, convert
from hapdsl.check.values import Pattern, pattern_of
from hapdsl.graph.program import COLLECTIVES, LOADS, LOCAL, Instruction, Layout, Program, Value, conversion
from hapdsl.graph.training import LOADED, TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, Report, error
from hapdsl.theory.placements import Placements, show


@dataclass(frozen=True)
class OpenLine:
    """A line of a sketch that leaves placements, or an operand, to the search. Nothing it says is false."""

    line: nodes.Line
    inputs: tuple[Pattern, ...]
    outputs: tuple[Pattern, ...]
    section: str


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


def verify(program: nodes.Program, graph: TrainingGraph, devices: int | None = None) -> Checked:
    """Check `program` against `graph` on `devices` devices (None: the program says how many).

    Problems are in the result's `diagnostics` (codes HAP5xx), not raised.
    """
    report = Findings()
    mesh: Mesh
    try:
        mesh = mesh_of(program, devices)
    except HapError as stop:
        report.extend(stop.diagnostics)
        mesh = (("devices", devices or 2),)
    whole = graph
    graph = split(program, graph, report)
    cuts = read_layout(program, graph, mesh, report)
    checked = Checked(
        Program(program.name, graph, cuts.layout, [], program.cluster, dict(graph.parameters) if program.args else {}),
        report,
        is_sketch(program),
        cuts.free,
    )
    _Verifier(program, graph, cuts.layout, checked, report, graph is not whole).run()
    return checked


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
            return any(p.kind == "?" for v in values for p in v.placement) or any(isinstance(a.value, nodes.Hole) for a in args)
    return False


@dataclass
class _Verifier:
    tree: nodes.Program
    graph: TrainingGraph
    layout: Layout
    checked: Checked
    report: Findings
    is_split: bool  # do some layers have shares of their own?
    held: dict[str, tuple[Placements, nodes.Span]] = field(default_factory=dict)  # params and state: how they were loaded
    have: dict[str, set[Placements]] = field(default_factory=dict)
    freed: set[Value] = field(default_factory=set)
    bad: set[str] = field(default_factory=set)  # tensors whose own line was wrong: what reads them isn't blamed
    pinned: list[tuple[Value, nodes.Span]] = field(default_factory=list)
    patterns: dict[tuple[object, ...], Pattern] = field(default_factory=dict)  # what was read already

    def run(self) -> None:
        self.header()
        before = len(self.report.errors)
        try:
            for placed in unrolled(self.tree, self.graph, self.report):
                if self.report.full:
                    self.report.add("HAP519", f"more than {MOST_ERRORS} errors: the rest of the program wasn't checked", self.tree.span)
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
                    self.report.add("HAP515", f"format version '{version}' is not known here", statement.span, "this hapdsl reads version 1")
                elif digest != self.graph.fingerprint:
                    self.report.add("HAP516", f"this program was made for another '{self.graph.model}' ({digest}, this one is {self.graph.fingerprint})", statement.span, "plan again, or take the line away to check it as it is")  # fmt: skip
        top = {id(s) for s in self.tree.body}
        for statement in _statements(self.tree.body):
            if isinstance(statement, nodes.Mesh | nodes.Shares | nodes.Ratio | nodes.Fingerprint) and id(statement) not in top:
                kind = type(statement).__name__.lower()
                self.report.add("HAP517", f"`{kind}` stands in a block", statement.span, "move it to the top of the program: it holds for all of it")

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
        match placed.statement:
            case nodes.Line() as line:
                self.instruction(line, placed.section, placed.turn)
            case nodes.Free() as free:
                self.free(free, placed)
            case nodes.Pin(name=name, placement=placement) as pin:
                value = self.pattern(nodes.Value(name, placement, span=pin.span), placed.turn).value
                if value is not None:
                    self.checked.pins.append((value.tensor, value.placement))
                    self.pinned.append((value, pin.span))

    def pattern(self, value: nodes.Value, turn: Turn | None) -> Pattern:
        key = (value.name, value.placement, turn if value.name.startswith(".") else None)
        found = self.patterns.get(key)
        if found is None:
            found = self.patterns[key] = pattern_of(value, turn, self.graph, self.layout)
        return found

    def free(self, free: nodes.Free, placed: PlacedLine) -> None:
        kept = []
        for written in free.values:
            value = self.pattern(written, placed.turn).value
            if value is None:
                raise error("HAP524", "`free` needs a whole placement", written.span, "name the value that ends: free h@R")
            self.need(value, written.span)
            self.have.get(value.tensor, set()).discard(value.placement)
            self.freed.add(value)
            kept.append(value)
        self.checked.program.instructions.append(Instruction("free", tuple(kept), (), placed.section, span=free.span))

    def instruction(self, line: nodes.Line, section: str, turn: Turn | None) -> None:
        written = [a.value for a in line.args if isinstance(a.value, nodes.Value)]
        outputs = [self.pattern(v, turn) for v in line.outputs]
        inputs = [self.pattern(v, turn) for v in written]
        instruction = self.triple(line, inputs, outputs, section)
        for value, place in zip(inputs, written, strict=True):
            if value.value is not None:
                self.need(value.value, place.span)
        for value in outputs:
            if value.value is not None:
                self.have.setdefault(value.tensor, set()).add(value.value.placement)
                self.freed.discard(value.value)
        if instruction is None:
            self.checked.open.append(OpenLine(line, tuple(inputs), tuple(outputs), section))
        else:
            if turn is not None:
                instruction = replace(instruction, repeat=((turn.path, turn.turn),))
            self.checked.program.instructions.append(instruction)

    def triple(self, line: nodes.Line, inputs: Patterns, outputs: Patterns, section: str) -> Instruction | None:
        if any(isinstance(a.value, nodes.Hole) and a.name is None for a in line.args):
            return None  # an operand is left open: nothing can be said of this line
        same = bool(inputs) and [v.tensor for v in inputs] == [v.tensor for v in outputs]
        if line.function in COLLECTIVES or line.function == "partial" or (line.function in LOCAL and same):
            return convert(line, inputs, outputs, self.graph, section)
        if line.function in LOADS and not line.args:
            return self.load(line, outputs, section)
        instruction = compute(line, inputs, outputs, self.graph, section)
        if self.is_split and instruction is not None and instruction.node is not None:
            cut_alike(instruction.node, instruction.inputs, instruction.outputs, self.graph, self.layout, line.span)
        return instruction

    def load(self, line: nodes.Line, outputs: Patterns, section: str) -> Instruction | None:
        made = []
        for pattern, written in zip(outputs, line.outputs, strict=True):
            kind = self.graph.tensors[pattern.tensor].kind
            loader = LOADED.get(kind)
            if loader is None:
                node = self.graph.nodes[self.graph.producer[pattern.tensor]]
                raise error("HAP550", f"'{pattern.tensor}' is computed, not loaded", written.span, f"{node.op}({', '.join(node.inputs)})")
            if loader != line.function:
                raise error("HAP550", f"'{pattern.tensor}' is loaded by {loader}()", written.span, f"`{pattern} = {loader}()`")
            if any(p is not None and p.kind == "P" for p in pattern.placement):
                raise error("HAP551", f"'{pattern.tensor}' can't be loaded as partial sums", written.span, "load it as R or S(d)")
            value = pattern.value
            if value is None:
                continue
            if kind in ("param", "state") or value.tensor in self.graph.updates:
                before = self.held.setdefault(value.tensor, (value.placement, written.span))[0]
                if before != value.placement:
                    fix = self.bridge(before, value.placement)
                    hint = f"`{value} = {fix}({Value(value.tensor, before)})`" if fix else f"convert {Value(value.tensor, before)}"
                    raise error("HAP552", f"'{value.tensor}' is held as {show(before)} already", written.span, hint)
            made.append(value)
        return Instruction(line.function, (), tuple(made), section, span=line.span) if len(made) == len(outputs) else None

    # -- what is at hand -----------------------------------------------------------

    def need(self, value: Value, span: nodes.Span) -> None:
        """The value must be at hand, unless this is a sketch (the search makes it) or its own line was wrong."""
        have = self.have.get(value.tensor, set())
        if value.placement in have or value.tensor in self.bad or self.checked.sketch:
            return
        if value in self.freed:
            raise error("HAP560", f"{value} was freed above", span, "move the `free` line down, or make the value again")
        if not have:
            raise error("HAP561", f"{value} isn't made before this line", span, self.how(value))
        source = min(have, key=lambda p: (self.bridge(p, value.placement) is None, show(p)))
        fix = self.bridge(source, value.placement)
        written = Value(value.tensor, source)
        hint = f"`{value} = {fix}({written})`" if fix else f"make {value} first"
        raise error("HAP562", f"needs {value}; you have {', '.join(f'{value.tensor}@{show(p)}' for p in sorted(have))}", span, hint)

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
            self.report.add("HAP570", f"the loss '{loss}' is never made", end, f"`{loss}@P = accumulate({loss}.turn@P)` in update" if self.graph.turns > 1 else f"end the forward section with {loss}@P or {loss}@R")
        wanted = self.graph.updates if loss is not None else {}
        judged = {old: new for old, new in wanted.items() if new not in self.bad and old not in self.bad}
        self.all_loaded([old for old in judged if old not in self.held])
        for old, new in judged.items():
            if old in self.held:
                self.updated(old, new)
        for name in (*self.graph.outputs, *self.graph.metrics) if not wanted else ():
            if name not in self.bad and not self.have.get(name):
                self.report.add("HAP573", f"the output '{name}' is never made", end, self.how(Value(name, ())))
        made = {v for i in self.checked.program.instructions for v in i.outputs}
        for value, span in self.pinned:
            if value not in made and value.tensor not in self.bad:
                self.report.add("HAP563", f"{value} is pinned, but no line makes it", span, "make it so, or take the pin away")

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
        fix = next((f"`{value} = {how}({Value(new, p)})`" for p in sorted(have) if (how := self.bridge(p, held[0]))), "")
        message = f"'{old}' is held as {show(held[0])}, but {'only ' + made + ' is' if made else 'its new value is never'} made"
        self.report.add("HAP572", message, held[1], fix or f"end the update with {value}")
