"""Batches of another size that no program can be made for: what is said instead."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import hapdsl
from hapdsl.check.write import write
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.print import to_text
from hapdsl.resized import resized
from hapdsl.search.planner import plan
from hapdsl.virtual import plan_over
from hapdsl.workbench import Workbench
from tests.importing import modules
from tests.importing.helpers import CLUSTER
from tests.texts import LAB, PROGRAM, TINY, TINY_MODEL


def refused(text: str, batch: int) -> str:
    """What is said of a batch for the one program of a text."""
    bench = Workbench("plan.hap", text)
    with pytest.raises(HapError) as stop:
        resized(text, bench.proven(bench.program()).program, batch)
    (found,) = stop.value.diagnostics
    assert found.code == "HAP706" and found.help is not None and "drop_last" in found.help
    return found.message


def test_a_batch_that_is_a_number_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "three.hap").write_text(CLUSTER)
    module = modules.mlp()
    found = hapdsl.plan(
        module, "x : f32[8, 8]; label : i64[8]", str(tmp_path / "three.hap"), loss="cross_entropy", gap=1.0
    )
    step = found.compile(module)
    assert torch.isfinite(step(torch.randn(8, 8), torch.randint(4, (8,))))
    with pytest.raises(HapError) as stop:
        step(torch.randn(5, 8), torch.randint(4, (5,)))
    (said,) = stop.value.diagnostics
    assert said.code == "HAP706" and "a batch of 5: its size is no parameter of model" in said.message


def test_a_parameter_with_a_row_for_each_sample() -> None:
    """A smaller batch would train a part of it."""
    text = TINY.replace("    u = matmul(x, w1)", "    param p : f32[batch, hidden]\n    u = add(matmul(x, w1), p)")
    bench = Workbench("t.hap", text)
    program = plan(bench.graph(), bench.cluster("pair"), baselines=False).program
    whole = text + to_text(nodes.File((write(program),)))
    assert refused(whole, 8) == "a batch of 8 changes the shape of what is trained"


def test_a_batch_that_is_smaller_than_a_class_of_the_model() -> None:
    """The lines cut `d`, whose shares stay as they are; those of the batch go along."""
    text = TINY + PROGRAM.replace("    forward", "    shares hidden = [6, 2]\n    forward", 1)
    bench = Workbench("plan.hap", text)
    found = resized(text, bench.proven(bench.program()).program, 8)
    shares = {c: s[(0,)].tolist() for c, s in found.layout.shares.items()}
    assert shares["batch"] == [6, 2] and shares["hidden"] == [6, 2]


def test_shares_over_two_axes_are_not_cut_anew() -> None:
    """On virtual devices each node has a row of shares."""
    bench = Workbench("t.hap", TINY_MODEL + LAB)
    program = plan_over(bench.graph(), bench.cluster("lab"), baselines=False).program
    text = to_text(nodes.File((write(program),)))
    assert "shares batch over" in text and "[[" in text
    assert "doesn't work for a batch of 8" in refused(TINY_MODEL + LAB + text, 8)
