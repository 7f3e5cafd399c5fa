"""Programs to draw: small hand-written ones, and large ones that every device runs alike."""

from __future__ import annotations

import pytest

from hapdsl.cost.evaluate import Cost
from hapdsl.graph.program import Instruction, Layout, Program, Value
from hapdsl.graph.training import LOADED, TrainingGraph
from hapdsl.theory.placements import R
from hapdsl.workbench import Workbench
from tests.texts import REFERENCE


@pytest.fixture(scope="session")
def bench() -> Workbench:
    return Workbench(REFERENCE)


@pytest.fixture(scope="session")
def mixed(bench: Workbench) -> tuple[Program, Cost]:
    checked, _, cost = bench.cost(bench.program("mixed"))
    return checked.program, cost


def replicated(graph: TrainingGraph, devices: int = 2) -> Program:
    """Every device does everything."""
    found: list[Instruction] = []
    loaded: set[str] = set()
    for node in graph.nodes:
        for name in node.inputs:
            if graph.tensors[name].kind in LOADED and name not in loaded:
                loaded.add(name)
                found.append(Instruction(LOADED[graph.tensors[name].kind], (), (Value(name, (R,)),), node.section))
        inputs, outputs = (tuple(Value(n, (R,)) for n in names) for names in (node.inputs, node.outputs))
        found.append(Instruction(node.op, inputs, outputs, node.section, node))
    return Program("all", graph, Layout((("devices", devices),)), found)
