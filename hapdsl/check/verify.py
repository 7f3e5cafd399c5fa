"""The verifier: any program, hand-written or synthesised, against its training graph.

A program is accepted when each line is a triple that the theory holds, its operands are at hand, shares add up to
their classes' units, and the goal is reached: the loss as `P` or `R`, every parameter and its state updated in the placement
it was loaded in. Cost: linear in the unrolled lines.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hapdsl.check.layout import Mesh, mesh_of, read_layout
from hapdsl.check.lines import Placedline, unrolled
from hapdsl.check.names import Turn, tensor_of
from hapdsl.check.triples import compute, convert, value_of
from hapdsl.graph.program import COLLECTIVES, LOADS, LOCAL, Instruction, Layout, Program, Value, conversion
from hapdsl.graph.training import LOADED, TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, Report, error
from hapdsl.theory.placements import Placements, from_nodes, show


@dataclass
class Checked:
    """What a verifier knows of a program.

    `program` holds the instructions that were read; it is complete and proven only if `ok`. `sketch` says that
    it leaves choices open (`?`, `...`); `free` are the classes whose shares it leaves open. `pins` are (tensor, placement).
    """

    program: Program
    diagnostics: Report
    sketch: bool = False
    free: frozenset[str] = frozenset()
    pins: list[tuple[str, Placements]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.diagnostics.errors


def verify(program: nodes.Program, graph: TrainingGraph, devices: int | None = None) -> Checked:
    """Check `program` against `graph` on `devices` devices (None: the program says how many).

    Problems are in the result's `diagnostics` (codes HAP5xx), not raised.
    """
    report = Report()
    mesh: Mesh
    try:
        mesh = mesh_of(program, devices)
    except HapError as stop:
        report.extend(stop.diagnostics)
        mesh = (("devices", devices or 2),)
    cuts = read_layout(program, graph, mesh, report)
    args = {a.name or "": a.value for a in program.args}
    checked = Checked(
        Program(program.name, graph, cuts.layout, [], program.cluster, dict(graph.parameters) if args else {}),
        report,
        free=cuts.free,
    )
    _Verifier(program, graph, cuts.layout, checked).run()
    return checked


class _Verifier:
    def __init__(self, tree: nodes.Program, graph: TrainingGraph, layout: Layout, checked: Checked) -> None:
        self.tree, self.graph, self.layout, self.checked = tree, graph, layout, checked
        self.report = checked.diagnostics
        self.held: dict[str, tuple[Placements, nodes.Span]] = {}  # params and state: how they were loaded
        self.have: dict[str, set[Placements]] = {}
        self.freed: set[Value] = set()
        self.bad: set[str] = set()  # tensors whose own line was wrong: what reads them isn't blamed

    def run(self) -> None:
        self.fingerprint()
        try:
            lines = list(unrolled(self.tree, self.graph))
        except HapError as stop:
            self.report.extend(stop.diagnostics)
            return
        self.checked.sketch = any(isinstance(p.statement, nodes.Rest) for p in lines)
        for placed in lines:
            try:
                self.line(placed)
            except HapError as stop:
                self.blame(placed, stop)
        if not self.checked.sketch:
            self.goal()

    def fingerprint(self) -> None:
        for statement in self.tree.body:
            if isinstance(statement, nodes.Fingerprint):
                version, _, digest = statement.value.partition(":")
                if version != "1":
                    self.report.add("HAP515", f"format version '{version}' is not known here", statement.span, "this hapdsl reads version 1")
                elif digest != self.graph.fingerprint:
                    self.report.add("HAP516", f"this program was made for another '{self.graph.model}' ({digest}, this one is {self.graph.fingerprint})", statement.span, "plan again, or take the line away to check it as it is")  # fmt: skip

    def blame(self, placed: Placedline, stop: HapError) -> None:
        """Report a line's errors once (a repeat shows the first turn), and don't blame what depends on it."""
        known = {(d.code, d.span) for d in self.report}
        self.report.extend(d for d in stop.diagnostics if (d.code, d.span) not in known)
        if isinstance(placed.statement, nodes.Line):
            for output in placed.statement.outputs:
                try:
                    self.bad.add(tensor_of(output.name, placed.turn, self.graph, output.span))
                except HapError:
                    continue

    def line(self, placed: Placedline) -> None:
        match placed.statement:
            case nodes.Line() as line:
                self.instruction(line, placed.section, placed.turn)
            case nodes.Free(values=values) as free:
                found = [value_of(v, placed.turn, self.graph, self.layout) for v in values]
                for value, written in zip(found, values, strict=True):
                    if value is None:
                        continue
                    self.need(value, written.span)
                    self.have[value.tensor].discard(value.placement)
                    self.freed.add(value)
                kept = tuple(v for v in found if v is not None)
                self.checked.program.instructions.append(Instruction("free", kept, (), placed.section, span=free.span))
            case nodes.Pin(name=name, placement=placement) as pin:
                tensor = tensor_of(name, placed.turn, self.graph, pin.span)
                value_of(nodes.Value(name, placement, span=pin.span), placed.turn, self.graph, self.layout)
                fixed = from_nodes(placement)
                if fixed is not None:
                    self.checked.pins.append((tensor, fixed))

    def instruction(self, line: nodes.Line, section: str, turn: Turn | None) -> None:
        written_inputs = [a.value for a in line.args if isinstance(a.value, nodes.Value)]
        outputs = [value_of(v, turn, self.graph, self.layout) for v in line.outputs]
        inputs = [value_of(v, turn, self.graph, self.layout) for v in written_inputs]
        if None in outputs or None in inputs:
            self.checked.sketch = True
            return
        known_outputs = [v for v in outputs if v is not None]
        known_inputs = [v for v in inputs if v is not None]
        instruction = self.triple(line, known_inputs, known_outputs, section)
        for value, written in zip(known_inputs, written_inputs, strict=True):
            self.need(value, written.span)
        for value in known_outputs:
            self.have.setdefault(value.tensor, set()).add(value.placement)
            self.freed.discard(value)
        self.checked.program.instructions.append(instruction)

    def triple(self, line: nodes.Line, inputs: list[Value], outputs: list[Value], section: str) -> Instruction:
        same = bool(inputs) and [v.tensor for v in inputs] == [v.tensor for v in outputs]
        if line.function in COLLECTIVES or line.function == "partial" or (line.function in LOCAL and same):
            return convert(line, inputs, outputs, self.layout, section)
        if line.function in LOADS and not line.args:
            return self.load(line, outputs, section)
        return compute(line, inputs, outputs, self.graph, section)

    def load(self, line: nodes.Line, outputs: list[Value], section: str) -> Instruction:
        for value, written in zip(outputs, line.outputs, strict=True):
            kind = self.graph.tensors[value.tensor].kind
            loader = LOADED.get(kind)
            if loader is None:
                node = self.graph.nodes[self.graph.producer[value.tensor]]
                raise error("HAP550", f"'{value.tensor}' is computed, not loaded", written.span, f"{node.op}({', '.join(node.inputs)})")
            if loader != line.function:
                raise error("HAP550", f"'{value.tensor}' is loaded by {loader}()", written.span, f"`{value} = {loader}()`")
            if any(p.kind == "P" for p in value.placement):
                raise error("HAP551", f"'{value.tensor}' can't be loaded as partial sums", written.span, "load it as R or S(d)")
            if kind in ("param", "state"):
                before = self.held.get(value.tensor)
                if before is not None and before[0] != value.placement:
                    raise error("HAP552", f"'{value.tensor}' is held as {show(before[0])} already", written.span, f"convert that: `{value} = …({value.tensor}@{show(before[0])})`")  # fmt: skip
                self.held[value.tensor] = (value.placement, written.span)
        return Instruction(line.function, (), tuple(outputs), section, span=line.span)

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

    def goal(self) -> None:
        """Loss as P or R, each param and its state updated where it is held; without training, the outputs."""
        end = self.tree.span
        loss = self.graph.loss
        if loss is not None and loss not in self.bad:
            kinds = self.have.get(loss, set())
            if not any(p.kind != "S" for placement in kinds for p in placement):
                self.report.add("HAP570", f"the loss '{loss}' is never made", end, f"end the forward section with {loss}@P or {loss}@R")
        wanted = self.graph.updates if loss is not None else {}
        for old, new in wanted.items():
            if new in self.bad or old in self.bad:
                continue
            held = self.held.get(old)
            if held is None:
                self.report.add("HAP571", f"'{old}' is never loaded, so never updated", end, f"`{old}@R = {LOADED[self.graph.tensors[old].kind]}()`, and its update")  # fmt: skip
            elif held[0] not in self.have.get(new, set()):
                made = ", ".join(f"{new}@{show(p)}" for p in sorted(self.have.get(new, set())))
                message = f"'{old}' is held as {show(held[0])}, but {'only ' + made + ' is' if made else 'its new value is never'} made"
                self.report.add("HAP572", message, held[1], f"end the update with {new}@{show(held[0])}")
        for name in (*self.graph.outputs, *self.graph.metrics) if not wanted else ():
            if name not in self.bad and not self.have.get(name):
                self.report.add("HAP573", f"the output '{name}' is never made", end, "compute it")
