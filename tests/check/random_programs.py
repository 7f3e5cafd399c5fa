"""Right programs at random: any rule for any call, any conversions that lead there, any shares, on one or two axes.

Built from the rules and the meaning of placements alone, without the verifier and without the search, so that both can be held
against it: each such program must be accepted, equal one device, and survive being written and read.
"""

from __future__ import annotations

import random
import re

import numpy as np

from hapdsl.graph.program import METHODS, Instruction, Layout, Program, Value, conversion
from hapdsl.graph.training import LOADED, Node, TrainingGraph
from hapdsl.theory.placements import Placement, Placements, R
from hapdsl.theory.rules import Rule

Repeat = tuple[tuple[str, int], ...]


def random_layout(graph: TrainingGraph, mesh: tuple[tuple[str, int], ...], draw: random.Random) -> Layout:
    """Shares with empty ones among them; on two axes each class also has shares for both together."""
    bare = Layout(mesh)
    shares: dict[str, dict[tuple[int, ...], np.ndarray]] = {}
    for name, cls in graph.classes.items():
        own = shares.setdefault(name, {})
        for axis, (_, size) in enumerate(mesh):
            own[(axis,)] = np.array(_dealt(cls.units, size, draw))[bare.coordinates[:, axis]]
        if len(mesh) == 2:
            table = np.array(_dealt(cls.units, bare.devices, draw)).reshape(mesh[0][1], mesh[1][1])
            own[(0, 1)] = table.reshape(-1)
            own[(0,)] = np.repeat(table.sum(axis=1), mesh[1][1])
    return Layout(mesh, shares)


def _dealt(units: int, devices: int, draw: random.Random) -> list[int]:
    cuts = sorted(draw.randint(0, units) for _ in range(devices - 1))
    return [b - a for a, b in zip([0, *cuts], [*cuts, units], strict=True)]


def random_program(graph: TrainingGraph, mesh: tuple[tuple[str, int], ...], seed: int, odd: bool = True) -> Program:
    """A program for `graph`. The turns of a repeat get the same choices, but (`odd`) for one call in some programs."""
    draw = random.Random(seed)
    layout = random_layout(graph, mesh, draw)
    maker = _Maker(graph, layout, draw, odd)
    maker.run()
    return Program(f"random_{seed}", graph, layout, maker.made)


class _Maker:
    def __init__(self, graph: TrainingGraph, layout: Layout, draw: random.Random, odd: bool) -> None:
        self.graph, self.layout, self.draw = graph, layout, draw
        self.axes = len(layout.mesh)
        self.seed = draw.random()
        self.made: list[Instruction] = []
        self.have: dict[str, list[Placements]] = {}
        self.held: dict[str, Placements] = {}
        # A call that goes its own way.
        self.odd = draw.choice([None, draw.randrange(len(graph.nodes))]) if odd else None

    def run(self) -> None:
        for k, node in enumerate(self.graph.nodes):
            self.node(node, odd=k == self.odd)
        for old, new in self.graph.updates.items():
            self.provide(new, self.held[old], "update", self.repeat_of(new))

    def choose(self, key: str, odd: bool = False) -> random.Random:
        """A source of choices that is the same for the same call of every turn."""
        general = re.sub(r"[.]\d+[.]", ".*.", key)
        return random.Random(f"{self.seed}{general}{odd}")

    def repeat_of(self, tensor: str) -> Repeat:
        return self.graph.nodes[self.graph.producer[tensor]].repeat

    # -- calls -------------------------------------------------------------------

    def node(self, node: Node, odd: bool) -> None:
        draw = self.choose(f"{node.section}/{'/'.join(node.outputs)}", odd)
        for _ in range(200):
            chosen = [draw.choice(node.rules) for _ in range(self.axes)]
            if self.possible(node, chosen):
                break
        else:
            chosen = [node.rules[0]] * self.axes
        inputs = []
        for k, name in enumerate(node.inputs):
            wanted = tuple(r.inputs[k] for r in chosen)
            self.provide(name, wanted, node.section, node.repeat)
            inputs.append(Value(name, wanted))
        outputs = [Value(name, tuple(r.outputs[k] for r in chosen)) for k, name in enumerate(node.outputs)]
        self.emit(Instruction(node.op, tuple(inputs), tuple(outputs), node.section, node, repeat=node.repeat))

    def possible(self, node: Node, chosen: list[Rule]) -> bool:
        sides = [(n, tuple(r.inputs[k] for r in chosen)) for k, n in enumerate(node.inputs)]
        sides += [(n, tuple(r.outputs[k] for r in chosen)) for k, n in enumerate(node.outputs)]
        return all(p.kind != "S" or p.dim in self.graph.shardable(n) for n, ps in sides for p in ps)

    def emit(self, instruction: Instruction) -> None:
        self.made.append(instruction)
        for v in instruction.outputs:
            own = self.have.setdefault(v.tensor, [])
            if v.placement not in own:
                own.append(v.placement)

    # -- conversions ---------------------------------------------------------------

    def provide(self, name: str, wanted: Placements, section: str, repeat: Repeat) -> None:
        """Load or convert until `wanted` is there."""
        draw = self.choose(f"{name}{wanted}{section}")
        if name not in self.have:
            self.load(name, wanted, section, repeat, draw)
        have = self.have[name]
        if wanted in have:
            return
        source = draw.choice(have)
        for target in self.route(source, wanted, draw):
            self.step(name, source, target, section, repeat, draw)
            source = target

    def load(self, name: str, wanted: Placements, section: str, repeat: Repeat, draw: random.Random) -> None:
        kind = self.graph.tensors[name].kind
        dims = [R, *(Placement("S", d) for d in self.graph.shardable(name))]
        placement = tuple(draw.choice(dims) for _ in range(self.axes))
        if draw.random() < 0.5 and all(p.kind != "P" for p in wanted):
            placement = wanted
        self.held[name] = placement
        self.emit(Instruction(LOADED[kind], (), (Value(name, placement),), section, repeat=repeat))

    def route(self, source: Placements, target: Placements, draw: random.Random) -> list[Placements]:
        """What to pass through, the last being `target`: inner axes become whole first, outer ones are cut first."""
        if self.axes == 1:
            p, q = source[0], target[0]
            if conversion(p, q) is None:  # partial sums of shards: through R
                return [(R,), target]
            return [target] if draw.random() < 0.7 or R in (p, q) else [(R,), target]
        route = []
        now = list(source)
        for axis in reversed(range(self.axes)):
            outer_goes = any(now[a] == now[axis] and target[a] != now[a] for a in range(axis))
            if now[axis] != R and (now[axis] != target[axis] or (outer_goes and now[axis].kind == "S")):
                now[axis] = R
                route.append(tuple(now))
        # An outer axis can't be cut under an inner one that cuts the same dim: whole first.
        for axis in range(self.axes):
            inner = [a for a in range(axis + 1, self.axes) if now[a] == target[axis] and now[a].kind == "S"]
            for a in inner if now[axis] != target[axis] else []:
                now[a] = R
                route.append(tuple(now))
        for axis in range(self.axes):
            if now[axis] != target[axis]:
                now[axis] = target[axis]
                route.append(tuple(now))
        return route

    def step(
        self, name: str, source: Placements, target: Placements, section: str, repeat: Repeat, draw: random.Random
    ) -> None:
        changed = [a for a in range(self.axes) if source[a] != target[a]]
        assert len(changed) == 1, (source, target)
        how = conversion(source[changed[0]], target[changed[0]])
        assert how is not None, (source, target)
        method = draw.choice(METHODS[how]) if how in METHODS else None
        self.emit(
            Instruction(
                how,
                (Value(name, source),),
                (Value(name, target),),
                section,
                method=method,
                axis=changed[0],
                repeat=repeat,
            )
        )
