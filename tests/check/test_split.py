"""Shares of some layers only: other pieces there, and a line that mixes pieces is no triple."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hapdsl.check.findings import Findings
from hapdsl.check.split import split, split_of
from hapdsl.check.verify import verify
from hapdsl.check.write import write
from hapdsl.lang import nodes
from hapdsl.lang.print import to_text
from tests.check.random_programs import random_program
from tests.check.subjects import ONE, TWO, agrees, model
from tests.texts import program_in


def dealt(cls: str, start: int, stop: int, values: list[int]) -> nodes.Shares:
    return nodes.Shares(cls, nodes.Items(tuple(map(nodes.Number, values))), None, nodes.Layers("layer", start, stop))


@pytest.mark.parametrize("mesh", [ONE, TWO], ids=["four", "two-by-two"])
@pytest.mark.parametrize("seed", range(4))
def test_heads_cut_otherwise_in_some_layers(seed: int, mesh: tuple[tuple[str, int], ...]) -> None:
    """Nothing ties the heads of one layer to those of another, so any shares go together."""
    whose = model("gpt")
    head = nodes.Program(
        "p", "gpt", (), None, (dealt("heads", 0, 1, []), dealt("ffn", 1, 3, []), dealt("heads", 2, 4, []))
    )
    report = Findings()
    graph = split(head, whose.graph, report)
    assert not report.errors
    assert {"heads", "heads[layer in 0..1]", "heads[layer in 2..4]", "ffn[layer in 1..3]", "ffn"} <= set(graph.classes)
    program = random_program(graph, mesh, seed, odd=False)
    text = to_text(write(program))
    tree = program_in(text)
    checked = verify(tree, whose.graph, program.layout.devices)
    assert checked.ok, [(d.code, d.message) for d in checked.diagnostics][:3]
    assert agrees(checked, whose)
    for value in {v for i in program.instructions for v in i.outputs}:
        for mine, theirs in zip(program.piece(value), checked.program.piece(value), strict=True):
            assert np.array_equal(mine, theirs), value
    assert write(checked.program) == tree


def test_pieces_differ_by_layer() -> None:
    whose = model("gpt")
    program = verify(
        nodes.Program("p", "gpt", (), None, (dealt("heads", 1, 3, [3, 1]), nodes.Ratio("heads", nodes.Items((nodes.Number(1), nodes.Number(3)))), nodes.Rest())),
        whose.graph,
        2,
    ).program  # fmt: skip
    units = {c: [int(n) for n in program.layout.shares[c][(0,)]] for c in ("heads", "heads[layer in 1..3]")}
    assert units == {"heads": [1, 3], "heads[layer in 1..3]": [3, 1]}
    assert program.graph.tensors["layer.1.block.q"].classes[1] == "heads[layer in 1..3]"
    assert program.graph.tensors["layer.1.block.q.grad"].classes[1] == "heads[layer in 1..3]"
    assert program.graph.tensors["layer.3.block.q"].classes[1] == "heads"
    assert program.graph.fingerprint == whose.graph.fingerprint


def test_what_an_index_ties_must_be_cut_alike() -> None:
    """The batch passes from layer to layer: a program that cuts it otherwise in one of them is refused, or gathers in between."""
    whose = model("gpt")
    refused = accepted = 0
    for seed in range(16):
        program = random_program(whose.graph, ONE, seed, odd=False)
        cuts = {**program.layout.shares, "batch": {(0,): np.array([3, 0, 0, 0])}}
        tree = write(replace(program, layout=replace(program.layout, shares=cuts)))
        alike = verify(replace(tree, body=(dealt("batch", 1, 2, [3, 0, 0, 0]), *tree.body)), whose.graph, 4)
        assert alike.ok
        other = verify(replace(tree, body=(dealt("batch", 1, 2, [1, 0, 2, 0]), *tree.body)), whose.graph, 4)
        assert {d.code for d in other.diagnostics} <= {"HAP537"}
        refused += not other.ok
        if other.ok:
            accepted += 1
            assert agrees(other, whose)
    assert refused >= 3 and accepted >= 1, (refused, accepted)


def test_names_of_classes_that_are_split_off() -> None:
    assert split_of("heads") == ("heads", None)
    assert split_of("layer.0.block.q.1") == ("layer.0.block.q.1", None)
    cls, layers = split_of("heads[encoder.layer in 0..12]")
    assert cls == "heads" and layers == nodes.Layers("encoder.layer", 0, 12)
