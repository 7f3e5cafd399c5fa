"""A program that was written down, as choices again: what the search would have chosen to write it.

Rules and held placements stand in the lines. What a tensor is offered as is what its lines make, or, where several offered
sets come to the same lines, the cheapest of them. Order and methods are the scheduler's own.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from hapdsl.cluster.hardware import Cluster
from hapdsl.graph.program import LOADS, Instruction, Program, Value
from hapdsl.lang.diagnostics import error
from hapdsl.search.carry import AGAIN, MADE_AGAIN, RECOMPUTED
from hapdsl.search.factors import Assignment
from hapdsl.search.messages import PARAMS
from hapdsl.search.nearby import Nearby
from hapdsl.search.shares import Shares, proportional, shares_of
from hapdsl.search.space import Space
from hapdsl.search.structure import Structure
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


def makes_again(program: Program) -> bool:
    """Does a program make some value twice, in the forward pass and after it?"""
    seen: set[Value] = set()
    for instruction in program.instructions:
        outputs = set(instruction.outputs) if instruction.op not in LOADS else set()
        if outputs & seen:
            return True
        seen |= outputs
    return False


def assignment_of(program: Program, space: Space, prices: ArrayLike) -> Assignment:
    """The assignment of `space`, made for the program's graph, that stands for a program on one axis.

    Where a program has more than its lines need, the assignment makes less. Raises HAP605 for a line that no searched
    program has.
    """
    structure = space.structure
    rules = _rules(program, structure)
    lines = _Lines(program)
    for sent, exactly in ((True, True), (False, True), (False, False)):
        graph = space.graph.copy()
        for name in (*structure.offers, *structure.holds):
            options = structure.offers[name] if name in structure.offers else structure.holds[name]
            allowed = [_stands(lines, structure, name, v, exactly) for v in range(len(options))]
            if sent:  # what messages bring is offered, if it can be: else another way to the same placement might be taken for the lines'
                brought = [
                    a and lines.sent.get(name, set()) <= _offer(structure, name, v) for v, a in enumerate(allowed)
                ]
                allowed = brought if any(brought) else allowed
            graph.factor((structure.offer_variable[name],), np.where(allowed, 0.0, np.inf))
        free = set(range(len(graph.sizes))) - set(rules)
        found = Nearby(graph, prices).solve((0,) * len(graph.sizes), rules, free)
        if found is not None:
            return found
    raise error(
        "HAP605",
        f"the search has no program like '{program.name}'",
        help="plan again, or complete a sketch of it",
        status=1,
    )


class _Lines:
    """What a program's lines say of each tensor.

    `made[t]` are the placements that come up, `sent[t]` those that messages bring, `held[p]` the one that a parameter is loaded in, `again` the tensors of which
    something is converted, `twice` those of which the call runs, in the forward pass and once more later.
    """

    def __init__(self, program: Program) -> None:
        tensors = program.graph.tensors
        self.made: dict[str, set[Placement]] = {}
        self.sent: dict[str, set[Placement]] = {}
        self.held: dict[str, Placement] = {}
        self.again: set[str] = set()
        self.twice: set[str] = set()
        early: set[Value] = set()
        for instruction in program.instructions:
            for value in instruction.outputs:
                self.made.setdefault(value.tensor, set()).add(value.placement[0])
                if instruction.is_collective:
                    self.sent.setdefault(value.tensor, set()).add(value.placement[0])
                if instruction.op in LOADS and tensors[value.tensor].kind in PARAMS:
                    self.held[value.tensor] = value.placement[0]
                elif instruction.section == "forward":
                    early.add(value)
                elif value in early:
                    (self.twice if instruction.is_compute else self.again).add(value.tensor)


def _offer(structure: Structure, name: str, value: int) -> set[Placement]:
    return set(structure.holds[name][value][1] if name in structure.holds else structure.offers[name][value])


def _stands(lines: _Lines, structure: Structure, name: str, value: int, exactly: bool) -> bool:
    """May a value of a tensor's variable stand for the lines? If not `exactly`, only what a parameter is held as counts."""
    if name in structure.holds:
        held, offer = structure.holds[name][value]
        if lines.held.get(name, held) != held:
            return False
    else:
        offer = structure.offers[name][value]
    if not exactly:
        return True
    if name in structure.carries:
        word = structure.carries[name][value]
        want = RECOMPUTED if name in lines.twice else AGAIN if name in lines.again else None
        if word != want and (want is not None or word in MADE_AGAIN):
            return False
    return name not in lines.made or set(offer) <= lines.made[name]


def _rules(program: Program, structure: Structure) -> Mapping[int, int]:
    """The value of each call's variable."""
    lines: dict[int, list[Instruction]] = {}
    for instruction in program.instructions:
        if instruction.node is not None:
            lines.setdefault(id(instruction.node), []).append(instruction)
    found = {}
    for k, (node, variable) in enumerate(zip(structure.training.nodes, structure.rule_variable, strict=True)):
        runs = lines.get(id(node))
        if runs is None:  # nobody reads what it makes
            continue
        inputs, outputs = (tuple(v.placement[0] for v in side) for side in (runs[0].inputs, runs[0].outputs))
        options = [v for v, r in enumerate(structure.rules[k]) if (r.inputs, r.outputs) == (inputs, outputs)]
        if not options:
            shown = ", ".join(map(str, runs[0].inputs))
            what = f"the search has no program that makes {runs[0].outputs[0]} from {shown}"
            raise error("HAP605", what, runs[0].span, "let `plan` complete a sketch of the rest", status=1)
        twice = [v for v in options if structure.twice[k][v] == (len(runs) > 1)]
        found[variable] = (twice or options)[0]
    return found
