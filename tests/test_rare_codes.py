"""Codes that no text brings about and that no room's own tests have: each is provoked here once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from hapdsl.check.verify import verify
from hapdsl.graph.program import Instruction, Layout, Program, Value
from hapdsl.lang.diagnostics import HapError
from hapdsl.run import collectives
from hapdsl.run.distributed import Rank
from hapdsl.run.kernels.registry import resolve
from hapdsl.run.launch import launch
from hapdsl.run.lower import lower
from hapdsl.search.planner import plan
from hapdsl.search.space import Restriction
from hapdsl.theory.library import standard
from hapdsl.theory.placements import R, S
from hapdsl.workbench import Workbench
from tests.cases.helpers import case
from tests.texts import REFERENCE

HELD = """
model m(batch = 4, d = 6) {
    input x : f32[batch, d]
    param w : f32[d]
    y = mul(x, w)
    loss = sum(y, dims = [0, 1])
    train loss with sgd(lr = 0.1)
}
program p for m {
    shares batch = [2, 2]
    forward {
        x@R = input()
        w@R = param()
        y@R = mul(x@R, w@R)
        loss@R = sum(y@R)
    }
    ...
}
"""


def program() -> Program:
    return case(HELD).checked.program


def held_otherwise() -> None:
    """What no verified program does: the parameter's new value in another placement than the parameter."""
    p = program()
    p.instructions.append(Instruction("sgd", (), (Value("w.new", (S(0),)),), "update"))
    lower(p)


def unknown_instruction() -> None:
    p = program()
    p.instructions.append(Instruction("teleport", (), (Value("y", (S(0),)),)))
    lower(p)


def nobody_makes_it() -> None:
    p = program()
    lower(replace(p, instructions=p.instructions[2:]))


def too_short() -> None:
    collectives._expect(torch.zeros(2), 3)


def missing_module() -> None:
    resolve(replace(standard()["relu"], torch="no_such_module_at_all.relu"), {"no_such_module_at_all"})


def several_programs() -> None:
    Workbench(REFERENCE).program()


CALLS: list[tuple[str, Callable[[], Any]]] = [
    ("HAP581", several_programs),
    ("HAP701", missing_module),
    ("HAP709", held_otherwise),
    ("HAP715", unknown_instruction),
    ("HAP715", nobody_makes_it),
    ("HAP716", too_short),
]


@pytest.mark.parametrize(("code", "call"), CALLS, ids=[f"{code} {call.__name__}" for code, call in CALLS])
def test_code(code: str, call: Callable[[], Any]) -> None:
    with pytest.raises(HapError) as stop:
        call()
    assert [d.code for d in stop.value.diagnostics] == [code]


def test_nothing_to_choose() -> None:
    """HAP602: a restriction that forbids every rule."""
    bench = Workbench(REFERENCE)
    with pytest.raises(HapError) as stop:
        plan(
            bench.graph("mlp"), bench.cluster("box"), restriction=Restriction(lambda node, rule: False), baselines=False
        )
    assert [d.code for d in stop.value.diagnostics] == ["HAP602"]


def start_with_shares_of_its_own(reporter: Any, rank_shares: list[list[int]]) -> None:
    p = program()
    own = {**p.layout.shares, "batch": {(0,): np.array(rank_shares[dist.get_rank()])}}
    Rank(Program(p.name, p.graph, Layout(p.layout.mesh, own), p.instructions))


def test_ranks_with_different_programs_stop() -> None:
    """HAP717: one rank has other shares than the rest."""
    launch(start_with_shares_of_its_own, 2, ([[2, 2], [2, 2]],), method="fork")
    with pytest.raises(HapError) as stop:
        launch(start_with_shares_of_its_own, 2, ([[2, 2], [1, 3]],), method="fork")
    assert {d.code for d in stop.value.diagnostics} == {"HAP717"}


def test_a_sketch_verifies() -> None:
    """What the programs above start from is right as far as it goes."""
    found = case(HELD)
    assert found.checked.ok and found.checked.sketch
    assert verify(found.tree, found.graph, 2).ok
    assert {v.placement for i in program().instructions for v in i.outputs} == {(R,)}
