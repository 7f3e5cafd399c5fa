"""The image models and the recommender on three devices of speeds 3 : 1 : 1: planned, proven, run beside one device.

Sizes and links are such that each kind of cut pays somewhere: by batch, input and output channels, hidden units, rows and columns
of tables, and whole layers of which only the factors of the gradient are exchanged.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from hapdsl.graph.program import Instruction
from hapdsl.graph.training import TrainingGraph
from hapdsl.run.validate import random_layout
from hapdsl.search.plan import Plan
from hapdsl.search.planner import plan
from hapdsl.search.shares import proportional
from hapdsl.theory.placements import P
from tests.check.random_programs import random_program
from tests.graph.helpers import example, graph_of
from tests.graph.vision_models import VISION
from tests.programs.helpers import compare, falls_without, placed, reread, shares, three
from tests.programs.sizes import CASES


@cache
def graph(name: str) -> TrainingGraph:
    return example(CASES[name].model, **CASES[name].settings)


@cache
def planned(name: str) -> Plan:
    weights = CASES[name].weights
    fixed = proportional(graph(name), np.array(weights, dtype=float)) if weights else None
    return plan(graph(name), three(CASES[name].bandwidth), gap=0.05, baselines=False, fixed=fixed)


def calls(name: str, op: str, *reads: str) -> list[str]:
    """The placements of the calls of an operator in order, or of those that read a tensor of such a name."""
    found = [i for i in planned(name).program.instructions if i.op == op and i.node is not None]
    return [placed(i) for i in found if not reads or any(v.tensor in reads for v in i.inputs)]


def test_every_model_is_here() -> None:
    assert {case.model for case in CASES.values()} == set(VISION)


@pytest.mark.parametrize("name", CASES)
def test_planned_proven_and_equal_to_one_device(name: str) -> None:
    """Loss, every gradient and every update."""
    found = planned(name)
    assert found.bound_s <= found.cost_s and found.gap < 0.1
    compare(reread(found.program), graph(name), torch.float64, 1e-9, count=2)


@pytest.mark.parametrize("name", CASES)
def test_the_same_lines_under_other_shares(name: str) -> None:
    """A device without work in every class, another one in each."""
    program = planned(name).program
    layout = random_layout(graph(name), program.layout.mesh, random.Random(1))
    assert all(0 in own[(0,)] for own in layout.shares.values())
    compare(reread(replace(program, layout=layout)), graph(name), torch.float64, 1e-9, count=1)


@pytest.mark.parametrize("name", VISION)
def test_any_rule_of_any_call(name: str) -> None:
    """Programs at random, on one axis and (but for the deepest model) on two: what the search never picks runs as well."""
    own = example(name, **VISION[name][1])
    meshes = [(("devices", 3),), (("nodes", 2), ("devices", 2))]
    for seed, mesh in enumerate(meshes[:1] if name == "resnet" else meshes):
        compare(reread(random_program(own, mesh, seed)), own, torch.float64, 1e-9, count=1)


# -- one kind of cut each ------------------------------------------------------------


def test_batch_where_images_are_large() -> None:
    """Every convolution of the residual network, and of VGG19 those before its channels pay."""
    assert set(calls("resnet", "conv2d")) == {"S(0), R -> S(0)"}
    assert calls("vgg19", "conv2d")[:8] == ["S(0), R -> S(0)"] * 8
    assert shares(planned("vgg19"), "batch") == [3, 1, 1]


def test_channels_where_images_are_small() -> None:
    """Output channels of one convolution are input channels of the next, which gives partial sums: columns and rows."""
    assert calls("vgg19", "conv2d")[-4:] == ["R, S(0) -> S(1)", "S(1), S(1) -> P"] * 2
    assert shares(planned("vgg19"), "c5") == [6, 2, 2]


@pytest.mark.parametrize("rule", ["R, S(0) -> S(1)", "S(1), S(1) -> P"])
def test_channels_stand_on_their_rules(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["vgg19"]
    assert falls_without(planned("vgg19"), lambda: example(case.model, **case.settings), "conv2d", rule, monkeypatch)


def test_groups_of_channels() -> None:
    """Deep in the U-Net a device normalises the groups whose channels it has made."""
    assert calls("unet", "conv2d", "down5.block.conv1.weight") == ["R, S(0) -> S(1)"]
    assert calls("unet", "group_norm", "down5.block.conv1.norm.weight") == ["S(1), S(0), S(0) -> S(1)"]
    assert shares(planned("unet"), "w5") == [3, 1, 1]


def test_wide_layers_by_columns_and_rows() -> None:
    """Of VGG19 and of the transformer's feed-forward parts: what is wide is never gathered."""
    assert calls("vgg19", "matmul", "fc2.linear.weight", "fc3.weight") == ["R, S(1) -> S(1)", "S(1), S(0) -> P"]
    assert shares(planned("vgg19"), "wide") == [300, 100, 100]
    for part, cut in (("w1", "R, S(1) -> S(2)"), ("w2", "S(2), S(0) -> P")):
        assert calls("vit", "matmul", *(f"layer.{k}.encoder.feed_forward.{part}" for k in range(2))) == [cut] * 2


def test_batch_statistics_are_summed_over_all_devices() -> None:
    """Mean and mean square of each normalisation are partial sums, and so are the gradients of mean and variance."""
    program = planned("resnet").program
    assert set(calls("resnet", "batch_norm_stats")) == {"S(0) -> P, P"}
    reduced = {v.tensor for i in program.instructions if i.op == "all_reduce" for v in i.inputs}
    for call in (i for i in program.instructions if i.op in ("batch_norm_stats", "batch_norm_grad")):
        assert {v.tensor for v in call.outputs if v.placement[0] == P} <= reduced


def test_tables_by_columns() -> None:
    """Slices of the vectors of the whole batch become whole vectors of a part of it."""
    assert calls("dlrm", "embedding_bag") == ["R, S(1) -> S(2)"] * 8
    assert calls("dlrm", "bmm_nt") == ["S(0), S(0) -> S(0)"]
    moves = {
        (v.tensor, o.placement)
        for i in planned("dlrm").program.instructions
        if i.op == "all_to_all"
        for v, o in zip(i.inputs, i.outputs, strict=True)
    }
    assert {t for t, _ in moves} >= {f"e{k}" for k in range(1, 9)}
    assert shares(planned("dlrm"), "d") == [6, 2, 2] and shares(planned("dlrm"), "batch") == [30, 10, 10]


def test_tables_by_rows() -> None:
    """Vectors of two numbers can't be cut for three devices: their partial sums are scattered by batch."""
    name = "dlrm of narrow tables"
    assert calls(name, "embedding_bag") == ["R, S(0) -> P"] * 8
    scattered = {v.tensor for i in planned(name).program.instructions if i.op == "reduce_scatter" for v in i.inputs}
    assert scattered >= {f"e{k}" for k in range(1, 9)}


# -- sufficient factors ----------------------------------------------------------------

# A wide layer between filters that can only be cut by batch: images have one channel, and their sides stay whole.
FILTERS = """
model filters(batch = 10, size = 16, filters = 4) {
    input image, target : f32[batch, 1, size, size]
    param w : f32[size * size, size * size] init normal(std = 0.05)
    x = image
    repeat before in filters {
        param k : f32[1, 1, 11, 11] init normal(std = 0.1)
        x = tanh(conv2d(x, k, pad = 5))
    }
    wide = reshape(x, [batch, size * size])
    u = matmul(wide, w)
    y = reshape(u, [batch, 1, size, size])
    repeat behind in filters {
        param k : f32[1, 1, 11, 11] init normal(std = 0.1)
        y = conv2d(tanh(y), k, pad = 5)
    }
    loss = mse_loss(y, target)
    train loss with sgd(lr = 0.1)
}"""


@cache
def filters(latency: str) -> Plan:
    return plan(graph_of(FILTERS), three("0.1 GB/s", latency), baselines=True)


def product(found: Plan, op: str) -> Instruction:
    (call,) = (i for i in found.program.instructions if i.op == op)
    return call


def test_sufficient_factors_are_broadcast_where_that_pays() -> None:
    """The gradient of the wide layer is made of ten rows on each side, which every device gathers; then all of them multiply, and
    nothing of the gradient is exchanged. Each message costs much here: to cut the layer takes more of them."""
    found = filters("150 us")
    assert [placed(product(found, op)) for op in ("matmul", "matmul_tn")] == ["S(0), R -> S(0)", "R, R -> R"]
    gathered = {v.tensor for i in found.program.instructions if i.op == "all_gather" for v in i.inputs}
    reduced = {
        v.tensor for i in found.program.instructions if i.op in ("all_reduce", "reduce_scatter") for v in i.inputs
    }
    assert gathered == {"wide", "u.grad"}
    assert reduced == {f"{side}.{k}.k.grad" for side in ("before", "behind") for k in range(4)}
    assert found.gap < 0.01
    compare(reread(found.program), found.program.graph, torch.float64, 1e-9)


def test_factors_cost_less_than_the_gradient() -> None:
    """Data parallelism sends the wide gradient, 256 KiB twice 2/3 of the way; the factors are 20 KiB."""
    found = filters("150 us")
    reduced = found.baselines["dp_proportional"]
    assert reduced is not None
    link, rows, quick = 0.1e9, 10 * 256 * 4, 6 / 10
    all_reduce = 2 * 2 / 3 * 256 * 256 * 4 / link
    gathers = 2 * (2 * quick * rows / link + 2 * 150e-6)  # padded to the quick device's share, two rounds of messages
    repeated = (1 - 2 / 10) * 2 * 10 * 256 * 256 / 3e9  # a slow device multiplies ten rows instead of two
    assert found.cost_s < reduced.cost.sync_s
    assert reduced.cost.sync_s - found.cost_s == pytest.approx(all_reduce - gathers - repeated, rel=0.05)


def test_nearer_devices_cut_the_layer_instead() -> None:
    assert placed(product(filters("20 us"), "matmul_tn")) == "S(1), R -> S(0)"
