"""A program over nodes, each one *virtual device*, as a program over nodes × devices (HAP paper §3).

Within a node is plain data parallelism: the batch is cut among its devices by their speed, parameters and state are whole on each. What
a node sums up over its part of the batch becomes partial sums within it, reduced before anything but a sum reads them. What nodes
exchange travels in pieces: each device of a node sends a part of it, cut along another dim, and the node gathers it again; so a
node's card carries every byte once.

The result is a program like any other: the verifier proves it, the cost model charges the synchronisation inside, both executors run it. It
has a line or more for each line of the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from hapdsl.check.layout import largest_remainder
from hapdsl.graph.program import LOCAL, Instruction, Layout, Program, Value, conversion
from hapdsl.graph.training import Node, TrainingGraph
from hapdsl.theory.placements import P, Placement, R, S
from hapdsl.theory.rules import Rule

NODES, DEVICES = "nodes", "devices"  # the mesh's axes


def expand(program: Program, speeds: Sequence[Sequence[float]]) -> Program:
    """The program on a mesh of nodes × devices. `speeds` has a row for each device of `program`: those of the node's own devices.

    All rows are equally long. Raises ValueError for rows that aren't, another number of them, or a program that has several axes already.
    Cost: linear in instructions and operands.
    """
    widths = {len(row) for row in speeds}
    if len(program.layout.mesh) != 1 or len(speeds) != program.layout.devices or len(widths) != 1 or 0 in widths:
        raise ValueError("a row of speeds per device of a program on one axis, all of one length")
    layout = spread_layout(program.graph, program.layout, speeds)
    made = _Expansion(program, layout).run()
    return Program(program.name, program.graph, layout, made, program.cluster, program.model_args)


def spread_layout(graph: TrainingGraph, outside: Layout, speeds: Sequence[Sequence[float]]) -> Layout:
    """Outer shares as they were; inside a node the batch by speed, all else evenly. `speeds` as for `expand`."""
    paces = np.asarray(speeds, dtype=np.float64)
    nodes, inner = paces.shape
    batch = graph.batch
    together = (paces / paces.sum(axis=1, keepdims=True)).sum(axis=0)  # one cut for all nodes: where they hold the same
    found: dict[str, dict[tuple[int, ...], np.ndarray]] = {}
    for name, cls in graph.classes.items():
        outer = outside.shares[name][(0,)]
        weights = paces if name == batch else np.ones_like(paces)
        common = together if name == batch else np.ones(inner)
        rows = [_dealt(weights[v], int(outer[v])) for v in range(nodes)]
        found[name] = {
            (0,): np.repeat(outer, inner),
            (1,): np.tile(_dealt(common, cls.units), nodes),
            (0, 1): np.concatenate(rows),
        }
    return Layout(((NODES, nodes), (DEVICES, inner)), found)


def _dealt(weights: np.ndarray, units: int) -> np.ndarray:
    return largest_remainder(weights.tolist(), units)


class Between:
    """Single lines of programs over nodes by themselves: what lies within a node before each, and what is made of it.

    Between lines a value lies within its node as pieces of the batch, or whole where it has none; what nodes have yet to sum up without a
    batch is summed up by their devices, too.
    """

    def __init__(self, graph: TrainingGraph, layout: Layout) -> None:
        self.empty, self.layout = Program("", graph, layout, []), layout
        self.natural = _Expansion(self.empty, layout).natural

    def lying(self, value: Value) -> Value:
        """A value over nodes as it lies over nodes × devices."""
        q = self.natural(value.tensor)
        return _on(value, P if q == R and value.placement[0] == P else q)

    def lines(self, instruction: Instruction) -> list[Instruction]:
        """The expansion of a call or conversion, from operands as they lie to results that lie so, too."""
        expansion = _Expansion(self.empty, self.layout)
        expansion.have = {v: [self.lying(v).placement[-1]] for v in instruction.inputs}
        if instruction.node is not None:
            expansion.compute(instruction, instruction.node)
        else:
            expansion.convert(instruction)
        expansion.bring([(v, self.lying(v).placement[-1]) for v in instruction.outputs], instruction)
        return expansion.made


class _Expansion:
    """One walk over the program. `have` holds, for each value over nodes, the placements within them that are at hand."""

    def __init__(self, program: Program, layout: Layout) -> None:
        self.program, self.graph, self.layout = program, program.graph, layout
        self.batch = program.graph.batch
        self.have: dict[Value, list[Placement]] = {}
        self.made: list[Instruction] = []
        self.loaded: list[Value] = []
        updates = (i for i in program.instructions if i.section == "update")
        self.updated_from = list(dict.fromkeys(v for i in updates if i.node is not None for v in i.inputs))

    def run(self) -> list[Instruction]:
        for instruction in self.program.instructions:
            if instruction.node is not None:
                self.compute(instruction, instruction.node)
            elif instruction.op == "free":
                self.free(instruction)
            elif instruction.inputs:
                self.convert(instruction)
            else:
                self.load(instruction)
        self.finish()
        return self.made

    def finish(self) -> None:
        """New parameters and state as the old ones are held: whole within a node."""
        held = {v.tensor: v.placement for v in self.loaded}
        new = [Value(self.graph.updates[old], at) for old, at in held.items() if old in self.graph.updates]
        self.updated_from = []
        last = replace(self.made[-1], section="update", repeat=())
        self.bring([(v, R) for v in new if v in self.have], last)

    # -- lines ---------------------------------------------------------------------

    def load(self, instruction: Instruction) -> None:
        self.loaded += instruction.outputs
        inner = [
            self.natural(v.tensor) if self.graph.tensors[v.tensor].kind == "input" else R for v in instruction.outputs
        ]
        self.emit(instruction, (), zip(instruction.outputs, inner, strict=True))

    def compute(self, instruction: Instruction, node: Node) -> None:
        rule = self.rule(instruction, node)
        for value, q in zip(instruction.inputs, rule.inputs, strict=True):
            self.bring([(value, q)], instruction)
        inputs = tuple(_on(v, q) for v, q in zip(instruction.inputs, rule.inputs, strict=True))
        self.emit(instruction, inputs, zip(instruction.outputs, rule.outputs, strict=True))

    def convert(self, instruction: Instruction) -> None:
        """A conversion among nodes: every operand in pieces that the conversion leaves alone."""
        pairs = list(zip(instruction.inputs, instruction.outputs, strict=True))
        choose = self.left if instruction.op in LOCAL else self.carried
        carried = [choose(source, target) for source, target in pairs]
        self.bring([(source, q) for (source, _), q in zip(pairs, carried, strict=True)], instruction)
        inputs = tuple(_on(source, q) for (source, _), q in zip(pairs, carried, strict=True))
        self.emit(instruction, inputs, ((target, q) for (_, target), q in zip(pairs, carried, strict=True)))

    def free(self, instruction: Instruction) -> None:
        values = tuple(_on(v, q) for v in instruction.inputs for q in self.have.pop(v))
        self.made.append(replace(instruction, inputs=values))

    def emit(
        self, instruction: Instruction, inputs: tuple[Value, ...], outputs: Iterable[tuple[Value, Placement]]
    ) -> None:
        listed = list(outputs)
        for value, q in listed:
            self.have[value] = [q]
        self.made.append(replace(instruction, inputs=inputs, outputs=tuple(_on(v, q) for v, q in listed), axis=0))

    # -- placements within a node ------------------------------------------------------

    def natural(self, tensor: str) -> Placement:
        """Cut along the batch where it has one, else whole."""
        classes = self.graph.tensors[tensor].classes
        return S(classes.index(self.batch)) if self.batch is not None and self.batch in classes else R

    def rule(self, instruction: Instruction, node: Node) -> Rule:
        """How the devices of a node share a call: by the batch where the call has one; as sums where it only passes sums on; else each does all of it."""
        cut = [r for r in node.rules if r.index is not None and self.by_batch(node, r)]
        if cut:
            return min(cut, key=lambda r: self.moved(instruction, r))
        passed = [r for r in node.rules if P in r.inputs and self.at_hand(instruction, r)]
        return passed[0] if passed else node.rules[0]

    def by_batch(self, node: Node, rule: Rule) -> bool:
        sides = ((node.inputs, rule.inputs), (node.outputs, rule.outputs))
        return any(
            p.kind == "S" and self.graph.tensors[name].classes[p.dim] == self.batch
            for names, placements in sides
            for name, p in zip(names, placements, strict=True)
        )

    def at_hand(self, instruction: Instruction, rule: Rule) -> bool:
        return all(q in self.have[v] for v, q in zip(instruction.inputs, rule.inputs, strict=True))

    def moved(self, instruction: Instruction, rule: Rule) -> int:
        """Bytes of the operands that aren't at hand as the rule wants them."""
        pairs = zip(instruction.inputs, rule.inputs, strict=True)
        return sum(self.graph.tensors[v.tensor].bytes for v, q in pairs if q not in self.have[v])

    def carried(self, source: Value, target: Value) -> Placement:
        """In which pieces a value goes from node to node: as the batch is cut, else along the dim of most units that the conversion leaves
        alone; whole where there is none."""
        busy = {p.dim for v in (source, target) for p in v.placement if p.kind == "S"}
        natural = self.natural(source.tensor)
        if natural.kind == "S" and natural.dim not in busy:
            return natural
        classes = self.graph.tensors[source.tensor].classes
        free = [(self.graph.classes[c].units, -d) for d, c in enumerate(classes) if c is not None and d not in busy]
        most, dim = max(free, default=(1, 0))
        return S(-dim) if most > 1 else R

    def left(self, source: Value, target: Value) -> Placement:
        """For what no message carries: a placement at hand, if the conversion leaves it alone, else whole."""
        busy = {p.dim for p in (*source.placement, *target.placement) if p.kind == "S"}
        at_hand = sorted(self.have[source], key=lambda q: _PREFERRED[q.kind])
        return next((q for q in at_hand if q.kind != "S" or q.dim not in busy), R)

    # -- conversions within a node -------------------------------------------------------

    def bring(self, wanted: Sequence[tuple[Value, Placement]], instruction: Instruction) -> None:
        """Convert values within the nodes, those that change alike in one message. What updates read is brought together."""
        missing = [(v, q) for v, q in wanted if q not in self.have[v]]
        if missing and instruction.section == "update" and all(q == R for _, q in missing):
            later = [(v, R) for v in self.updated_from if v in self.have and R not in self.have[v]]
            missing = list(dict.fromkeys((*missing, *later)))
        messages: dict[str, list[tuple[Value, Placement, Placement]]] = {}
        for value, q in missing:
            source = min(self.have[value], key=lambda p: _PREFERRED[p.kind])
            how = conversion(source, q)  # sums are asked for where they, or a whole, are at hand
            assert how is not None, f"nothing turns {source} into {q}"
            messages.setdefault(how, []).append((value, source, q))
        for how, moves in messages.items():
            inputs, outputs = (
                tuple(_on(v, p) for v, p in side)
                for side in (((v, s) for v, s, _ in moves), ((v, q) for v, _, q in moves))
            )
            self.made.append(
                Instruction(
                    how, inputs, outputs, instruction.section, axis=1, span=instruction.span, repeat=instruction.repeat
                )
            )
            for value, _, q in moves:
                self.have[value].append(q)


_PREFERRED = {"R": 0, "S": 1, "P": 2}  # what is whole is cut for free; pieces are joined more cheaply than sums


def _on(value: Value, inner: Placement) -> Value:
    return Value(value.tensor, (*value.placement, inner))
