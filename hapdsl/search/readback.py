"""A program that was written down, as choices again: what the search would have chosen to write it.

Rules and held placements stand in the lines. What a tensor is offered as is what its lines make, or, where several offered
sets come to the same lines, the cheapest of them. Order and methods are the scheduler's own.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from hapdsl.cluster.hardware import Cluster
from hapdsl.graph.program import Instruction, Program
from hapdsl.lang.diagnostics import error
from hapdsl.search.nearby import Assignment, Nearby
from hapdsl.search.shares import Shares, proportional, shares_of
from hapdsl.search.space import Space
from hapdsl.search.structure import PARAMS, Structure
from hapdsl.theory.placements import Placement


def cut_classes(program: Program) -> list[str]:
    """The dimension classes that a program cuts, in the graph's order."""
    graph = program.graph
    values = {v for i in program.instructions for v in (*i.inputs, *i.outputs)}
    cut = {graph.tensors[v.tensor].classes[p.dim] for v in values for p in v.placement if p.kind == "S"}
    return [c for c in graph.classes if c in cut]


def settled(program: Program, cluster: Cluster) -> Shares:
    """A program's shares; classes that it doesn't cut, whose shares say nothing about it, are cut by speed."""
    if len(program.layout.mesh) > 1:
        what = f"'{program.name}' is on a mesh of {len(program.layout.mesh)} axes"
        raise error("HAP604", what, help="the search, and so what it knows of other choices, is on one axis", status=1)
    by_speed = proportional(program.graph, cluster.speeds("f32"))
    own = shares_of(program.layout)
    return {c: own[c] if c in cut_classes(program) else by_speed[c] for c in program.graph.classes}


def assignment_of(program: Program, space: Space, prices: ArrayLike) -> Assignment:
    """The assignment of `space`, made for the program's graph, that stands for a program on one axis.

    Where a program has more than its lines need, the assignment makes less. Raises HAP605 for a line that no searched
    program has.
    """
    structure = space.structure
    rules = _rules(program, structure)
    made: dict[str, set[Placement]] = {}
    for instruction in program.instructions:
        for value in instruction.outputs:
            made.setdefault(value.tensor, set()).add(value.placement[0])
    held = _held(program)
    for exactly in (True, False):
        graph = space.graph.copy()
        for name, options in structure.offers.items():
            if exactly and name in made:
                allowed = [set(o) <= made[name] for o in options]
                graph.factor((structure.offer_variable[name],), np.where(allowed, 0.0, np.inf))
        for name, pairs in structure.holds.items():
            if name in held:
                allowed = [h == held[name] and (not exactly or set(o) <= made[name]) for h, o in pairs]
                graph.factor((structure.offer_variable[name],), np.where(allowed, 0.0, np.inf))
        free = set(range(len(graph.sizes))) - set(rules)
        found = Nearby(graph, prices).solve((0,) * len(graph.sizes), rules, free)
        if found is not None:
            return found
    raise error("HAP605", f"the search has no program like '{program.name}'", help="plan again, or complete a sketch of it", status=1)


def _rules(program: Program, structure: Structure) -> Mapping[int, int]:
    """The value of each call's variable."""
    lines: dict[int, Instruction] = {}
    for instruction in program.instructions:
        if instruction.node is not None:  # a call that runs again has its first rule: what it makes first is what is missing then
            lines.setdefault(id(instruction.node), instruction)
    found = {}
    for k, (node, variable) in enumerate(zip(structure.training.nodes, structure.rule_variable, strict=True)):
        line = lines.get(id(node))
        if line is None:  # nobody reads what it makes
            continue
        inputs, outputs = (tuple(v.placement[0] for v in side) for side in (line.inputs, line.outputs))
        options = [(r.inputs, r.outputs) for r in structure.rules[k]]
        if (inputs, outputs) not in options:
            shown = ", ".join(map(str, line.inputs))
            what = f"the search has no program that makes {line.outputs[0]} from {shown}"
            raise error("HAP605", what, line.span, "let `plan` complete a sketch of the rest", status=1)
        found[variable] = options.index((inputs, outputs))
    return found


def _held(program: Program) -> dict[str, Placement]:
    tensors = program.graph.tensors
    loads = (v for i in program.instructions if i.node is None and not i.inputs for v in i.outputs)
    return {v.tensor: v.placement[0] for v in loads if tensors[v.tensor].kind in PARAMS}
