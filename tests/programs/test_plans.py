"""The hand-written programs: accepted, printed back, costed, and equal to one device in numbers.

Each program is run for three steps in one process that plays all devices, in float64 and in float32, beside the training
graph on one device; and once more with other shares, an empty one among them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from hapdsl.check.verify import verify
from hapdsl.check.write import write
from hapdsl.cost.evaluate import evaluate
from hapdsl.graph.program import Instruction, Program
from hapdsl.lang import nodes
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text
from tests.programs.helpers import FOLDER, WRITTEN, compare, of_params, written

NAMES = sorted(p.stem for p in FOLDER.glob("*.hap"))  # a synthesised one lies there too


def test_all_of_them() -> None:
    assert set(NAMES) >= set(WRITTEN)


@pytest.mark.parametrize("name", NAMES)
def test_accepted_and_complete(name: str) -> None:
    found = written(name)
    assert not list(found.checked.diagnostics)
    assert found.checked.ok and not found.checked.sketch
    used = {t for s in write(found.program).body if isinstance(s, nodes.Shares) for t in [s.cls]}
    assert not used & found.checked.free, "a class that is cut has no shares"


@pytest.mark.parametrize("name", WRITTEN)
def test_explained(name: str) -> None:
    """A header that says more than the name; the cluster of the demo."""
    assert written(name).tree.name == name and written(name).tree.cluster == "digits"
    header = written(name).text.split("\nimport")[0].splitlines()
    assert len(header) >= 4 and all(line.startswith("#") for line in header if line)


@pytest.mark.parametrize("name", NAMES)
def test_printed_back(name: str) -> None:
    found = written(name)
    assert to_text(parse(found.text)) == found.text
    for unroll in (False, True):
        tree = write(found.program, unroll)
        text = to_text(tree)
        (again,) = parse(text).items
        assert again == tree
        assert isinstance(again, nodes.Program)
        checked = verify(again, found.graph, len(found.cluster))
        assert checked.ok and signature(checked.program) == signature(found.program)


def signature(program: Program) -> list[tuple[object, ...]]:
    """What a program does, with loads of one run of lines taken together."""
    found: list[tuple[object, ...]] = []
    for i in program.instructions:
        if i.node is None and not i.inputs:
            found += [(i.op, v) for v in i.outputs]
        else:
            found.append((i.op, i.inputs, i.outputs, i.section, i.method, i.axis))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_costed(name: str) -> None:
    found = written(name)
    cost = evaluate(found.program, found.cluster)
    assert 0 < cost.overlap_s <= cost.sync_s * (1 + 1e-9) < 1
    assert cost.fits


@pytest.mark.parametrize("name", [n for n in WRITTEN if n != "mesh"])
def test_shares_are_uneven(name: str) -> None:
    """Shares follow the speeds 4:2:1:1 as closely as whole units allow."""
    program = written(name).program
    values = {v for i in program.instructions for v in (*i.inputs, *i.outputs)}
    cut = [program.local_bytes(v) for v in values if v.placement[0].kind == "S"]
    assert len(program.layout.mesh) == 1 and len(cut) > 3
    for lengths in cut:
        assert lengths.tolist() == [lengths[-1] * k for k in (4, 2, 1, 1)]


def collectives(program: Program) -> Counter[str]:
    return Counter(i.op for i in program.instructions if i.is_collective)


def reduced(program: Program) -> set[str]:
    """The tensors that a reduction sums up."""
    reductions = [i for i in program.instructions if i.op in ("all_reduce", "reduce_scatter") and i.is_collective]
    return {v.tensor for i in reductions for v in i.outputs}


def held(program: Program) -> dict[str, str]:
    """How parameters and state are held."""
    loads = [i for i in program.instructions if i.op in ("param", "state")]
    return {v.tensor: str(v).partition("@")[2] for i in loads for v in i.outputs}


@pytest.mark.parametrize("model", ["mlp", "layer"])
def test_each_is_what_it_says(model: str) -> None:
    plans = {idea: written(f"{model}_{idea}").program for idea in ("data_parallel", "zero", "megatron", "sfb")}
    graph = written(f"{model}_zero").graph
    gradients = of_params(graph)
    # data parallel: one message, all gradients, everything held whole
    assert collectives(plans["data_parallel"]) == {"all_reduce": 1}
    assert reduced(plans["data_parallel"]) == gradients
    assert set(held(plans["data_parallel"]).values()) == {"R"}
    # ZeRO: nothing held whole, gradients scattered, parameters gathered
    assert set(collectives(plans["zero"])) == {"all_gather", "reduce_scatter"}
    assert reduced(plans["zero"]) == gradients and "R" not in held(plans["zero"]).values()
    assert any(i.op == "free" for i in plans["zero"].instructions)
    # Megatron: gradients of parameters never travel, activations do
    assert set(collectives(plans["megatron"])) == {"all_reduce"}
    assert not reduced(plans["megatron"]) & gradients
    assert {"mlp": 1, "layer": 4}[model] == collectives(plans["megatron"])["all_reduce"]
    # SFB: factors are gathered; no matrix's gradient is reduced
    matrices = {graph.resolve(f"{t.name}.grad") for t in graph.of_kind("param") if len(t.shape) > 1}
    assert collectives(plans["sfb"])["all_gather"] == 1 and not reduced(plans["sfb"]) & matrices
    if model == "mlp":
        assert not reduced(plans["sfb"])


def test_the_mesh_moves_each_tensor_along_one_axis() -> None:
    program = written("mesh").program
    assert program.layout.mesh == (("nodes", 2), ("devices", 2))
    messages = [i for i in program.instructions if i.is_collective]
    assert [(i.axis, [v.tensor for v in i.inputs]) for i in messages] == [
        (1, ["z"]),
        (0, ["w1.grad", "b1.grad", "w2.grad"]),
    ]
    assert program.layout.groups(0) == [[0, 2], [1, 3]] and program.layout.groups(1) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("name", NAMES)
def test_equal_to_one_device_in_float64(name: str) -> None:
    found = written(name)
    compare(found.program, found.graph, torch.float64, 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_equal_to_one_device_in_float32(name: str) -> None:
    found = written(name)
    compare(found.program, found.graph, torch.float32, 2e-4, count=1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [1, 2])
def test_other_shares_with_an_empty_one(name: str, seed: int) -> None:
    """The same lines under random shares: rules hold for all of them."""
    found = written(name)
    draw = np.random.default_rng(seed)
    body = []
    for statement in found.tree.body:
        if isinstance(statement, nodes.Shares) and isinstance(statement.values, nodes.Items):
            count, total = len(statement.values.items), found.graph.classes[statement.cls].units
            cuts = np.sort(draw.integers(0, total + 1, count - 2)).tolist()
            parts = np.diff([0, *cuts, total]).tolist()
            parts.insert(int(draw.integers(0, count)), 0)
            statement = replace(statement, values=nodes.Items(tuple(nodes.Number(int(n)) for n in parts)))
        body.append(statement)
    checked = verify(replace(found.tree, body=tuple(body)), found.graph, len(found.cluster))
    assert checked.ok
    compare(checked.program, found.graph, torch.float64, 1e-9, count=1)


def test_instructions_know_where_they_stand() -> None:
    """Positions reach from the text to the instruction, for messages and the explorer."""
    found = written("mlp_zero")
    lines = found.text.splitlines()

    def line(i: Instruction) -> str:
        return lines[i.span.line - 1]

    for instruction in found.program.instructions:
        assert instruction.op in line(instruction)
