"""Right programs at random: accepted, equal to one device, and the same after being written and read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hapdsl.check.verify import verify
from hapdsl.check.write import write
from hapdsl.graph.program import Program, Value
from hapdsl.lang import nodes
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text
from hapdsl.workbench import Workbench
from tests.check.random_programs import random_program
from tests.check.subjects import ONE, SIZES, TWO, agrees, model
from tests.texts import PROGRAMS

MODELS = PROGRAMS / "models"
ALONE = (("devices", 1),)


def instructions(program: Program) -> list[tuple[str, tuple[Value, ...], tuple[Value, ...], str | None, str]]:
    """Instructions in comparable form; loads by the value, because lines may share them."""
    found = []
    for i in program.instructions:
        whole = i.node is not None or i.inputs
        found += [
            (i.op, i.inputs, outputs, i.method, i.section)
            for outputs in ([i.outputs] if whole else [(o,) for o in i.outputs])
        ]
    return found


@pytest.mark.parametrize("mesh", [ONE, TWO, ALONE], ids=["four", "two-by-two", "one"])
@pytest.mark.parametrize("name", SIZES)
def test_random_programs(name: str, mesh: tuple[tuple[str, int], ...]) -> None:
    whose = model(name)
    for seed in range(3):
        program = random_program(whose.graph, mesh, seed)
        tree = write(program, unroll=seed == 2)
        text = to_text(tree)
        (read,) = parse(text).items
        assert read == tree
        assert isinstance(read, nodes.Program)
        checked = verify(read, whose.graph, program.layout.devices)
        assert checked.ok, f"seed {seed}: {[(d.code, d.message, d.help) for d in checked.diagnostics][:3]}\n{text}"
        assert instructions(checked.program) == instructions(program), f"seed {seed}"
        assert agrees(checked, whose), f"seed {seed}"
        for value in {v for i in program.instructions for v in i.outputs}:
            for mine, theirs in zip(program.piece(value), checked.program.piece(value), strict=True):
                assert np.array_equal(mine, theirs), f"seed {seed}: {value}"
        assert write(checked.program, unroll=seed == 2) == tree
        assert max(map(len, text.splitlines())) <= 140


@pytest.mark.parametrize("seed", range(5))
def test_equal_turns_are_one_block(seed: int) -> None:
    """A program for eight layers is as long as one for five, but for messages that join several layers (there are none here). With
    fewer, what only the layers between the first and the last share would not be worth a block."""
    lengths = []
    for layers in (5, 8):
        graph = Workbench(MODELS / "gpt.hap").graph("gpt", {**SIZES["gpt"], "layers": layers})
        tree = write(random_program(graph, ONE, seed, odd=False))
        turns = [
            s
            for section in tree.body
            if isinstance(section, nodes.Section)
            for s in section.body
            if isinstance(s, nodes.Turns)
        ]
        assert [(t.start, t.stop, t.reverse) for t in turns if t.stop - t.start > 1].count((0, layers, False)) >= 1
        lengths.append(len(to_text(tree).splitlines()))
    assert lengths[0] == lengths[1]


def test_sections_out_of_order_keep_their_lines_in_order() -> None:
    """A program made by hand may say `forward` of a line behind the backward pass; written, it stands where it was."""
    whose = model("mlp")
    program = random_program(whose.graph, ONE, 1)
    mixed = [replace(i, section="forward" if k % 3 == 0 else i.section) for k, i in enumerate(program.instructions)]
    checked = verify(write(replace(program, instructions=mixed)), whose.graph, 4)
    assert checked.ok
    assert [(i.op, i.inputs) for i in checked.program.instructions if i.inputs] == [
        (i.op, i.inputs) for i in mixed if i.inputs
    ]
    assert agrees(checked, whose)
