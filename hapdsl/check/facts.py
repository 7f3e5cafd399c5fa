"""What a line says by itself, wherever it stands among others: its values, its instruction, or why it is no triple.

A fact depends on the line's text, its turn and section, the graph, and on which axes the layout cuts each class, so it holds until one of these
changes. What came before the line (which values are at hand, how parameters are held) is the verifier's part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hapdsl.check.lines import PlacedLine
from hapdsl.check.names import Turn
from hapdsl.check.split import cut_alike
from hapdsl.check.triples import Patterns, call_of, compute, convert, has_hole, is_conversion, sources
from hapdsl.check.values import Pattern, pattern_of
from hapdsl.graph.program import LOADS, Instruction, Layout, Value
from hapdsl.graph.training import LOADED, TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, error

Written = nodes.Line | nodes.Free | nodes.Pin | nodes.Rest


@dataclass(frozen=True)
class OpenLine:
    """A line of a sketch that leaves placements, or an operand, to the search. Nothing it says is false."""

    line: nodes.Line
    inputs: tuple[Pattern, ...]
    outputs: tuple[Pattern, ...]
    section: str


@dataclass(frozen=True, slots=True)
class Fact:
    """What one line says. `stop` is what is wrong with it; of what stands before the fault the rest still holds.

    `needs` are the values it reads and `holds` the parameters and state it loads, each with its place among the values written there; `makes`
    are the values it makes.
    """

    statement: Written
    instruction: Instruction | None = None
    needs: tuple[tuple[Value, int], ...] = ()
    holds: tuple[tuple[Value, int], ...] = ()
    makes: tuple[Value, ...] = ()
    open: OpenLine | None = None
    stop: HapError | None = None

    def span(self, place: int) -> nodes.Span:
        """Where the value stands that is read at a place."""
        return read_by(self.statement)[place].span

    def at(self, statement: Written) -> Fact | None:
        """The same fact of the same line elsewhere in the text; None where it says where it stood."""
        if self.stop is not None or self.open is not None:
            return None
        moved = self.instruction and replace(self.instruction, span=statement.span)
        return Fact(statement, moved, self.needs, self.holds, self.makes)


def read_by(statement: Written) -> list[nodes.Value]:
    """The values that a statement reads, as written."""
    if isinstance(statement, nodes.Line):
        return [a.value for a in statement.args if isinstance(a.value, nodes.Value)]
    return list(statement.values) if isinstance(statement, nodes.Free) else []


@dataclass
class Reader:
    """Makes facts of lines for one graph and layout."""

    graph: TrainingGraph
    layout: Layout
    is_split: bool  # do some layers have shares of their own?
    patterns: dict[tuple[object, ...], Pattern] = field(default_factory=dict)  # what was read already

    def fact(self, placed: PlacedLine) -> Fact:
        """What a line says; it raises nothing."""
        match placed.statement:
            case nodes.Line() as line:
                return self._line(line, placed.section, placed.turn)
            case nodes.Free() as free:
                return self._free(free, placed)
            case nodes.Pin(name=name, placement=placement) as pin:
                try:
                    value = self.pattern(nodes.Value(name, placement, span=pin.span), placed.turn).value
                except HapError as stop:
                    return Fact(pin, stop=stop)
                return Fact(pin, makes=() if value is None else (value,))
        return Fact(placed.statement)

    def pattern(self, value: nodes.Value, turn: Turn | None) -> Pattern:
        """The value that is written in a turn of a repeat. Raises what `pattern_of` raises: names that aren't there, placements that can't be."""
        key = (value.name, value.placement, turn if value.name.startswith(".") else None)
        found = self.patterns.get(key)
        if found is None:
            found = self.patterns[key] = pattern_of(value, turn, self.graph, self.layout)
        return found

    def _free(self, free: nodes.Free, placed: PlacedLine) -> Fact:
        kept: list[Value] = []
        stop = None
        for written in free.values:
            try:
                value = self.pattern(written, placed.turn).value
                if value is None:
                    raise error(
                        "HAP524", "`free` needs a whole placement", written.span, "name the value that ends: free h@R"
                    )
            except HapError as problem:
                stop = problem
                break
            kept.append(value)
        needs = tuple((value, k) for k, value in enumerate(kept))
        made = Instruction("free", tuple(kept), (), placed.section, span=free.span) if stop is None else None
        return Fact(free, made, needs, stop=stop)

    def _line(self, line: nodes.Line, section: str, turn: Turn | None) -> Fact:
        holds: list[tuple[Value, int]] = []
        try:
            outputs = tuple([self.pattern(v, turn) for v in line.outputs])
            inputs = tuple([self.pattern(v, turn) for v in read_by(line)])
            instruction = self._triple(line, inputs, outputs, section, holds)
        except HapError as stop:
            return Fact(line, holds=tuple(holds), stop=stop)
        left_open = OpenLine(line, inputs, outputs, section) if instruction is None else None
        if instruction is not None and turn is not None:
            instruction = replace(instruction, repeat=((turn.path, turn.turn),))
        needs = tuple([(p.value, k) for k, p in enumerate(inputs) if p.value is not None])
        makes = tuple([p.value for p in outputs if p.value is not None])
        return Fact(line, instruction, needs, tuple(holds), makes, left_open)

    def _triple(
        self, line: nodes.Line, inputs: Patterns, outputs: Patterns, section: str, holds: list[tuple[Value, int]]
    ) -> Instruction | None:
        if is_conversion(line, inputs, outputs, self.graph):
            return convert(line, sources(line, inputs, outputs), outputs, self.graph, section)
        if line.function in LOADS and not line.args:
            return self._load(line, outputs, section, holds)
        if has_hole(line):
            call_of(line, outputs, self.graph, section)
            return None  # nothing more can be said of this line
        instruction = compute(line, inputs, outputs, self.graph, section)
        if self.is_split and instruction is not None and instruction.node is not None:
            cut_alike(instruction.node, instruction.inputs, instruction.outputs, self.graph, self.layout, line.span)
        return instruction

    def _load(
        self, line: nodes.Line, outputs: Patterns, section: str, holds: list[tuple[Value, int]]
    ) -> Instruction | None:
        made = []
        for k, (pattern, written) in enumerate(zip(outputs, line.outputs, strict=True)):
            kind = self.graph.tensors[pattern.tensor].kind
            loader = LOADED.get(kind)
            if loader is None:
                node = self.graph.nodes[self.graph.producer[pattern.tensor]]
                raise error(
                    "HAP550",
                    f"'{pattern.tensor}' is computed, not loaded",
                    written.span,
                    f"{node.op}({', '.join(node.inputs)})",
                )
            if loader != line.function:
                raise error(
                    "HAP550", f"'{pattern.tensor}' is loaded by {loader}()", written.span, f"`{pattern} = {loader}()`"
                )
            if any(p is not None and p.kind == "P" for p in pattern.placement):
                raise error(
                    "HAP551",
                    f"'{pattern.tensor}' can't be loaded as partial sums",
                    written.span,
                    "load it as R or S(d)",
                )
            value = pattern.value
            if value is None:
                continue
            if kind in ("param", "state") or value.tensor in self.graph.updates:
                holds.append((value, k))
            made.append(value)
        return (
            Instruction(line.function, (), tuple(made), section, span=line.span) if len(made) == len(outputs) else None
        )


TurnKey = tuple[str, str, int]
Facts = dict[TurnKey, Fact]


class Known:
    """What the last check of a program found out, for the next one: facts of lines that are still the same objects, the layout, the split graph.

    Give it to `verify` again and again; the answers are those of a check from scratch.
    """

    def __init__(self) -> None:
        self._facts: dict[
            int, tuple[Written, Facts]
        ] = {}  # by the statement's id; holding it keeps that from being reused
        self._now: dict[int, tuple[Written, Facts]] = {}
        self._read_as: tuple[object, ...] = ()
        self._reader: Reader | None = None
        self._split: tuple[TrainingGraph, tuple[object, ...], TrainingGraph] | None = None

    def split_graph(self, graph: TrainingGraph, asked: tuple[object, ...]) -> TrainingGraph | None:
        """What `graph` was split into last, if the same was asked for."""
        return (
            self._split[2] if self._split is not None and self._split[0] is graph and self._split[1] == asked else None
        )

    def remember_split(self, graph: TrainingGraph, asked: tuple[object, ...], found: TrainingGraph) -> None:
        self._split = (graph, asked, found)

    def layout(self, layout: Layout) -> Layout:
        """The layout of the last check, if it is the same."""
        last = self._reader.layout if self._reader is not None else None
        return last if last is not None and same_layout(last, layout) else layout

    def begin(self, graph: TrainingGraph, layout: Layout, is_split: bool) -> Reader:
        """Facts are made anew where what they depend on differs."""
        cut_on = tuple((cls, tuple(axes)) for cls, axes in layout.shares.items())
        read_as = (id(graph), layout.mesh, cut_on, is_split, id(layout) if is_split else 0)
        if self._reader is None or read_as != self._read_as:
            self._facts, self._read_as = {}, read_as
        self._reader = Reader(graph, layout, is_split)  # keeps graph and layout, so that their ids stay theirs
        self._now = {}
        return self._reader

    def fact(self, placed: PlacedLine, reader: Reader) -> Fact:
        """What a line says in its turn, read by `reader` where it wasn't read before. Never raises: what is wrong is the fact's `stop`."""
        statement, turn = placed.statement, placed.turn
        own = self._now.get(id(statement))
        if own is None:
            own = self._facts.get(id(statement)) or (statement, {})
            self._now[id(statement)] = own
        key = (placed.section, turn.path, turn.turn) if turn is not None else (placed.section, "", 0)
        found = own[1].get(key)
        if found is None:
            found = own[1][key] = reader.fact(placed)
        return found

    def end(self) -> None:
        """Forget the lines that the program no longer has."""
        self._facts = self._now

    def move(self, moved: Mapping[int, nodes.Statement]) -> None:
        """Lines stand elsewhere in the text now: by the id of the statement before, the same one at its new place."""
        for old, statement in moved.items():
            known = self._facts.pop(old, None)
            if known is not None and isinstance(statement, nodes.Line | nodes.Free | nodes.Pin | nodes.Rest):
                facts = {key: found for key, fact in known[1].items() if (found := fact.at(statement)) is not None}
                self._facts[id(statement)] = (statement, facts)


def same_layout(a: Layout, b: Layout) -> bool:
    """Are all classes cut alike on the same mesh?"""
    if a.mesh != b.mesh or list(a.shares) != list(b.shares):
        return False
    return all(
        list(own) == list(b.shares[cls]) and all((own[axes] == b.shares[cls][axes]).all() for axes in own)
        for cls, own in a.shares.items()
    )
