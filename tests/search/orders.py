"""The cheapest order of a program's instructions, by trying all of them: what no canonical scheduler may hide.

The instructions of a program with what each needs; a state is the set of those done and each device's seconds since the start. A call may run
as soon as its operands are there. A collective waits for the slowest device, as stages have it. `grouping` says which collectives
may share a message (a state then moves by any set of them that is ready):

- "written": those that the program has in one message, and no others.
- "waiting": gradients on their way to an update with each other, parameters with each other, updated parameters with each other, if they are of one kind.
- "any": all of one kind, activations too.

Among states with the same instructions done only those are kept that no other is before on every device. Exponential in what can run side by side.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial

import numpy as np

from hapdsl.cluster import Cluster
from hapdsl.cost.pricing import Pricer
from hapdsl.graph.program import COLLECTIVES, METHODS, Instruction, Program, Value
from hapdsl.graph.training import TrainingGraph

from .clocks import earliest

GROUPINGS = ("written", "waiting", "any")


@dataclass(frozen=True)
class _Step:
    """An instruction, the steps that make its operands, and which others it may share a message with (None: no collective)."""

    instruction: Instruction
    needs: int  # bits
    group: object = None


class Orders:
    """The cheapest order of one program after another, on one cluster; messages are priced once."""

    def __init__(self, graph: TrainingGraph, cluster: Cluster, pricer: Pricer, grouping: str) -> None:
        assert grouping in GROUPINGS
        self.graph, self.cluster, self.pricer, self.grouping = graph, cluster, pricer, grouping
        self._messages: dict[tuple[Instruction, ...], float] = {}

    def cheapest(self, program: Program) -> float:
        """Seconds of the program's instructions in their best order."""
        steps = self.steps(program)
        everything = (1 << len(steps)) - 1
        seconds = [self.pricer.price(s.instruction).seconds if s.group is None else None for s in steps]
        total, _ = earliest(
            [0], len(self.cluster), partial(self.moves, steps, seconds), lambda done: done == everything
        )
        return total

    def moves(
        self, steps: list[_Step], seconds: list[np.ndarray | None], done: int, clock: tuple[float, ...]
    ) -> list[tuple[int, tuple[float, ...]]]:
        ready = [k for k, s in enumerate(steps) if not done >> k & 1 and s.needs & ~done == 0]
        # What is free goes at once. It costs nothing and takes nothing away.
        free = [k for k in ready if (t := seconds[k]) is not None and not t.any()]
        if free:
            return [(done | sum(1 << k for k in free), clock)]
        found = []
        groups: dict[object, list[int]] = {}
        for k in ready:
            if (t := seconds[k]) is not None:
                found.append((done | 1 << k, tuple((np.array(clock) + t).tolist())))
            else:
                groups.setdefault(steps[k].group, []).append(k)
        for members in groups.values():
            for size in range(1, len(members) + 1):
                for chosen in itertools.combinations(members, size):
                    together = max(clock) + self.message(tuple(steps[k].instruction for k in chosen))
                    found.append((done | sum(1 << k for k in chosen), (together,) * len(clock)))
        return found

    def message(self, parts: tuple[Instruction, ...]) -> float:
        """Seconds of several collectives in one message, by the cheapest method."""
        if parts not in self._messages:
            inputs = tuple(v for i in parts for v in i.inputs)
            outputs = tuple(v for i in parts for v in i.outputs)
            op = parts[0].op
            lines = [Instruction(op, inputs, outputs, method=m) for m in METHODS[op]]
            self._messages[parts] = min(float(self.pricer.price(line).seconds.max()) for line in lines)
        return self._messages[parts]

    # -- the program in steps ----------------------------------------------------------

    def steps(self, program: Program) -> list[_Step]:
        atoms: list[Instruction] = []
        for i in program.instructions:
            apart = self.grouping != "written" and i.node is None and i.op in COLLECTIVES
            if apart:
                atoms += [Instruction(i.op, (a,), (b,)) for a, b in zip(i.inputs, i.outputs, strict=True)]
            else:
                atoms.append(i)
        made: dict[Value, int] = {}
        for k, atom in enumerate(atoms):
            for value in atom.outputs:
                made.setdefault(value, k)
        found = []
        for k, atom in enumerate(atoms):
            needs = sum({1 << made[v] for v in atom.inputs})
            found.append(_Step(atom, needs, self.group(k, atom) if atom.is_collective else None))
        return found

    def group(self, k: int, atom: Instruction) -> object:
        if self.grouping == "any":
            return atom.op
        what = None if self.grouping == "written" else self.travels_with(atom.inputs[0].tensor)
        return ("alone", k) if what is None else (what, atom.op)

    def travels_with(self, tensor: str) -> str | None:
        graph = self.graph
        if tensor not in graph.producer:
            return "parameters"
        if graph.nodes[graph.producer[tensor]].section == "update":
            return "updated"
        readers = graph.readers[tensor]
        return "gradients" if readers and all(graph.nodes[r].section == "update" for r in readers) else None
